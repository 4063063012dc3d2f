"""wgmma_tma's emitted dequantization: each weight is (q - zero) * scale, rounded once."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from tma_dequant_text import HALVES, EmittedDequantize, Floats, Words

from ptxgen.problem import Dtype, Problem, Zero
from ptxgen.weights.pack import row_factors

KINDS = [*itertools.product(("fp16", "bf16"), ("sym", "int"))]
MANTISSAS = {"fp16": (0, 1, 0x155, 0x2AA, 0x3FF), "bf16": (0, 1, 0x2A, 0x55, 0x7F)}
EXPONENTS = {"fp16": range(-14, 12), "bf16": range(-62, 59)}
"""All of fp16 whose products by 15 are finite; what ptxgen.families.wgmma_tma.dequant promises."""


def sane_scales(dtype: str) -> Words:
    """Bits of scales of both signs, zero, and the subnormal ones of fp16 among them."""
    half = HALVES[dtype]
    fields = [exponent + half.highest for exponent in EXPONENTS[dtype]]
    sizes = [f << half.precision - 1 | m for f in fields for m in MANTISSAS[dtype]]
    if dtype == "fp16":
        sizes += [0, 1, 2, 3, 0x155, 0x2AA, 0x3FF]
    return np.array([sign | size for sign in (0, 0x8000) for size in sizes], np.uint32)


def factors_of(largest: Words, dtype: str) -> Words:
    """Row factors of rows whose largest scales these are."""
    if dtype == "bf16":
        return np.zeros_like(largest)
    scales = torch.from_numpy(largest.astype(np.uint16).view(np.int16)).view(torch.float16)
    return row_factors(scales.view(-1, 1)).view(torch.int16).numpy().astype(np.uint32)


class Sweep:
    """Every nibble in every place x every zero point x scales, all of a word's rows different.

    Attributes:
        word, scales, zeros, factors: packed, one entry a combination.
        expected: exact (q - zero) * scale of each nibble of the word, in its order.
    """

    def __init__(self, dtype: str, zero: str, scales: Words, largest: Words) -> None:
        starts, zeros = np.arange(16, dtype=np.uint32), np.arange(16, dtype=np.uint32)
        if zero == "sym":
            zeros = np.array([8], np.uint32)
        start, zero_0, index = (
            axis.ravel() for axis in np.meshgrid(starts, zeros, np.arange(len(scales)))
        )
        zero_8 = (zero_0 * 7 + 3) % 16 if zero == "int" else zero_0
        partner = (index + len(scales) // 3) % len(scales)
        nibbles = [(start + 5 * place) % 16 for place in range(8)]
        self.word = sum((q << np.uint32(4 * i) for i, q in enumerate(nibbles)), np.uint32(0))
        self.zeros = zero_0 | zero_8 << np.uint32(4)
        self.scales = pair(scales[index], scales[partner])
        factors = factors_of(largest, dtype)
        self.factors = pair(factors[index], factors[partner])
        of_row = [HALVES[dtype].values(scales[where]) for where in (index, partner)]
        zero_of_row = [zero_0.astype(np.float64), zero_8.astype(np.float64)]
        self.expected = [
            (q - zero_of_row[place % 2]) * of_row[place % 2] for place, q in enumerate(nibbles)
        ]
        for q in nibbles:
            assert set(q) == set(range(16))


def pair(low: Words, high: Words) -> Words:
    return low | high << np.uint32(16)


def kernel_values(problem: Problem, sweep: Sweep) -> tuple[list[Floats], list[Floats]]:
    """Each nibble's value in the kernel's unit, and the inverse of that unit."""
    emitted = EmittedDequantize(problem)
    found = emitted.weights(sweep.word, sweep.scales, sweep.zeros, sweep.factors)
    v0, v1, v2, v3 = emitted.inverse_units(sweep.scales, sweep.factors)
    assert np.array_equal(v0, v1)
    assert np.array_equal(v2, v3)
    return found, [v2 if place % 2 else v0 for place in range(8)]


@pytest.mark.parametrize(("dtype", "zero"), KINDS)
def test_every_weight_of_a_group_is_rounded_once(dtype: Dtype, zero: Zero) -> None:
    half, scales = HALVES[dtype], sane_scales(dtype)
    sweep = Sweep(dtype, zero, scales, scales)
    found, inverses = kernel_values(Problem(64, 256, 128, dtype, zero), sweep)
    for value, inverse, exact in zip(found, inverses, sweep.expected, strict=True):
        normal = np.abs(exact / inverse) >= 2.0**half.lowest
        assert np.array_equal((value * inverse)[normal], half.round(exact)[normal])
        assert np.all(np.abs(value - exact / inverse)[~normal] <= half.smallest / 2)


@pytest.mark.parametrize(("dtype", "zero"), KINDS)
def test_every_weight_of_a_whole_k_group_is_exact(dtype: Dtype, zero: Zero) -> None:
    """The dtype holds q - zero, and FP32 the scale: a product of one activation is not rounded."""
    scales = sane_scales(dtype)
    sweep = Sweep(dtype, zero, scales, scales)
    found, inverses = kernel_values(Problem(64, 256, 256, dtype, zero), sweep)
    for value, inverse, exact in zip(found, inverses, sweep.expected, strict=True):
        assert np.array_equal(value * inverse, exact)


@pytest.mark.parametrize("zero", ["sym", "int"])
def test_scales_far_below_their_rows_largest_lose_little(zero: Zero) -> None:
    """Every pair of exponents. Results, and shifts, are rounded to 2^-24 where the largest scale
    is 2^-9 and more: to 2^-15 of it."""
    exponents = np.arange(2, 28, dtype=np.uint32)
    largest, smaller = (axis.ravel() for axis in np.meshgrid(exponents, exponents))
    largest, smaller = largest[smaller < largest] << 10, smaller[smaller < largest] << 10 | 0x2AA
    half, sweep = HALVES["fp16"], Sweep("fp16", zero, smaller, largest)
    found, inverses = kernel_values(Problem(64, 256, 128, "fp16", zero), sweep)
    for value, inverse, exact in zip(found, inverses, sweep.expected, strict=True):
        normal = np.abs(exact / inverse) >= 2.0**half.lowest
        assert np.array_equal((value * inverse)[normal], half.round(exact)[normal])
        off = np.abs(value - exact / inverse)[~normal]
        assert np.all(off <= half.smallest * (1 + 2.0**-9))
        assert np.any(off > 0)


def test_the_inverse_of_every_row_factor() -> None:
    """2^12 * f of f = 2^-24 to 2^3, in either half of a register."""
    emitted = EmittedDequantize(Problem(64, 256))
    exponents = np.arange(-24, 4)
    bits = ((exponents + 12 + 15) << 10).astype(np.uint32)
    nothing = np.zeros_like(bits)
    v0, v1, v2, v3 = emitted.inverse_units(nothing, pair(bits, bits[::-1]))
    assert np.array_equal(v0, 2.0**-exponents)
    assert np.array_equal(v2, 2.0 ** -exponents[::-1])
    assert np.array_equal(v0, v1)
    assert np.array_equal(v2, v3)
