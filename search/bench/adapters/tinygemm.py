"""torch's own int4 operator (tinygemm): bf16, weights dequantized as (q - 8) * s + z."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ptxgen.problem import SYMMETRIC_ZERO, Problem
from search.bench.base import BenchLayer, Call, OneWay, Operand, no_bias

INNER_K_TILES = (8, 4, 2)
"""16-wide tiles of K that a lane loads at once; the most that divide K is the fastest."""

GROUP_SIZES = (32, 64, 128, 256)


class TinygemmAdapter(OneWay):
    """bf16 problems with groups of 32, 64 or 128 and no bias."""

    def unsupported(self, problem: Problem, m: int) -> str:
        if problem.dtype != "bf16":
            return f"tinygemm multiplies bf16 activations, not {problem.dtype}"
        if problem.group_size not in GROUP_SIZES:
            return f"tinygemm has no groups of {problem.group_size} inputs"
        return no_bias(problem, "tinygemm")

    def pack(self, layer: BenchLayer) -> Operand:
        """The converted weight, and [groups, N, 2] of scale and (8 - zero) * scale in bf16."""
        q = layer.weight.q
        tiles = inner_k_tiles(layer.problem.k)
        if q.is_cuda:
            bytes_ = (q[:, ::2] << 4) | q[:, 1::2]  # the first value lies in the high nibble
            packed = torch.ops.aten._convert_weight_to_int4pack(bytes_.contiguous(), tiles)
        else:
            packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(q.int(), tiles)
        return packed, scales_and_zeros(layer)

    def bind(self, problem: Problem, x: Tensor, options: Mapping[str, Any]) -> Call:
        operators = torch.ops.aten
        multiply = (
            operators._weight_int4pack_mm if x.is_cuda else operators._weight_int4pack_mm_for_cpu
        )

        def call(operand: Operand) -> Tensor:
            packed, scales = operand
            out: Tensor = multiply(x, packed, problem.group_size, scales)
            return out

        return call


def inner_k_tiles(k: int) -> int:
    """The largest of INNER_K_TILES that K (a multiple of 32) is a multiple of."""
    return next(tiles for tiles in INNER_K_TILES if k % (16 * tiles) == 0)


def scales_and_zeros(layer: BenchLayer) -> Tensor:
    """[groups, N, 2] in bf16. (8 - zero) * scale is rounded to bf16: that is the operator's own."""
    scales = layer.weight.scales.float()
    if layer.weight.zeros is None:
        shift = torch.zeros_like(scales)
    else:
        shift = (SYMMETRIC_ZERO - layer.weight.zeros.float()) * scales
    both = torch.stack((scales, shift), dim=-1)
    return both.transpose(0, 1).to(torch.bfloat16).contiguous()


def create() -> TinygemmAdapter:
    """Factory for the registry."""
    return TinygemmAdapter()
