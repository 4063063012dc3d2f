"""vLLM's Marlin: GPTQ words repacked by its own operator, scales and zero points permuted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ptxgen.problem import Problem
from search.bench.adapters.vllm_ops import UINT4_BIAS_8_ID, UINT4_ID, load_operators
from search.bench.base import BenchLayer, Call, OneWay, Operand, no_bias
from search.bench.nibbles import pack_columns, pack_rows

TILES = ((64, 128), (128, 64))
"""(N, K) multiples, one of which a layer must have; vLLM pads the others."""

WHOLE_K_ORDER = [2 * i + j for i in range(4) for j in (0, 1, 8, 9, 16, 17, 24, 25)]
ZERO_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


class MarlinAdapter(OneWay):
    """Layers that fill Marlin's tiles; no bias.

    Args:
        operators: torch.ops._C with vLLM's operators.
    """

    def __init__(self, operators: Any) -> None:
        self._operators = operators

    def unsupported(self, problem: Problem, m: int) -> str:
        if not any(problem.n % n == 0 and problem.k % k == 0 for n, k in TILES):
            return "Marlin's tiles need N % 64 and K % 128, or N % 128 and K % 64"
        return no_bias(problem, "this adapter of Marlin")

    def pack(self, layer: BenchLayer) -> Operand:
        """Weight, scales [groups, N] and zero points; the last empty where there are none."""
        problem, weight = layer.problem, layer.weight
        empty = torch.empty(0, dtype=torch.int32, device=weight.q.device)
        words = pack_rows(weight.q.t())
        packed = self._operators.gptq_marlin_repack(words, empty, problem.k, problem.n, 4, False)
        zeros = empty if weight.zeros is None else marlin_zeros(weight.zeros)
        return packed, marlin_scales(weight.scales, problem), zeros

    def bind(self, problem: Problem, x: Tensor, options: Mapping[str, Any]) -> Call:
        empty = torch.empty(0, dtype=torch.int32, device=x.device)
        locks = torch.zeros(_num_sms(x.device), dtype=torch.int32, device=x.device)
        kind = UINT4_BIAS_8_ID if problem.zero == "sym" else UINT4_ID
        multiply, m = self._operators.marlin_gemm, x.shape[0]

        def call(operand: Operand) -> Tensor:
            packed, scales, zeros = operand
            tensors = (x, None, packed, None, scales, None, None, zeros, empty, empty, locks)
            flags = (True, False, True, False)  # whole K, no atomics, FP32 reduction, int zeros
            out: Tensor = multiply(*tensors, kind, m, problem.n, problem.k, *flags)
            return out

        return call


def marlin_scales(scales: Tensor, problem: Problem) -> Tensor:
    """Scales [N, groups] to Marlin's order, [groups, N].

    In groups every 64 features are an 8 x 8 block, transposed; a scale of the whole of K has an
    order of its own within 32.
    """
    by_group = scales.t().contiguous()
    if problem.whole_k:
        ordered = by_group.view(-1, len(WHOLE_K_ORDER))[:, WHOLE_K_ORDER]
    else:
        ordered = by_group.view(-1, 8, 8).transpose(1, 2)
    return ordered.reshape(by_group.shape).contiguous()


def marlin_zeros(zeros: Tensor) -> Tensor:
    """Zero points [N, groups] to int32 [groups, N / 8]: transposed as scales, then interleaved."""
    by_group = zeros.t().contiguous()
    blocks = by_group.view(-1, 8, 8).transpose(1, 2).reshape(-1, 8)
    return pack_columns(blocks[:, ZERO_ORDER].reshape(by_group.shape))


def _num_sms(device: torch.device) -> int:
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def create() -> MarlinAdapter:
    """Factory for the registry."""
    return MarlinAdapter(load_operators("marlin_gemm"))
