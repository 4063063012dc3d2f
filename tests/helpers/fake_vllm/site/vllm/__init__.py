"""A stand-in for vLLM: the names of its interface that the plugin uses, as in 0.26 and 0.33."""
