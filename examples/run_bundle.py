"""Quantizes a random layer, runs it through an exported bundle, compares with the float result.

python examples/run_bundle.py path/to/bundle
"""

from __future__ import annotations

import sys

import torch

from ptxgen.bundle.load import BundleKernel, load
from ptxgen.errors import PtxtuneError
from ptxgen.weights.pack import pack
from ptxgen.weights.quantize import TORCH_DTYPES, dequantize, quantize

BATCHES = (1, 3, 16)
WORST_ERROR = 0.01
"""Relative error against the dequantized weight: rounding alone, so far below 4-bit error."""


def relative_error(kernel: BundleKernel, m: int) -> float:
    """||y - reference|| / ||reference|| of a random layer at a batch of m."""
    problem, device = kernel.problem, kernel.device
    dtype = TORCH_DTYPES[problem.dtype]
    generator = torch.Generator().manual_seed(m)
    weight = torch.randn(problem.n, problem.k, generator=generator).to(device) * 0.02
    quantized = quantize(weight, problem)  # once a layer, when the model is loaded
    packed = pack(quantized, problem)
    x = torch.randn(m, problem.k, generator=generator).to(device, dtype)
    bias = torch.randn(problem.n, generator=generator).to(device, dtype) if problem.bias else None

    y = kernel(x, packed, bias)

    reference = x.float() @ dequantize(quantized, problem).T
    if bias is not None:
        reference += bias.float()
    return float((y.float() - reference).norm() / reference.norm())


def report(kernel: BundleKernel) -> int:
    """Prints the error of each batch; exit code 1 where one is too large."""
    errors = {m: relative_error(kernel, m) for m in BATCHES}
    for m, error in errors.items():
        print(f"M = {m}: relative error {error:.2e}")
    return int(not all(error < WORST_ERROR for error in errors.values()))


def main(path: str) -> int:
    """Loads a bundle (which runs its self-test) and reports; exit code 2 where it is refused."""
    try:
        return report(load(path))
    except PtxtuneError as error:
        print(error, file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} path/to/bundle")
    sys.exit(main(sys.argv[1]))
