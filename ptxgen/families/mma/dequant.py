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
