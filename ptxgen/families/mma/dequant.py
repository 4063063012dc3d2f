"""CUDA text that turns one packed word into the four registers of an A fragment, exactly.

A nibble q is put into the mantissa of a float whose ulp is 1, so that the float is magic + q;
magic + zero is then subtracted, which is exact, before anything is scaled. fp16 takes the odd
nibbles in place: 0x5400 is 64 with an ulp of 1/16, so q << 4 adds q. bf16 has too few mantissa bits
for that and shifts instead.

A nibble with nothing around it is an FP16 subnormal number already, exact and at full speed in mma:
with dequant = "subnormal" only the mask is left, and the sums of a group take in the power of two
and the zero point.
"""

from __future__ import annotations

from typing import Protocol

from ptxgen.arch import ArchSpec
from ptxgen.problem import Problem
from ptxgen.ptx import packed16
from ptxgen.ptx.instruction import Instruction

FP16_LOW, FP16_HIGH, BF16_MAGIC = 0x64006400, 0x54005400, 0x43004300


SUBNORMAL_FUNCTION = """\
// Eight nibbles of `word` to the A fragment of mma.m16n8k16, as FP16 subnormals, bit-exact: q * 2^-24
// of feature g, and q * 2^-20 of feature g + 8.
__device__ __forceinline__ void dequantize(u32 (&a)[4], u32 word) {
  a[0] = word & 0x000f000f;
  a[1] = word & 0x00f000f0;
  word >>= 8;
  a[2] = word & 0x000f000f;
  a[3] = word & 0x00f000f0;
}"""


class _Config(Protocol):
    @property
    def scale_on(self) -> str: ...
    @property
    def dequant(self) -> str: ...


class Dequantized(Protocol):
    """What these texts ask of a kernel's shape."""

    @property
    def problem(self) -> Problem: ...
    @property
    def config(self) -> _Config: ...


def instructions(shape: Dequantized, arch: ArchSpec) -> list[Instruction]:
    """The PTX that the texts of this module call."""
    dtype = shape.problem.dtype
    if shape.config.dequant == "subnormal":
        return []
    if dtype == "fp16":
        picks = [
            packed16.and_or_const(0x000F000F, FP16_LOW, "pick_low"),
            packed16.and_or_const(0x00F000F0, FP16_HIGH, "pick_high"),
        ]
    else:
        picks = [packed16.and_or_const(0x000F000F, BF16_MAGIC, "pick_low")]
    picks.append(packed16.sub2(dtype, arch))
    if shape.config.scale_on == "weights":
        picks += [
            packed16.mul2(dtype, arch),
            packed16.permute(0x1010, "low_half_twice"),
            packed16.permute(0x3232, "high_half_twice"),
        ]
    return picks


def device_function(shape: Dequantized) -> str:
    """Device function dequantize(a, word, zero_0, zero_8): features g and g + 8 have their own zeros."""
    if shape.config.dequant == "subnormal":
        return SUBNORMAL_FUNCTION
    if shape.problem.dtype == "fp16":
        body = """\
  a[0] = sub2(pick_low(word), zero_0);
  a[1] = sub2(pick_high(word), zero_8);
  word >>= 8;
  a[2] = sub2(pick_low(word), zero_0);
  a[3] = sub2(pick_high(word), zero_8);"""
    else:
        body = """\
  a[0] = sub2(pick_low(word), zero_0);
  a[1] = sub2(pick_low(word >> 4), zero_8);
  a[2] = sub2(pick_low(word >> 8), zero_0);
  a[3] = sub2(pick_low(word >> 12), zero_8);"""
    return f"""\
// Eight nibbles of `word` to the A fragment of mma.m16n8k16, as q - zero, bit-exact.
// zero_0 and zero_8 hold magic + zero point of features g and g + 8, twice each.
__device__ __forceinline__ void dequantize(u32 (&a)[4], u32 word, u32 zero_0, u32 zero_8) {{
{body}
}}"""


def zero_words(shape: Dequantized, byte: str) -> tuple[str, str]:
    """Expressions for zero_0 and zero_8, from a byte of two zero points or for the symmetric 8."""
    fp16 = shape.problem.dtype == "fp16"
    if shape.problem.zero == "sym":
        low, high = (FP16_LOW, FP16_HIGH) if fp16 else (BF16_MAGIC, BF16_MAGIC)
        high_step = 0x00100010 if fp16 else 0x00010001
        return f"{low + 8 * 0x00010001:#010x}", f"{high + 8 * high_step:#010x}"
    twice = f"{byte} * 0x00010001"  # where the nibbles of a word's first weights are
    return f"pick_low({twice})", f"pick_high({twice})" if fp16 else f"pick_low({twice} >> 4)"
