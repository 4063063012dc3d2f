"""Layers of a model on our kernels: which kernel serves which batch, the operator, the module."""
