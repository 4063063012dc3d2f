"""Rounding to nearest even out of exact fractions: the reference for floating-point tests."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np


@dataclass(frozen=True)
class Format:
    """A binary format: bits of exponent and of fraction."""

    exponent: int
    fraction: int

    @property
    def bias(self) -> int:
        return 2 ** (self.exponent - 1) - 1

    @property
    def infinity(self) -> int:
        return (2**self.exponent - 1) << self.fraction

    def value(self, bits: int) -> Fraction:
        """Of finite bits."""
        sign = -1 if bits >> (self.exponent + self.fraction) else 1
        exponent = bits >> self.fraction & (2**self.exponent - 1)
        fraction = bits & (2**self.fraction - 1)
        if exponent == 0:
            return sign * fraction * Fraction(2) ** (1 - self.bias - self.fraction)
        whole = fraction | 1 << self.fraction
        return sign * whole * Fraction(2) ** (exponent - self.bias - self.fraction)

    def finite(self, bits: int) -> bool:
        return bits >> self.fraction & (2**self.exponent - 1) != 2**self.exponent - 1

    def round(self, value: Fraction, negative_zero: bool = False) -> int:
        """Bits of the nearest number, ties to even, infinity beyond the range."""
        sign = 1 if value < 0 or (value == 0 and negative_zero) else 0
        top = sign << (self.exponent + self.fraction)
        size = abs(value)
        if size == 0:
            return top
        # Bits of non-negative numbers are in order: count units of the last place of the binade.
        power = max(_log2(size), 1 - self.bias)
        units = round(size / Fraction(2) ** (power - self.fraction))  # round() is ties to even
        bits = (power + self.bias - 1 << self.fraction) + units
        return top | min(bits, self.infinity)


def _log2(value: Fraction) -> int:
    power = value.numerator.bit_length() - value.denominator.bit_length()
    while Fraction(2) ** power > value:
        power -= 1
    while Fraction(2) ** (power + 1) <= value:
        power += 1
    return power


F16, BF16, F32 = Format(5, 10), Format(8, 7), Format(8, 23)


def samples(form: Format, count: int, seed: int) -> np.ndarray:
    """Finite numbers whose exponents cluster, so that sums round in interesting places."""
    rng = np.random.default_rng(seed)
    near = rng.normal(form.bias, form.fraction / 2, count).astype(np.int64)
    exponent = np.clip(near, 0, 2**form.exponent - 2)
    wild = rng.integers(0, 2**form.exponent - 1, count)
    exponent = np.where(rng.random(count) < 0.3, wild, exponent)
    fraction = rng.integers(0, 2**form.fraction, count)
    fraction = np.where(rng.random(count) < 0.3, fraction & ~0x3F, fraction)
    sign = rng.integers(0, 2, count)
    bits = (sign << form.exponent | exponent) << form.fraction | fraction
    return bits.astype(np.uint32 if form.fraction == 23 else np.uint16)
