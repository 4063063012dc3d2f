"""How far an output may be off, output by output, whatever the scales: the promise of every kernel.

Each weight (q - zero) * scale is rounded once to the activation dtype, or more finely; products
are exact; sums are of FP32; the output is rounded once. With u = 2^-11 (fp16) or 2^-8 (bf16) that
makes

    |y - exact| <= E + u (|exact| + E) + half the dtype's smallest number, E = sum_k |x_k| (max(u
    |w_k|, least) + (K / 16 + 32) 2^-22 (q_k + zero_k) |scale_k|) + 2^-22 |bias|.

least is what the rounding of a weight that is a subnormal number costs: 2^-25 in fp16, half its
smallest number. bf16 kernels of wgmma_tma keep sums in units of 2^-64, and weights below 2^-62 in
steps of 2^-69. The second term bounds FP32 sums, in whatever order: tensor cores take 16 products
at once and cut off what lies 2^-23 below the largest of them and the sum so far, and some families
sum q * x and zero * x apart. It is small beside the first (1.3e-4 at K = 8192, and u is 4.9e-4 in
fp16).
"""

from __future__ import annotations

import torch
from torch import Tensor

from ptxgen.problem import SYMMETRIC_ZERO, Dtype, Problem
from ptxgen.weights.quantize import QuantizedWeight, dequantize_rows

UNIT_ROUNDOFF: dict[Dtype, float] = {"fp16": 2.0**-11, "bf16": 2.0**-8}
LEAST_WEIGHT_ERROR: dict[Dtype, float] = {"fp16": 2.0**-25, "bf16": 2.0**-69}
LEAST_OUTPUT_ERROR: dict[Dtype, float] = {"fp16": 2.0**-25, "bf16": 2.0**-134}
SUM_ERROR = 2.0**-22
"""Of a step of a sum of FP32, in units of the sizes that are added."""


def error_bound(
    x: Tensor, weight: QuantizedWeight, problem: Problem, exact: Tensor, bias: Tensor | None = None
) -> Tensor:
    """The largest error that each output may have.

    Args:
        x: activations [m, K].
        weight: the quantized weight, on the same device.
        problem: its problem; |(q - zero) * scale| must be numbers of its dtype.
        exact: FP64 outputs [m, N] of ptxgen.reference.reference_output.
        bias: [N], or None.

    Returns:
        [m, N], FP64.
    """
    unit = UNIT_ROUNDOFF[problem.dtype]
    w = dequantize_rows(weight, problem, slice(None), torch.float64).abs()
    rounding = torch.where(w > 0, (w * unit).clamp(min=LEAST_WEIGHT_ERROR[problem.dtype]), 0.0)
    steps = problem.k / 16 + 32
    sizes = _sizes(weight, problem)
    error = x.double().abs() @ (rounding + steps * SUM_ERROR * sizes).t()
    if bias is not None:
        error += SUM_ERROR * bias.double().abs()
    return error + unit * (exact.abs() + error) + LEAST_OUTPUT_ERROR[problem.dtype]


def promise(problem: Problem) -> str:
    """The promise in one line."""
    kept = "FP32 sums" if problem.whole_k else "FP32 sums, whatever the other scales of its row"
    return f"each weight (q - zero) * scale is rounded once to {problem.dtype} or finer, {kept}"


def _sizes(weight: QuantizedWeight, problem: Problem) -> Tensor:
    """(q + zero) * |scale| of every weight, [N, K] FP64."""
    zeros = SYMMETRIC_ZERO if weight.zeros is None else weight.zeros.double().unsqueeze(-1)
    q = weight.q.double().view(problem.n, problem.num_groups, problem.group_size)
    sizes = (q + zeros) * weight.scales.double().abs().unsqueeze(-1)
    return sizes.view(problem.n, problem.k)
