"""Round-to-nearest group quantization of a float weight, and its exact inverse. No packing here."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch
from torch import Tensor

from ptxgen.errors import ProblemError, TensorError, UnderflowWarning
from ptxgen.problem import SYMMETRIC_ZERO, Problem

MAX_NIBBLE = 15
TORCH_DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}
FLOAT_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)

LARGEST_BF16_SCALE = 2.0**58
"""Kernels of wgmma_tma multiply scales by 2^69, and no bf16 is larger than 2^128."""

# Elements quantized at once: bounds the FP32 temporaries to some 100 MB.
CHUNK_ELEMENTS = 1 << 22


@dataclass(frozen=True, slots=True)
class QuantizedWeight:
    """A 4-bit weight before packing: w[n, k] = (q[n, k] - zero[n, g]) * scale[n, g].

    Attributes:
        q: uint8 [N, K], values 0..15.
        scales: [N, groups] in the problem's dtype.
        zeros: uint8 [N, groups], values 0..15; None where the problem is symmetric (zero 8).
    """

    q: Tensor
    scales: Tensor
    zeros: Tensor | None = None


def quantize(weight: Tensor, problem: Problem) -> QuantizedWeight:
    """Quantizes a weight to the nearest values that the problem's groups can hold.

    Symmetric groups get scale = absmax / 7.5 (both ends then lose half a step, which is the least
    that 16 values around zero point 8 allow); others the range min(w, 0)..max(w, 0) over 15 steps.

    Args:
        weight: [N, K], floating point, on any device; the result is on the same one.
        problem: its N, K, group size, dtype and zero kind.

    Groups whose scale is too small for the problem's dtype become 0, with an UnderflowWarning that
    says how many they are: in fp16 those whose largest value is below some 2.2e-7.

    Raises:
        TensorError: wrong shape or dtype, NaN or inf in the weight, or a scale beyond the
            problem's dtype.
    """
    _check_weight(weight, problem)
    scale_dtype = TORCH_DTYPES[problem.dtype]
    groups = (problem.n, problem.num_groups)
    q = torch.empty(problem.n, problem.k, dtype=torch.uint8, device=weight.device)
    scales = torch.empty(groups, dtype=scale_dtype, device=weight.device)
    zeros = torch.empty(groups, dtype=torch.uint8, device=weight.device)
    finite = torch.ones((), dtype=torch.bool, device=weight.device)
    lost = torch.zeros((), dtype=torch.int64, device=weight.device)
    rows = max(1, CHUNK_ELEMENTS // problem.k)
    for start in range(0, problem.n, rows):
        part = slice(start, start + rows)
        chunk = weight[part].detach().float().view(-1, problem.num_groups, problem.group_size)
        lo, hi = torch.aminmax(chunk, dim=-1)
        finite &= torch.isfinite(lo).all() & torch.isfinite(hi).all()  # both keep a NaN
        step, zero = _step_and_zero(lo, hi, problem, scale_dtype)
        lost += ((step == 0) & ((lo != 0) | (hi != 0))).sum()
        scales[part], zeros[part] = step, zero
        q[part] = _nearest(chunk, step.float(), zero).view(-1, problem.k)
    if not bool(finite):
        raise TensorError(
            f"the weight of {problem.key()} holds NaN or inf, which no 4-bit value can stand for; "
            f"repair or drop those values before quantizing."
        )
    _check_scales(scales, problem)
    _warn_of_underflow(int(lost), problem)
    return QuantizedWeight(q, scales, zeros if problem.zero == "int" else None)


def dequantize(
    weight: QuantizedWeight, problem: Problem, dtype: torch.dtype = torch.float32
) -> Tensor:
    """The weight [N, K] that the 4-bit values stand for: exact in FP32 and FP64, else rounded once.

    Raises:
        TensorError: the quantized weight does not fit the problem.
    """
    check_quantized(weight, problem)
    return dequantize_rows(weight, problem, slice(None), dtype)


def dequantize_rows(
    weight: QuantizedWeight, problem: Problem, rows: slice, dtype: torch.dtype = torch.float32
) -> Tensor:
    """As dequantize, for some output features only and without checks; [rows, K]."""
    # A 5-bit difference times an 11-bit scale needs 16 bits: FP32 holds it exactly.
    exact = dtype if dtype in (torch.float32, torch.float64) else torch.float32
    steps = weight.q[rows].to(exact).view(-1, problem.num_groups, problem.group_size)
    if weight.zeros is None:
        steps -= SYMMETRIC_ZERO
    else:
        steps -= weight.zeros[rows].to(exact).unsqueeze(-1)
    steps *= weight.scales[rows].to(exact).unsqueeze(-1)
    return steps.view(-1, problem.k).to(dtype)


def check_quantized(weight: QuantizedWeight, problem: Problem) -> None:
    """Raises TensorError where a quantized weight does not fit its problem or is not finite."""
    check_problem(problem)
    if not isinstance(weight, QuantizedWeight):
        raise TensorError(
            f"the weight is {type(weight).__name__}, not a QuantizedWeight; make one by "
            f"ptxtune.quantize, or of q, scales and zeros by ptxtune.QuantizedWeight."
        )
    groups = (problem.n, problem.num_groups)
    _check_tensor("q", weight.q, (problem.n, problem.k), torch.uint8, problem)
    _check_tensor("scales", weight.scales, groups, TORCH_DTYPES[problem.dtype], problem)
    nibbles = {"q": weight.q}
    if problem.zero == "sym" and weight.zeros is not None:
        raise TensorError(
            f"{problem.key()} is symmetric (zero point {SYMMETRIC_ZERO}) but zero points were "
            f"given; leave them out, or use a problem with zero = int."
        )
    if problem.zero == "int":
        if weight.zeros is None:
            raise TensorError(
                f"{problem.key()} needs integer zero points of shape {groups}, and none were "
                f"given; pass them, or use a problem with zero = sym."
            )
        _check_tensor("zeros", weight.zeros, groups, torch.uint8, problem)
        nibbles["zeros"] = weight.zeros
    devices = {str(item.device) for item in (*nibbles.values(), weight.scales)}
    if len(devices) > 1:
        raise TensorError(
            f"q, scales and zeros of {problem.key()} lie on {', '.join(sorted(devices))}; "
            f"move them to one device."
        )
    for name, value in nibbles.items():
        if (largest := int(value.max())) > MAX_NIBBLE:
            raise TensorError(
                f"{name} of {problem.key()} holds {largest}; 4-bit values are 0..{MAX_NIBBLE}. "
                f"Unpack to one value a byte first."
            )
    _check_scales(weight.scales, problem)


def _step_and_zero(
    lo: Tensor, hi: Tensor, problem: Problem, scale_dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Scales in the stored dtype, and uint8 zero points, of groups with these extremes."""
    if problem.zero == "sym":
        step = (torch.maximum(-lo, hi) / 7.5).to(scale_dtype)
        return step, torch.full_like(lo, SYMMETRIC_ZERO, dtype=torch.uint8)
    lo, hi = lo.clamp(max=0), hi.clamp(min=0)
    step = ((hi - lo) / MAX_NIBBLE).to(scale_dtype)
    zero = torch.nan_to_num(-lo / step.float()).round().clamp(0, MAX_NIBBLE)
    return step, zero.to(torch.uint8)


def _nearest(chunk: Tensor, step: Tensor, zero: Tensor) -> Tensor:
    """The nearest nibble of each value; the zero point where the scale is 0."""
    divisor = torch.where(step > 0, step, torch.inf)
    steps = (chunk / divisor.unsqueeze(-1)).round_()
    return steps.add_(zero.unsqueeze(-1)).clamp_(0, MAX_NIBBLE).to(torch.uint8)


def check_problem(problem: Problem) -> None:
    """Raises ProblemError where the argument is no Problem."""
    if not isinstance(problem, Problem):
        raise ProblemError(
            f"the problem is {type(problem).__name__}; make one by ptxtune.problem(n, k)."
        )


def _check_weight(weight: Tensor, problem: Problem) -> None:
    check_problem(problem)
    if not isinstance(weight, Tensor):
        raise TensorError(
            f"the weight is {type(weight).__name__}, not a torch tensor; make one by "
            f"torch.as_tensor."
        )
    if tuple(weight.shape) != (problem.n, problem.k):
        raise TensorError(
            f"the weight has shape {tuple(weight.shape)}; {problem.key()} needs "
            f"[N, K] = ({problem.n}, {problem.k}). Transpose it, or name its own N and K."
        )
    if weight.dtype not in FLOAT_DTYPES:
        raise TensorError(
            f"the weight has dtype {weight.dtype}; quantizing needs one of "
            f"{', '.join(map(str, FLOAT_DTYPES))}. Values that are 4-bit already go to pack()."
        )


def _check_tensor(
    name: str, value: Tensor, shape: tuple[int, ...], dtype: torch.dtype, problem: Problem
) -> None:
    if not isinstance(value, Tensor):
        raise TensorError(
            f"{name} is {type(value).__name__}, not a torch tensor; {problem.key()} needs {dtype} "
            f"{shape}."
        )
    if tuple(value.shape) != shape or value.dtype != dtype:
        raise TensorError(
            f"{name} is {value.dtype} {tuple(value.shape)}; {problem.key()} needs {dtype} {shape}. "
            f"Convert it, or name the problem it belongs to."
        )


def _warn_of_underflow(lost: int, problem: Problem) -> None:
    if not lost:
        return
    count = problem.n * problem.num_groups
    least = 2.0**-24 if problem.dtype == "fp16" else 2.0**-133
    way_out = "use bf16 scales" if problem.dtype == "fp16" else "scale the layer up"
    warnings.warn(
        f"{lost} of the {count} groups of {problem.key()} have values, but none that is large "
        f"enough for a scale of {problem.dtype} (the smallest is {least:.1e}): they became 0. "
        f"If they matter, {way_out} or quantize with larger groups.",
        UnderflowWarning,
        stacklevel=3,
    )


def _check_scales(scales: Tensor, problem: Problem) -> None:
    if not bool(torch.isfinite(scales).all()):
        largest = torch.finfo(scales.dtype).max
        raise TensorError(
            f"the scales of {problem.key()} hold NaN or inf; they must be finite {problem.dtype} "
            f"values (at most {largest:g}). Scale the layer down, or use bf16."
        )
    if problem.dtype == "bf16" and bool((scales.abs() > LARGEST_BF16_SCALE).any()):
        raise TensorError(
            f"the scales of {problem.key()} reach {float(scales.abs().max()):.3g}; kernels compute "
            f"with scales of at most 2^58 = {LARGEST_BF16_SCALE:.3g} in bf16. Scale the layer down."
        )
