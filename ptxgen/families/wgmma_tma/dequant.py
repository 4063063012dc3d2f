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

from ptxgen.arch import ArchSpec
from ptxgen.problem import SYMMETRIC_ZERO, Problem
from ptxgen.ptx import global_memory, packed16
from ptxgen.ptx.instruction import Instruction
from ptxgen.weights.layout import packed_layout

ONE_FMA = """\
// Eight nibbles of `word` to an A fragment of wgmma: (q - zero) * scale, rounded once. A nibble alone is
// a subnormal number; the scale of its feature, g or g + 8, undoes that, and the shift is -zero * scale.
__device__ __forceinline__ void dequantize(u32 (&a)[4], u32 word, u32 scales, u32 shifts) {
  a[0] = fma2_by_low(word & 0x000f000f, scales, shifts);
  a[1] = fma2_by_high(word & 0x00f000f0, scales, shifts);
  word >>= 8;
  a[2] = fma2_by_low(word & 0x000f000f, scales, shifts);
  a[3] = fma2_by_high(word & 0x00f000f0, scales, shifts);
}"""

ZERO_FIRST = """\
// Eight nibbles of `word` to an A fragment of wgmma: (q - zero) * scale, rounded once. A nibble alone is
// a subnormal number; the scale of its feature, g or g + 8, undoes that. The difference is exact.
__device__ __forceinline__ void dequantize(u32 (&a)[4], u32 word, u32 scales, u32 zeros) {
  a[0] = mul2_by_low(sub2_by_low(word & 0x000f000f, zeros), scales);
  a[1] = mul2_by_high(sub2_by_high(word & 0x00f000f0, zeros), scales);
  word >>= 8;
  a[2] = mul2_by_low(sub2_by_low(word & 0x000f000f, zeros), scales);
  a[3] = mul2_by_high(sub2_by_high(word & 0x00f000f0, zeros), scales);
}"""

WIDE = """\
// The same for strips of a wide spread of scales, whatever these are: a nibble q is put into the mantissa
// of a float whose ulp is 1 (0x6400 is 1024; 0x5400 is 64, with an ulp of 1/16, so q << 4 adds q), from
// which the float of the zero point is subtracted. The difference is exact.
__device__ __forceinline__ void dequantize_wide(u32 (&a)[4], u32 word, u32 scales, u32 zeros) {
  a[0] = mul2_by_low(sub2_by_low(pick_low(word), zeros), scales);
  a[1] = mul2_by_high(sub2_by_high(pick_high(word), zeros), scales);
  word >>= 8;
  a[2] = mul2_by_low(sub2_by_low(pick_low(word), zeros), scales);
  a[3] = mul2_by_high(sub2_by_high(pick_high(word), zeros), scales);
}"""

WIDE_LOW, WIDE_HIGH = 0x6400, 0x5400
"""Floats that a feature's nibbles are added to in WIDE: of feature g, and of feature g + 8."""

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


def device_function(problem: Problem) -> str:
    """Device function dequantize(a, word, scales, shifts), or with zeros as its last argument.

    Where strips may be wide, dequantize_wide(a, word, scales, zeros) too.
    """
    usual = ZERO_FIRST if zero_first(problem) else ONE_FMA
    return f"{usual}\n\n{WIDE}" if has_factors(problem) else usual


def instructions(problem: Problem, arch: ArchSpec) -> list[Instruction]:
    """The PTX that the texts of this module call."""
    used = []
    for half in ("low", "high"):
        if zero_first(problem) or has_factors(problem):
            used.append(packed16.sub2_by_half(problem.dtype, half))
            used.append(packed16.mul2_by_half(problem.dtype, half))
        if not zero_first(problem):
            used.append(packed16.fma2_by_half(problem.dtype, half))
    if not problem.whole_k or problem.zero == "int":
        used.append(packed16.mul2(problem.dtype, arch))
    if has_factors(problem):
        used += [
            global_memory.ld_global_nc_u32(),
            packed16.and_or_const(0x000F000F, WIDE_LOW * 0x00010001, "pick_low"),
            packed16.and_or_const(0x00F000F0, WIDE_HIGH * 0x00010001, "pick_high"),
        ]
    return used


def group_scales(problem: Problem, scale: str) -> str:
    """The scales of dequantize, from those of features g and g + 8 at hand."""
    return f"mul2({scale}, {_scale_powers(problem)})"


def group_offsets(problem: Problem, scale: str, zero: str) -> str:
    """Its shifts from the scales at hand, or its zeros from the byte of two zero points."""
    if zero_first(problem):
        return f"{zero} & 15 | ({zero} & 240) << 16"  # each where its feature's nibbles are
    return f"mul2({scale}, {_minus_eight(problem)})"


def wide_scales(problem: Problem, scale: str, factor: str) -> str:
    """The scales of dequantize_wide, from those at hand and the row factors: scale * f."""
    return f"mul2({scale}, mul2({factor} & 0x7fff7fff, {_pair(problem, -FACTOR_EXPONENT, -FACTOR_EXPONENT)}))"


def wide_zeros(problem: Problem, zero: str) -> str:
    """Its zeros, from the byte of two zero points or for the symmetric one."""
    if problem.zero == "int":
        return f"{zero} & 15 | ({zero} & 240) << 16 | {WIDE_HIGH << 16 | WIDE_LOW:#010x}"
    high = WIDE_HIGH + (SYMMETRIC_ZERO << NIBBLE_STEP)
    return f"{high << 16 | WIDE_LOW + SYMMETRIC_ZERO:#010x}"


def whole_k_scales(problem: Problem) -> str:
    """The scales of dequantize where the group is the whole K: powers of two alone."""
    return _scale_powers(problem)


def whole_k_shifts(problem: Problem, zero: str) -> str:
    """Its shifts there, exact."""
    if problem.zero == "sym":
        return _minus_eight(problem)
    exponent = units(problem).sums - units(problem).nibble
    return f"mul2({zero} & 15 | ({zero} & 240) << 12, {_pair(problem, exponent, exponent, -1)})"


def _nibble(problem: Problem) -> int:
    return -24 if problem.dtype == "fp16" else -133


def _scale_powers(problem: Problem) -> str:
    found = units(problem)
    exponent = found.sums - found.nibble - found.scale
    return _pair(problem, exponent, exponent - NIBBLE_STEP)


def _minus_eight(problem: Problem) -> str:
    found = units(problem)
    exponent = found.sums - found.scale + SYMMETRIC_ZERO.bit_length() - 1
    return _pair(problem, exponent, exponent, -1)


def _pair(problem: Problem, low: int, high: int, sign: int = 1) -> str:
    """Two powers of two as one register's constant."""
    return f"{_power(problem, high, sign) << 16 | _power(problem, low, sign):#010x}"


def _power(problem: Problem, exponent: int, sign: int) -> int:
    """Bits of sign * 2^exponent, a normal number of the dtype."""
    bias, mantissa_bits = (15, 10) if problem.dtype == "fp16" else (127, 7)
    return (0x8000 if sign < 0 else 0) | (exponent + bias) << mantissa_bits
