"""The PTX interpreter: runs the kernels' PTX on the CPU and checks every access. Needs no GPU."""
