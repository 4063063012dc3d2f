"""Kernels proven without a GPU: run in the PTX interpreter and compared with the reference."""
