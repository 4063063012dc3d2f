"""vLLM's Machete (Hopper): GPTQ words prepacked by its own operator; the best of its schedules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ptxgen.problem import Problem
from ptxgen.weights.quantize import TORCH_DTYPES
from search.bench.adapters.vllm_ops import UINT4_BIAS_8_ID, UINT4_ID, load_operators
from search.bench.base import BenchLayer, Call, Operand, no_bias
from search.bench.nibbles import pack_rows

GROUP_SIZES = (64, 128)
WHOLE_K = -1
HOPPER = (9, 0)


class MacheteAdapter:
    """N % 128, K % 64, groups of 64, 128 or the whole of K, no bias, compute capability 9.0.

    Args:
        operators: torch.ops._C with vLLM's operators.
        capability: of the device.
    """

    def __init__(self, operators: Any, capability: tuple[int, int]) -> None:
        self._operators, self._capability = operators, capability

    def unsupported(self, problem: Problem, m: int) -> str:
        if self._capability != HOPPER:
            major, minor = self._capability
            return f"Machete runs on compute capability 9.0, not {major}.{minor}"
        if problem.n % 128 or problem.k % 64:
            return "Machete needs N % 128 and K % 64"
        if not problem.whole_k and problem.group_size not in GROUP_SIZES:
            return f"Machete has no groups of {problem.group_size} inputs"
        return no_bias(problem, "Machete")

    def variants(self, problem: Problem) -> tuple[str, ...]:
        """Its heuristics' choice, then every schedule that it has for these dtypes."""
        dtype = TORCH_DTYPES[problem.dtype]
        shift = dtype if problem.zero == "int" else None
        types = (dtype, _kind(problem), dtype, shift, None, None, None)
        return ("", *self._operators.machete_supported_schedules(*types))

    def pack(self, layer: BenchLayer) -> Operand:
        """Weight, scales [groups, N], and -zero * scale [groups, N] where there are zero points."""
        weight = layer.weight
        scales = weight.scales.t().contiguous()
        kind = _kind(layer.problem)
        columns = pack_rows(weight.q.t()).t().contiguous().t()  # column-major, as it asks for
        packed = self._operators.machete_prepack_B(columns, scales.dtype, kind, scales.dtype)
        if weight.zeros is None:
            return packed, scales
        return packed, scales, machete_zeros(scales, weight.zeros)

    def bind(self, problem: Problem, x: Tensor, options: Mapping[str, Any]) -> Call:
        kind = _kind(problem)
        group = WHOLE_K if problem.whole_k else problem.group_size
        multiply = self._operators.machete_mm
        schedule = options["variant"] or None

        def call(operand: Operand) -> Tensor:
            packed, scales, *zeros = operand
            shift = zeros[0] if zeros else None
            weight = (packed, kind, None, scales, shift, group, None, None)
            out: Tensor = multiply(x, *weight, schedule)
            return out

        return call


def machete_zeros(scales: Tensor, zeros: Tensor) -> Tensor:
    """-zero * scale [groups, N] in the scales' dtype, from scales [groups, N], zeros [N, groups].

    The product is rounded to the dtype: that is the operator's own format.
    """
    return (-scales * zeros.t().to(scales.dtype)).contiguous()


def _kind(problem: Problem) -> int:
    return UINT4_BIAS_8_ID if problem.zero == "sym" else UINT4_ID


def create() -> MacheteAdapter:
    """Factory for the registry."""
    return MacheteAdapter(load_operators("machete_mm"), torch.cuda.get_device_capability())
