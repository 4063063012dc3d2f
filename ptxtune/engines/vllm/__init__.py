"""The vLLM plugin: entry point `ptxtune` of the group vllm.general_plugins."""
