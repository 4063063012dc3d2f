"""Guard of the emitted texts: a fixed sample of kernels, and digests of what they were."""
