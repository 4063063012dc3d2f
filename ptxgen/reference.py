"""Inputs by seed, expected outputs, and how far an output may be off; no code of the emitters."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ptxgen.errors import TensorError
from ptxgen.problem import Dtype, Problem, check_m
from ptxgen.weights.quantize import (
    MAX_NIBBLE,
    TORCH_DTYPES,
    QuantizedWeight,
    check_quantized,
    dequantize_rows,
)

CHUNK_BYTES = 256 << 20
"""Bound on the temporaries: a 57344 x 8192 layer is 3.8 GB in FP64, and need never exist whole."""

WEIGHT_SIGMA = 0.02
SCALE_RANGE = (5e-3, 2e-2)

TOLERANCES: dict[Dtype, float] = {"fp16": 2.0**-10, "bf16": 2.0**-7}
"""Bound on relative_error for a kernel that accumulates in FP32: 2 u, u being the unit roundoff
(2^-11 in fp16, 2^-8 in bf16).

Two roundings to the dtype are allowed: (q - zero) * scale before the product, and the output. Each
is off by at most u, by about 0.4 u in root mean square, and they are independent, so a right kernel
lands near 0.52 u (emulated for K = 4096, both dtypes and zero kinds). FP32 accumulation adds some
sqrt(K) * 2^-24, which is nothing beside it. A fault in every output feature shows at once; one in a
single feature drowns among thousands, which is why worst_feature_error has a bound of its own."""

FEATURE_TOLERANCES: dict[Dtype, float] = {"fp16": 2.0**-8, "bf16": 2.0**-5}
"""Bound on worst_feature_error: 8 u.

At m = 1 an output of 4 times the mean size is off by up to 4 u; a right kernel's worst feature was
2.9 u of 2048 (emulated, K = 4096). Faults in a single feature show as 68 u or more in fp16 and 8 u
in bf16 where a group of 128 weights is off by one step, as 13 u in fp16 where one weight is."""


@dataclass(frozen=True, slots=True)
class ProblemData:
    """Seeded inputs of a problem.

    Attributes:
        x: activations [m, K] in the problem's dtype.
        weight: quantized weight.
        bias: [N] in the problem's dtype, or None.
    """

    x: Tensor
    weight: QuantizedWeight
    bias: Tensor | None


def random_problem_data(
    problem: Problem, m: int, seed: int = 0, device: str | torch.device = "cpu"
) -> ProblemData:
    """Inputs as a language model has them: x ~ N(0, 1), weights ~ N(0, 0.02^2) to nearest.

    Scales are log-uniform in SCALE_RANGE, so that groups differ; integer zero points are uniform in
    0..15 with both ends present. The same seed gives the same data on the same kind of device.

    Raises:
        ProblemError: m is not a batch size.
    """
    check_m(m)
    generator = torch.Generator(device).manual_seed(seed)
    dtype = TORCH_DTYPES[problem.dtype]

    def randn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, device=device)

    x = randn(m, problem.k).to(dtype)
    weight = random_quantized(problem, generator)
    bias = randn(problem.n).to(dtype) if problem.bias else None
    return ProblemData(x, weight, bias)


def random_quantized(problem: Problem, generator: torch.Generator) -> QuantizedWeight:
    """A seeded quantized weight on the generator's device; see random_problem_data."""
    device = generator.device
    groups = (problem.n, problem.num_groups)
    low, high = (math.log(value) for value in SCALE_RANGE)
    uniform = torch.rand(groups, generator=generator, device=device)
    scales = (low + (high - low) * uniform).exp().to(TORCH_DTYPES[problem.dtype])
    zeros = torch.full(groups, 8, dtype=torch.uint8, device=device)
    if problem.zero == "int":
        zeros.random_(0, MAX_NIBBLE + 1, generator=generator)
        zeros.view(-1)[0], zeros.view(-1)[-1] = 0, MAX_NIBBLE
    q = torch.empty(problem.n, problem.k, dtype=torch.uint8, device=device)
    for rows in _row_chunks(problem.n, problem.k * 4):
        part = q[rows]
        values = torch.randn(
            (part.shape[0], problem.num_groups, problem.group_size),
            generator=generator,
            device=device,
        )
        steps = values.mul_(WEIGHT_SIGMA).div_(scales[rows].float().unsqueeze(-1)).round_()
        steps.add_(zeros[rows].unsqueeze(-1)).clamp_(0, MAX_NIBBLE)
        part.copy_(steps.view(part.shape))
    return QuantizedWeight(q, scales, zeros if problem.zero == "int" else None)


def reference_output(
    x: Tensor,
    weight: QuantizedWeight,
    problem: Problem,
    bias: Tensor | None = None,
    dtype: torch.dtype = torch.float64,
) -> Tensor:
    """What a kernel should compute, from the dequantized weights: x @ W^T + bias, [m, N] in dtype.

    Args:
        x: activations [m, K] of any float dtype, on the weight's device.
        weight: the quantized weight.
        problem: its problem.
        bias: [N], or None.
        dtype: float64, or float32 (then the caller sees to it that TF32 is off).

    Raises:
        TensorError: an input does not fit the problem.
    """
    check_quantized(weight, problem)
    if x.dim() != 2 or x.shape[1] != problem.k:
        raise TensorError(
            f"x has shape {tuple(x.shape)}; {problem.key()} needs [m, K] with K = {problem.k}."
        )
    if (bias is not None) != problem.bias or (bias is not None and bias.shape != (problem.n,)):
        raise TensorError(
            f"bias is {'missing' if bias is None else tuple(bias.shape)}; {problem.key()} "
            f"{f'needs ({problem.n},)' if problem.bias else 'has none'}."
        )
    wide = x.to(dtype)
    out = torch.empty(x.shape[0], problem.n, dtype=dtype, device=x.device)
    for rows in _row_chunks(problem.n, problem.k * dtype.itemsize):
        torch.matmul(wide, dequantize_rows(weight, problem, rows, dtype).t(), out=out[:, rows])
    if bias is not None:
        out += bias.to(dtype)
    return out


def relative_error(out: Tensor, ref: Tensor) -> float:
    """||out - ref|| / ||ref|| in FP64; inf for NaN, inf or another shape; 0 where empty."""
    if out.shape != ref.shape:
        return math.inf
    error = torch.zeros((), dtype=torch.float64, device=ref.device)
    norm = torch.zeros_like(error)
    for rows in _row_chunks(ref.shape[0], ref[:1].numel() * 16):
        wide = ref[rows].double()
        error += (out[rows].double() - wide).square_().sum()
        norm += wide.square().sum()  # not in place: may be a view of ref
    if float(error) == 0.0:
        return 0.0
    result = math.sqrt(float(error / norm)) if float(norm) > 0 else math.inf
    return result if math.isfinite(result) else math.inf


def worst_feature_error(out: Tensor, ref: Tensor) -> float:
    """The largest ||out[:, n] - ref[:, n]|| over the features, in units of their mean size.

    The unit is the root mean square of ||ref[:, n]|| over n, so that a feature whose outputs happen
    to be near 0 is not held to them. inf for NaN, inf or another shape; 0 where empty.
    """
    if out.shape != ref.shape:
        return math.inf
    if ref.numel() == 0:
        return 0.0
    error = torch.zeros(ref.shape[1], dtype=torch.float64, device=ref.device)
    norm = torch.zeros_like(error)
    for rows in _row_chunks(ref.shape[0], ref.shape[1] * 16):
        wide = ref[rows].double()
        error += (out[rows].double() - wide).square_().sum(dim=0)
        norm += wide.square().sum(dim=0)
    worst, mean = float(error.max()), float(norm.mean())
    if worst == 0.0:
        return 0.0
    result = math.sqrt(worst / mean) if mean > 0 else math.inf
    return result if math.isfinite(result) else math.inf


def _row_chunks(rows: int, bytes_per_row: int) -> list[slice]:
    """Slices of rows, each of at most CHUNK_BYTES (or one row)."""
    step = max(1, CHUNK_BYTES // max(1, bytes_per_row))
    return [slice(start, min(start + step, rows)) for start in range(0, rows, step)]
