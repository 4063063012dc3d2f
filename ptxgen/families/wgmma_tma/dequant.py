"""CUDA text that turns one packed word into the four registers of an A fragment, scales included.

A nibble with nothing around it is a float already, a subnormal one and exact: in fp16 q * 2^-24 in the
lowest four bits and q * 2^-20 in the next four. bf16 has 2^-133 and 2^-129; its bit 7 belongs to the
exponent, whose first step is as wide as the subnormal ones. So one fma makes two weights of a symmetric
layer: times scale * 2^24, minus 8 * scale, rounded once; 9 instructions for 8 weights. zero * scale is no
exact float for other zero points, hence a subtraction and a product there: 13 instructions.

No fp16 holds scale * 2^24 for a scale of 2^-8 or more, so the scales of a row are multiplied by a power
of two first: by the row factor of the packed weight (ptxgen.weights.layout), by 2^-64 in bf16, and by
2^-9 where the group is the whole K and scales wait for the epilogue. Sums are in that unit until then.

A row factor leaves six powers of two between the largest scale and the first product that would be a
subnormal number and lose bits. Strips with a row that needs more are marked as wide in the packed weight,
and take a second way, which needs no 2^24 and so no small scales: the nibble in the mantissa of a float
whose ulp is 1, minus the same float of the zero point, which is exact, times the scale; 13 instructions.
"""

from __future__ import annotations

from dataclasses import dataclass

from ptxgen.problem import SYMMETRIC_ZERO, Problem
from ptxgen.weights.layout import packed_layout

NIBBLE_STEP = 4
"""Powers of two between the low nibble, of feature g, and the next one, of feature g + 8."""

FACTOR_EXPONENT = 12
"""Of what a row factor is stored with, so that it is a normal number."""

WHOLE_K_EXPONENT = -9
"""Of the unit of the sums there: anything that leaves nibbles and their zero points normal numbers."""

BF16_EXPONENT = -64
"""The same in bf16: scales of 2^-62 to 2^58 stay normal numbers, as factors and as products."""


@dataclass(frozen=True, slots=True)
class Units:
    """Powers of two of a problem's dequantization, as exponents.

    Attributes:
        nibble: a low nibble's 1, as a float of the dtype.
        scale: what the scales at hand have been multiplied by already.
        sums: the unit of the sums, beside a row's own factor.
    """

    nibble: int
    scale: int
    sums: int


def units(problem: Problem) -> Units:
    """The powers of two that a problem's kernels use."""
    if problem.whole_k:
        return Units(_nibble(problem), scale=0, sums=WHOLE_K_EXPONENT)
    if has_factors(problem):
        return Units(_nibble(problem), scale=FACTOR_EXPONENT, sums=0)
    return Units(_nibble(problem), scale=0, sums=BF16_EXPONENT)


def has_factors(problem: Problem) -> bool:
    """Sums are in units of the packed weight's row factors."""
    return packed_layout(problem).factor_bytes > 0


def zero_first(problem: Problem) -> bool:
    """Zero points are subtracted by an instruction of their own."""
    return problem.zero == "int" and not problem.whole_k


@dataclass(frozen=True, slots=True)
class Powers:
    """Constants of a problem's dequantization, as C++ writes them; pairs are for features g and g + 8.

    Attributes:
        scales: pair that makes of the scales at hand those of dequantize().
        minus_eight: pair that makes of them its shifts, of the symmetric zero point.
        minus_one: pair that makes its shifts of zero points, where the group is the whole K.
        scale_exponent, eight_exponent, one_exponent: of two, in the low halves of these pairs.
        unit: of the sums of all rows, such as 2^-64.
        inverse_unit: what takes a sum out of the unit of all rows.
    """

    scales: str
    minus_eight: str
    minus_one: str
    scale_exponent: int
    eight_exponent: int
    one_exponent: int
    unit: str
    inverse_unit: str


def powers(problem: Problem) -> Powers:
    """The constants of a problem."""
    found = units(problem)
    scale = found.sums - found.nibble - found.scale
    eight = found.sums - found.scale + SYMMETRIC_ZERO.bit_length() - 1
    one = found.sums - found.nibble
    return Powers(
        scales=_pair(problem, scale, scale - NIBBLE_STEP),
        minus_eight=_pair(problem, eight, eight, -1),
        minus_one=_pair(problem, one, one, -1) if problem.whole_k else "",
        scale_exponent=scale,
        eight_exponent=eight,
        one_exponent=one,
        unit=f"2^{found.sums}",
        inverse_unit=f"0x1p{-found.sums}f",
    )


def _nibble(problem: Problem) -> int:
    return -24 if problem.dtype == "fp16" else -133


def _pair(problem: Problem, low: int, high: int, sign: int = 1) -> str:
    """Two powers of two as one register's constant."""
    return f"{_power(problem, high, sign) << 16 | _power(problem, low, sign):#010x}"


def _power(problem: Problem, exponent: int, sign: int) -> int:
    """Bits of sign * 2^exponent, a normal number of the dtype."""
    bias, mantissa_bits = (15, 10) if problem.dtype == "fp16" else (127, 7)
    return (0x8000 if sign < 0 else 0) | (exponent + bias) << mantissa_bits
