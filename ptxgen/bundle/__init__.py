"""Bundles: tuned kernels exported as a folder that Python, C and anything else can load."""
