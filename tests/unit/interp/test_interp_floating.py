"""Floating-point instructions, rounded once (PTX ISA, "Floating-Point Instructions", "Half
Precision Floating-Point Instructions"), against exact fractions."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from exact_rounding import BF16, F16, F32, Format, samples
from lanes_kernel import Array, apply, one

from ptxgen.problem import Dtype
from ptxgen.ptx import packed16
from ptxgen.ptx.instruction import Instruction

COUNT = 1024
FORMATS: dict[str, Format] = {"f16": F16, "bf16": BF16, "f32": F32}
NAN = {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFFFFFF}
EXACT: dict[str, Callable[..., Fraction]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "fma": lambda a, b, c: a * b + c,
}


def is_negative_zero(opcode: str, form: Format, bits: tuple[int, ...]) -> bool:
    """Whether an exact zero result is -0: products by sign, sums only of two equal -0."""
    top = form.exponent + form.fraction
    signs = [b >> top & 1 for b in bits]
    product = signs[0] ^ signs[1]
    if opcode == "mul":
        return bool(product)
    left, right = (product, signs[2]) if opcode == "fma" else (signs[0], signs[1])
    return bool(left and (right if opcode != "sub" else not right))


def sum_of_zeros(opcode: str, form: Format, bits: tuple[int, ...]) -> bool:
    values = [form.value(b) for b in bits]
    if opcode == "mul":
        return True
    return values[0] * values[1] == 0 if opcode == "fma" else values[0] == 0 == values[1]


def expected(opcode: str, form: Format, operands: tuple[Array, ...]) -> list[int]:
    results = []
    for row in zip(*operands, strict=True):
        bits = tuple(int(b) for b in row)
        value = EXACT[opcode](*(form.value(b) for b in bits))
        zero = sum_of_zeros(opcode, form, bits) and is_negative_zero(opcode, form, bits)
        results.append(form.round(value, negative_zero=zero))
    return results


def packed(low: Array, high: Array) -> Array:
    return low.astype(np.uint32) | high.astype(np.uint32) << np.uint32(16)


@pytest.mark.parametrize("opcode", EXACT)
@pytest.mark.parametrize("kind", ["f16x2", "bf16x2"])
def test_packed_halves_round_once(opcode: str, kind: str) -> None:
    form = FORMATS[kind.removesuffix("x2")]
    count = 3 if opcode == "fma" else 2
    low = tuple(samples(form, COUNT, seed) for seed in range(count))
    high = tuple(samples(form, COUNT, seed + 10) for seed in range(count))
    words = [packed(a, b) for a, b in zip(low, high, strict=True)]
    names = ", ".join(f"%i{index}" for index in range(count))
    result = one(f"{opcode}.rn.{kind} %o0, {names};", *words)
    assert (result & np.uint32(0xFFFF)).tolist() == expected(opcode, form, low)
    assert (result >> np.uint32(16)).tolist() == expected(opcode, form, high)


BY_HALF: dict[str, Callable[[Dtype, str], Instruction]] = {
    "fma": packed16.fma2_by_half,
    "sub": packed16.sub2_by_half,
    "mul": packed16.mul2_by_half,
}


@pytest.mark.parametrize("half", ["low", "high"])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("opcode", BY_HALF)
def test_one_half_of_the_later_operands_serves_both(opcode: str, dtype: Dtype, half: str) -> None:
    form = FORMATS["f16" if dtype == "fp16" else "bf16"]
    count = 3 if opcode == "fma" else 2
    low, high = (tuple(samples(form, COUNT, seed + n) for n in range(count)) for seed in (40, 50))
    instruction = BY_HALF[opcode](dtype, half)
    assert f"{opcode}2_by_{half}(" in instruction.signature
    body = instruction.ptx.replace("%0", "%o0")
    for number in range(count):
        body = body.replace(f"%{number + 1}", f"%i{number}")
    result = one(body, *(packed(a, b) for a, b in zip(low, high, strict=True)))
    twice = (low if half == "low" else high)[1:]
    assert (result & np.uint32(0xFFFF)).tolist() == expected(opcode, form, (low[0], *twice))
    assert (result >> np.uint32(16)).tolist() == expected(opcode, form, (high[0], *twice))


@pytest.mark.parametrize("opcode", EXACT)
@pytest.mark.parametrize("kind", ["f16", "bf16", "f32"])
def test_scalars_round_once(opcode: str, kind: str) -> None:
    form = FORMATS[kind]
    operands = tuple(samples(form, COUNT, seed + 20) for seed in range(3 if opcode == "fma" else 2))
    names = ", ".join(f"%i{index}" for index in range(len(operands)))
    result = one(f"{opcode}.rn.{kind} %o0, {names};", *operands, output=operands[0].dtype)
    assert result.tolist() == expected(opcode, form, operands)


def test_fma_of_halves_does_not_round_twice() -> None:
    """(1 + 2^-10) * 1 + 2^-24: FP32 would round it once more on the way to a tie."""
    one_up = Fraction(1025, 1024)
    a, b, c = F16.round(one_up), F16.round(Fraction(1, 2048) + 1), F16.round(Fraction(1, 2**24))
    value = one_up * F16.value(b) + F16.value(c)
    words = [np.full(32, bits * 0x10001, np.uint32) for bits in (a, b, c)]
    assert one("fma.rn.f16x2 %o0, %i0, %i1, %i2;", *words)[0] & 0xFFFF == F16.round(value)


@pytest.mark.parametrize(
    ("kind", "opcode", "values"),
    [
        ("f32", "add", (np.inf, -np.inf)),
        ("f32", "mul", (np.inf, 0.0)),
        ("f32", "sub", (np.nan, 1.0)),
    ],
)
def test_invalid_operations_give_the_canonical_nan(
    kind: str, opcode: str, values: tuple[float, float]
) -> None:
    a, b = (np.full(32, value, np.float32).view(np.uint32) for value in values)
    assert set(one(f"{opcode}.{kind} %o0, %i0, %i1;", a, b).tolist()) == {NAN[kind]}


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_half_infinities_and_nans(kind: str) -> None:
    infinity, quiet = FORMATS[kind].infinity, NAN[kind]
    a = np.array([infinity, infinity, infinity | 0x8000, 0x7FC1] * 8, np.uint16)
    b = np.array([infinity, infinity | 0x8000, 0x3C00, 0x3C00] * 8, np.uint16)
    result = one(f"add.rn.{kind} %o0, %i0, %i1;", a, b, output=np.uint16)
    last = 0x7FFF  # 0x7FC1 is a NaN in both formats
    assert result.tolist() == [infinity, quiet, infinity | 0x8000, last] * 8


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_negation_and_absolute_value_flip_bits_of_every_half(kind: str) -> None:
    every = np.arange(65536, dtype=np.uint16)
    negated, absolute = apply(
        f"neg.{kind} %o0, %i0; abs.{kind} %o1, %i0;", every, outputs=(np.uint16, np.uint16)
    )
    assert np.array_equal(negated, every ^ 0x8000)
    assert np.array_equal(absolute, every & 0x7FFF)


@pytest.mark.parametrize("kind", ["f16", "bf16", "f32"])
def test_min_and_max_order_zeros_and_drop_one_nan(kind: str) -> None:
    form, nan = FORMATS[kind], NAN[kind]
    sign = 1 << (form.exponent + form.fraction)
    plus, minus = form.round(Fraction(2)), form.round(Fraction(-3))
    dtype = np.uint32 if kind == "f32" else np.uint16
    rows = [(0, sign, sign, 0), (sign, 0, sign, 0), (plus, minus, minus, plus)]
    rows += [(nan, plus, plus, plus), (minus, nan, minus, minus), (nan, nan, nan, nan)]
    rows += [(plus, plus, plus, plus), (form.infinity, minus, minus, form.infinity)]
    a, b, low, high = (np.array(column * 4, dtype=dtype) for column in zip(*rows, strict=True))
    body = f"min.{kind} %o0, %i0, %i1; max.{kind} %o1, %i0, %i1;"
    smaller, larger = apply(body, a, b, outputs=(dtype, dtype))
    assert smaller.tolist() == low.tolist()
    assert larger.tolist() == high.tolist()
