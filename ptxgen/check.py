"""Correctness gate: NaN-filled output between guard bands, value, completeness, repeatability."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ptxgen.problem import Problem
from ptxgen.reference import (
    FEATURE_TOLERANCES,
    TOLERANCES,
    relative_error,
    worst_feature_error,
)
from ptxgen.weights.quantize import TORCH_DTYPES

GUARD_ELEMENTS = 4096
POISON = 0x7FFF
"""Bits of a NaN in fp16 and bf16 alike; no kernel's arithmetic gives it."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Verdict of a check; message says what is wrong where ok is False."""

    ok: bool
    rel_err: float
    message: str = ""


@dataclass(frozen=True, slots=True)
class GuardedBuffer:
    """A tensor of poison with a poisoned band on either side."""

    whole: Tensor
    body: Tensor

    @classmethod
    def create(
        cls, shape: Sequence[int], dtype: torch.dtype, device: torch.device
    ) -> GuardedBuffer:
        count = shape[0] * shape[1]
        whole = torch.full((count + 2 * GUARD_ELEMENTS,), POISON, dtype=torch.int16, device=device)
        body = whole[GUARD_ELEMENTS : GUARD_ELEMENTS + count].view(dtype).view(shape[0], shape[1])
        return cls(whole, body)

    def damaged(self) -> int:
        """Guard elements that are no longer poison."""
        count = self.body.numel()
        before, after = self.whole[:GUARD_ELEMENTS], self.whole[GUARD_ELEMENTS + count :]
        return int((before != POISON).sum() + (after != POISON).sum())

    def unwritten(self) -> int:
        """Elements of the body that are still poison."""
        return int((self.body.view(torch.int16) == POISON).sum())


def check(
    launch: Callable[[Tensor], None], problem: Problem, ref: Tensor, runs: int = 2
) -> CheckResult:
    """Runs a kernel into guarded buffers and compares with the reference.

    Args:
        launch: writes y [M, N] into the tensor it is given, on the current stream.
        problem: for dtype and tolerances.
        ref: expected output [M, N] in FP64 or FP32, on the kernel's device.
        runs: launches that must agree bit for bit.
    """
    outputs = []
    for _ in range(runs):
        buffer = GuardedBuffer.create(ref.shape, TORCH_DTYPES[problem.dtype], ref.device)
        launch(buffer.body)
        if ref.is_cuda:
            torch.cuda.synchronize(ref.device)
        if damaged := buffer.damaged():
            return CheckResult(False, float("inf"), f"wrote {damaged} elements outside the output")
        if unwritten := buffer.unwritten():
            return CheckResult(False, float("inf"), f"left {unwritten} outputs unwritten")
        outputs.append(buffer.body)
    if any(not torch.equal(outputs[0].view(torch.int16), y.view(torch.int16)) for y in outputs[1:]):
        return CheckResult(False, float("inf"), f"{runs} runs on the same inputs differ")
    return compare(outputs[0], problem, ref)


def compare(out: Tensor, problem: Problem, ref: Tensor) -> CheckResult:
    """Compares an output with the reference, as a whole and feature by feature."""
    dtype = TORCH_DTYPES[problem.dtype]
    expected = ref.to(dtype)
    overflow = ~torch.isfinite(expected)
    if bool(overflow.any()):  # rightly infinite values must match; the rest is compared as usual
        if not torch.equal(out[overflow], expected[overflow]):
            return CheckResult(False, float("inf"), "an output beyond the dtype's range is not inf")
        out, ref = out.masked_fill(overflow, 0), ref.masked_fill(overflow, 0)
    rel_err = relative_error(out, ref)
    limit = TOLERANCES[problem.dtype]
    if not rel_err <= limit:
        return CheckResult(False, rel_err, f"relative error {rel_err:.3g} is above {limit:.3g}")
    worst = worst_feature_error(out, ref)
    limit = FEATURE_TOLERANCES[problem.dtype]
    if not worst <= limit:
        return CheckResult(False, rel_err, f"a feature's error {worst:.3g} is above {limit:.3g}")
    return CheckResult(True, rel_err)
