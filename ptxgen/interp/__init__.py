"""The PTX interpreter: runs the kernels' PTX on the CPU, checking every access. No NVRTC, no GPU."""
