"""Correct rounding: FP64 -> FP32, FP16 and BF16 once, and sums in FP64 whose error is not lost."""

from __future__ import annotations

import numpy as np

from ptxgen.interp.registers import Lanes

F32_NAN = np.uint32(0x7FFFFFFF)
HALF_NAN = np.uint16(0x7FFF)
"""The canonical NaNs that the hardware returns (PTX ISA, "Floating-Point Instructions")."""


def odd_sum(a: Lanes, b: Lanes) -> Lanes:
    """a + b in FP64 rounded to odd, so that a later rounding to fewer bits is the only one.

    Where the FP64 sum is inexact and its last bit is even, the true value lies beyond it on the
    side of the error (Knuth's TwoSum); its neighbour there is odd (Boldo and Melquiond, 2008).
    """
    total = a + b
    shifted = total - a
    error = (a - (total - shifted)) + (b - shifted)
    lost = (error != 0) & np.isfinite(total) & ((total.view(np.uint64) & np.uint64(1)) == 0)
    if lost.any():
        away = np.nextafter(total, np.where(error > 0, np.inf, -np.inf))
        total = np.where(lost, away, total)
    return total


def to_f32(wide: Lanes) -> Lanes:
    """FP64 -> bits of FP32, to nearest even; NaN becomes canonical."""
    return canonical_f32(wide.astype(np.float32))


def canonical_f32(value: Lanes) -> Lanes:
    """Bits of FP32 values with every NaN canonical."""
    bits: Lanes = value.view(np.uint32)
    # A sum of squares is NaN only where a value is: cheaper than looking at each.
    if np.isnan(value @ value):
        bits = np.where(np.isnan(value), F32_NAN, bits)
    return bits


def to_f16(wide: Lanes) -> Lanes:
    """FP64 -> bits of FP16, to nearest even in one rounding; NaN becomes canonical."""
    half = wide.astype(np.float16)
    return np.where(np.isnan(wide), HALF_NAN, half.view(np.uint16))


def to_bf16(wide: Lanes) -> Lanes:
    """FP64 -> bits of BF16, to nearest even in one rounding; NaN becomes canonical."""
    single = wide.astype(np.float32)
    bits = single.view(np.uint32)
    back = single.astype(np.float64)
    inexact = (back != wide) & ((bits & np.uint32(1)) == 0) & np.isfinite(single)
    if inexact.any():  # round to odd first, as in odd_sum
        towards = np.where(wide > back, np.float32(np.inf), np.float32(-np.inf))
        bits = np.where(inexact, np.nextafter(single, towards).view(np.uint32), bits)
    return np.where(np.isnan(wide), HALF_NAN, f32_bits_to_bf16(bits))


def f32_bits_to_bf16(bits: Lanes) -> Lanes:
    """Bits of FP32 -> bits of BF16, to nearest even; not for NaN."""
    low = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    result: Lanes = ((bits + low) >> np.uint32(16)).astype(np.uint16)
    return result


def from_f16(bits: Lanes) -> Lanes:
    """Bits of FP16 -> FP64, exact."""
    return bits.view(np.float16).astype(np.float64)


def from_bf16(bits: Lanes) -> Lanes:
    """Bits of BF16 -> FP64, exact."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
