"""gemlite: Triton kernels that tune themselves at the first call of a size."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ptxgen.problem import SYMMETRIC_ZERO, Problem
from ptxgen.weights.quantize import TORCH_DTYPES
from search.bench.base import BenchLayer, Call, OneWay, Operand

TENSORS = 4
"""Tensors of a packed layer (weight, scales, zeros, meta scale) before the bias."""


class GemliteAdapter(OneWay):
    """All problems but those of one group over the whole of K.

    Args:
        gemlite: the package.
    """

    def __init__(self, gemlite: Any) -> None:
        self._gemlite = gemlite
        self._meta: dict[Problem, list[int]] = {}

    def unsupported(self, problem: Problem, m: int) -> str:
        if problem.num_groups == 1:
            return "gemlite is run with several groups of 32, 64 or 128 inputs here"
        return ""

    def pack(self, layer: BenchLayer) -> Operand:
        """gemlite's own packing; zero points become -zero * scale, as its helpers make them."""
        problem, weight = layer.problem, layer.weight
        kinds = self._gemlite.DType
        kind = kinds.FP16 if problem.dtype == "fp16" else kinds.BF16
        linear = self._gemlite.GemLiteLinear(
            4,
            group_size=problem.group_size,
            in_features=problem.k,
            out_features=problem.n,
            input_dtype=kind,
            output_dtype=kind,
        )
        zeros: Tensor | int = SYMMETRIC_ZERO
        if weight.zeros is not None:
            zeros = weight.zeros.to(TORCH_DTYPES[problem.dtype])
        linear.pack(weight.q, weight.scales, zeros)
        self._meta[problem] = linear.get_meta_args()
        tensors = tuple(tensor.detach() for tensor in linear.get_tensor_args())
        return tensors if layer.bias is None else (*tensors, layer.bias)

    def bind(self, problem: Problem, x: Tensor, options: Mapping[str, Any]) -> Call:
        meta = self._meta[problem]
        forward = self._gemlite.forward_functional

        def call(operand: Operand) -> Tensor:
            bias = operand[TENSORS] if problem.bias else None
            out: Tensor = forward(x, bias, list(operand[:TENSORS]), meta)
            return out

        return call


def create() -> GemliteAdapter:
    """Factory for the registry. Imported here: only the contender's own process needs it."""
    return GemliteAdapter(importlib.import_module("gemlite"))
