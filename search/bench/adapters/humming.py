"""humming-kernels: compiled at the first call; its own heuristics choose the config by M."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ptxgen.problem import Problem
from ptxgen.weights.quantize import TORCH_DTYPES
from search.bench.base import BenchLayer, Call, OneWay, Operand, nan_filled
from search.bench.nibbles import pack_columns, pack_rows

LOCKS = 2048
"""Counters of a layer's stream-K; zero before the first launch, and left at zero by each."""

NAMES = ("weight", "weight_scale", "weight_scale_2", "zero_point", "bias")


class HummingAdapter(OneWay):
    """Layers that fill humming's tiles without padding.

    Args:
        layer_module: humming.layer.
        forward_module: humming.forward.
    """

    def __init__(self, layer_module: Any, forward_module: Any) -> None:
        self._layers, self._forward = layer_module, forward_module
        self._configs: dict[Problem, Any] = {}
        self._present: dict[Problem, tuple[str, ...]] = {}

    def unsupported(self, problem: Problem, m: int) -> str:
        if problem.n % 64 or problem.k % 64:
            return "humming needs N % 64 and K % 64, or a layer that is padded to them"
        return ""

    def pack(self, layer: BenchLayer) -> Operand:
        """humming's own transform of plainly packed words."""
        problem = layer.problem
        module = self._layers.HummingLayer(
            shape_n=problem.n,
            shape_k=problem.k,
            weight_config=weight_config(problem),
            has_bias=problem.bias,
            torch_dtype=TORCH_DTYPES[problem.dtype],
        ).to(layer.weight.q.device)
        module.load_from_tensors(plain_tensors(layer))
        module.transform()
        present = tuple(name for name in NAMES if getattr(module, name, None) is not None)
        self._configs[problem], self._present[problem] = module.humming_config, present
        return tuple(getattr(module, name).detach() for name in present)

    def bind(self, problem: Problem, x: Tensor, options: Mapping[str, Any]) -> Call:
        config, present = self._configs[problem], self._present[problem]
        out = nan_filled(x, problem.n)
        locks = torch.zeros(LOCKS, dtype=torch.int32, device=x.device)
        forward = self._forward.humming_forward

        def call(operand: Operand) -> Tensor:
            tensors = dict(zip(present, operand, strict=True))
            result: Tensor = forward(config, inputs=x, outputs=out, locks=locks, **tensors)
            return result

        return call


def weight_config(problem: Problem) -> dict[str, Any]:
    """The layer's weight in humming's words; group size 0 is the whole of K."""
    return {
        "dtype": "uint4",
        "group_size": 0 if problem.whole_k else problem.group_size,
        "has_zero_point": problem.zero == "int",
    }


def plain_tensors(layer: BenchLayer) -> dict[str, Tensor]:
    """weight [N, K / 8], weight_scale [N, groups], zero_point [N / 8, groups], bias [N]."""
    tensors = {"weight": pack_columns(layer.weight.q), "weight_scale": layer.weight.scales}
    if layer.weight.zeros is not None:
        tensors["zero_point"] = pack_rows(layer.weight.zeros)
    if layer.bias is not None:
        tensors["bias"] = layer.bias
    return tensors


def create() -> HummingAdapter:
    """Factory for the registry. Imported here: only the contender's own process needs it."""
    return HummingAdapter(
        importlib.import_module("humming.layer"), importlib.import_module("humming.forward")
    )
