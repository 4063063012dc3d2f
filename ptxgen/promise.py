"""What every kernel promises of its numbers, in a line; ptxgen.error_bound has it as a bound."""

from __future__ import annotations

from ptxgen.problem import Dtype

UNIT_ROUNDOFF_EXPONENTS: dict[Dtype, int] = {"fp16": -11, "bf16": -8}
UNIT_ROUNDOFF: dict[Dtype, float] = {
    dtype: 2.0**exponent for dtype, exponent in UNIT_ROUNDOFF_EXPONENTS.items()
}
"""Largest relative error of a rounding to the dtype."""


def promise(dtype: Dtype) -> str:
    """How far outputs may be off, whatever M is and whatever the scales of a row are."""
    u = f"2^{UNIT_ROUNDOFF_EXPONENTS[dtype]}"
    return (
        f"each weight (q - zero) * scale rounded once to {dtype} or more finely, sums in FP32, the "
        f"output rounded once: |y - exact| <= {u} (sum_k |x_k w_k| + |y|), but for FP32 sums and "
        f"subnormal numbers"
    )
