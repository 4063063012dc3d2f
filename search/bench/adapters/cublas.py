"""cuBLAS through torch: the layer dequantized to fp16 or bf16. The baseline of every ratio."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ptxgen.problem import Problem
from ptxgen.weights.quantize import TORCH_DTYPES, dequantize
from search.bench.base import BenchLayer, Call, OneWay, Operand, nan_filled


class CublasAdapter(OneWay):
    """Every problem and batch."""

    def unsupported(self, problem: Problem, m: int) -> str:
        return ""

    def pack(self, layer: BenchLayer) -> Operand:
        """The weight [N, K] rounded to the problem's dtype, and the bias where there is one."""
        dense = dequantize(layer.weight, layer.problem, TORCH_DTYPES[layer.problem.dtype])
        return (dense,) if layer.bias is None else (dense, layer.bias)

    def bind(self, problem: Problem, x: Tensor, options: Mapping[str, Any]) -> Call:
        out = nan_filled(x, problem.n)

        def call(operand: Operand) -> Tensor:
            dense, *bias = operand
            if bias:
                return torch.addmm(bias[0], x, dense.t(), out=out)
            return torch.mm(x, dense.t(), out=out)

        return call


def create() -> CublasAdapter:
    """Factory for the registry."""
    return CublasAdapter()
