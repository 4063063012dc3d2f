"""GpuLayer: one problem's tensors where candidates run: weight copies, inputs, references."""

from __future__ import annotations

import torch
from torch import Tensor

from ptxgen.dequantize.product import multiply
from ptxgen.problem import Problem
from ptxgen.reference import random_quantized, reference_output
from ptxgen.timing import copies_for
from ptxgen.weights.pack import pack
from ptxgen.weights.quantize import TORCH_DTYPES, dequantize

MAX_FP64_FLOPS = 1e11
"""A larger reference is computed in FP32, whose error is far below any tolerance: most GPUs do FP64
at a sixty-fourth of the speed."""


class GpuLayer:
    """A problem's tensors on one device; what only some contenders need is made on first use.

    Args:
        problem: the problem.
        seed: of weights, activations and bias.
        device: where they lie.
        l2_bytes: of the device; weight copies are so many that they do not stay in it.

    Attributes:
        problem: the problem.
        packed: equal copies of the packed weight.
        bias: [N] where the problem has one.
    """

    def __init__(self, problem: Problem, seed: int, device: torch.device, l2_bytes: int) -> None:
        self.problem = problem
        self._seed, self._device, self._l2_bytes = seed, device, l2_bytes
        self._weight = random_quantized(problem, self._generator(0))
        self.packed = self._copies(pack(self._weight, problem))
        self.bias = self._randn(0, problem.n) if problem.bias else None
        self._x: dict[int, Tensor] = {}
        self._ref: dict[int, Tensor] = {}
        self._dense: list[Tensor] = []
        self._unpacked: Tensor | None = None

    def x(self, m: int) -> Tensor:
        """Activations [m, K]; those of one m are kept at a time."""
        if m not in self._x:
            self._x.clear()  # buckets come one after the other, and a large one takes gigabytes
            self._ref.clear()
            self._x[m] = self._randn(m, m, self.problem.k)
        return self._x[m]

    def reference(self, m: int) -> Tensor:
        """Expected output [m, N] of x(m), FP64 or FP32."""
        x = self.x(m)
        if m not in self._ref:
            large = self.problem.flops(m) > MAX_FP64_FLOPS
            self._ref[m] = reference_output(
                x,
                self._weight,
                self.problem,
                self.bias,
                dtype=torch.float32 if large else torch.float64,
            )
        return self._ref[m]

    def output(self, m: int) -> Tensor:
        """New memory [m, N] in the problem's dtype."""
        return self._empty(m, self.problem.n)

    def dense_copies(self) -> int:
        """Copies of the dense weight that cuBLAS reads: the same values in the problem's dtype."""
        if not self._dense:
            dtype = TORCH_DTYPES[self.problem.dtype]
            self._dense = self._copies(dequantize(self._weight, self.problem).to(dtype))
        return len(self._dense)

    def dense_product(self, m: int, copy: int, out: Tensor) -> None:
        """The cuBLAS product of x(m) and one copy of the dense weight, into out [m, N]."""
        self.dense_copies()
        multiply(self.x(m), self._dense[copy], self.bias, out)

    def unpacked(self) -> Tensor:
        """Memory [N, K] for the dense weight that dequantize + matmul goes through."""
        if self._unpacked is None:
            self._unpacked = self._empty(self.problem.n, self.problem.k)
        return self._unpacked

    def _copies(self, first: Tensor) -> list[Tensor]:
        count = copies_for(first.numel() * first.element_size(), self._l2_bytes)
        return [first, *(first.clone() for _ in range(count - 1))]

    def _empty(self, *shape: int) -> Tensor:
        return torch.empty(shape, dtype=TORCH_DTYPES[self.problem.dtype], device=self._device)

    def _generator(self, stream: int) -> torch.Generator:
        return torch.Generator(self._device).manual_seed(self._seed * 1_000_003 + stream)

    def _randn(self, stream: int, *shape: int) -> Tensor:
        values = torch.randn(shape, generator=self._generator(stream), device=self._device)
        return values.to(TORCH_DTYPES[self.problem.dtype])
