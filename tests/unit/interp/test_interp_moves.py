"""mov, cvt, cvta, selp and setp (PTX ISA, "Data Movement and Conversion Instructions",
"Comparison and Selection Instructions")."""

from __future__ import annotations

import operator
from collections.abc import Callable

import numpy as np
import pytest
import torch
from lanes_kernel import apply, mixed, one, random_longs, random_words

A, B = random_words(256), mixed(random_words(256))
EVERY_HALF = np.arange(65536, dtype=np.uint16)


def floats(seed: int = 0) -> np.ndarray:
    """FP32 bits of all kinds: random ones, halfway cases of both 16-bit formats, NaN and inf."""
    rng = np.random.default_rng(seed)
    random = rng.integers(0, 2**32, 8192, dtype=np.uint32)
    bf16_ties = (random & np.uint32(0xFFFF0000)) | np.uint32(0x8000)
    size = (random % np.uint32(32)) + np.uint32(100) << np.uint32(23)
    f16_ties = (random & np.uint32(0x807FE000)) | size | np.uint32(0x1000)
    corners = [np.nan, np.inf, -np.inf, 0.0, -0.0, 65504.0, 65519.99, 65520.0, 1e-8, 2.0**-25, 3e38]
    special = np.resize(np.array(corners, dtype=np.float32).view(np.uint32), 1024)
    near = np.concatenate([bf16_ties, f16_ties])
    return np.concatenate([random, near, near + np.uint32(1), near - np.uint32(1), special])


def test_every_fp16_to_fp32() -> None:
    result = one("cvt.f32.f16 %o0, %i0;", EVERY_HALF)
    wide = torch.from_numpy(EVERY_HALF.view(np.float16)).float().numpy()
    finite = ~np.isnan(wide)
    assert np.array_equal(result[finite], wide.view(np.uint32)[finite])
    assert set(result[~finite].tolist()) == {0x7FFFFFFF}


def test_every_bf16_to_fp32() -> None:
    """The bits move up, of a NaN too: so did an H200 (reports/results/nvidia-h200/opcodes.json)."""
    result = one("cvt.f32.bf16 %o0, %i0;", EVERY_HALF)
    assert np.array_equal(result, EVERY_HALF.astype(np.uint32) << np.uint32(16))


@pytest.mark.parametrize(("kind", "dtype"), [("f16", torch.float16), ("bf16", torch.bfloat16)])
def test_fp32_to_halves_to_nearest_even(kind: str, dtype: torch.dtype) -> None:
    bits = floats()
    values = torch.from_numpy(bits.view(np.float32).copy())
    expected = values.to(dtype).view(torch.int16).numpy().view(np.uint16)
    expected = np.where(torch.isnan(values).numpy(), np.uint16(0x7FFF), expected)
    assert np.array_equal(one(f"cvt.rn.{kind}.f32 %o0, %i0;", bits, output=np.uint16), expected)
    other = mixed(bits)
    pair = one(f"cvt.rn.{kind}x2.f32 %o0, %i0, %i1;", other, bits)
    assert np.array_equal(pair & np.uint32(0xFFFF), expected.astype(np.uint32))
    order = np.random.default_rng(1).permutation(len(bits))
    assert np.array_equal(pair >> np.uint32(16), expected[order].astype(np.uint32))


def test_integer_conversions_extend_and_truncate() -> None:
    body = """
    cvt.s64.s32 %o0, %i0; cvt.u64.u32 %o1, %i0; cvt.u32.u64 %o2, %i1; cvt.u16.u32 %o3, %i0;
    cvt.u32.u16 %o4, %o3; cvt.s32.s16 %o5, %o3; cvt.u32.u8 %o6, %i0; cvt.s32.s8 %o7, %i0;
    """
    longs = random_longs(256)
    types = (np.uint64, np.uint64, np.uint32, np.uint16) + (np.uint32,) * 4
    results = apply(body, A, longs, outputs=types)
    signed = A.view(np.int32)
    expected = [
        signed.astype(np.int64).view(np.uint64),
        A.astype(np.uint64),
        longs.astype(np.uint32),
        A.astype(np.uint16),
        A.astype(np.uint16).astype(np.uint32),
        A.astype(np.uint16).view(np.int16).astype(np.int32).view(np.uint32),
        A & np.uint32(0xFF),
        A.astype(np.uint8).view(np.int8).astype(np.int32).view(np.uint32),
    ]
    for index, (result, right) in enumerate(zip(results, expected, strict=True)):
        assert np.array_equal(result, right), index


def test_integers_to_floats_and_back() -> None:
    signed, unsigned = apply(
        "cvt.rn.f32.s32 %o0, %i0; cvt.rn.f32.u32 %o1, %i0;", A, outputs=(np.uint32,) * 2
    )
    assert np.array_equal(signed.view(np.float32), A.view(np.int32).astype(np.float32))
    assert np.array_equal(unsigned.view(np.float32), A.astype(np.float32))
    values = np.resize(
        np.array([1.9, -1.9, 0.0, 3e9, 5e9, -3e9, np.inf, -np.inf, np.nan, 2**31], np.float32), 32
    )
    to_signed, to_unsigned = apply(
        "cvt.rzi.s32.f32 %o0, %i0; cvt.rzi.u32.f32 %o1, %i0;",
        values.view(np.uint32),
        outputs=(np.int32, np.uint32),
    )
    top, low = 2**31 - 1, -(2**31)
    assert to_signed[:10].tolist() == [1, -1, 0, top, top, low, top, low, 0, top]
    assert to_unsigned[:8].tolist() == [1, 0, 0, 3000000000, 2**32 - 1, 0, 2**32 - 1, 0]


def test_packing_and_unpacking() -> None:
    body = """
    .reg .b16 low, high; .reg .b32 a, b;
    mov.b32 {low, high}, %i0; mov.b32 %o0, {high, low};
    mov.b64 %rd5, {%i0, %i1}; mov.b64 {a, b}, %rd5; sub.s32 %o1, b, a; mov.b64 %o2, %rd5;
    """
    swapped, difference, both = apply(body, A, B, outputs=(np.uint32, np.uint32, np.uint64))
    assert np.array_equal(swapped, A >> np.uint32(16) | A << np.uint32(16))
    assert np.array_equal(difference, B - A)
    assert np.array_equal(both, A.astype(np.uint64) | B.astype(np.uint64) << np.uint64(32))


def test_constants() -> None:
    body = """
    mov.u32 %o0, -5; mov.f32 %o1, 0f3FC00000; mov.b32 %o2, 0x80008000; mov.u32 %o3, 4294967295;
    mov.f32 %o4, 1.5; mov.u64 %o5, 0xFFFFFFFFFFFFFFFF;
    """
    kinds = (np.uint32,) * 5 + (np.uint64,)
    results = [int(r[0]) for r in apply(body, A, outputs=kinds)]
    assert results == [2**32 - 5, 0x3FC00000, 0x80008000, 2**32 - 1, 0x3FC00000, 2**64 - 1]


COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}


@pytest.mark.parametrize("kind", ["s32", "u32", "s64", "u64", "s16", "u16"])
@pytest.mark.parametrize("name", COMPARISONS)
def test_integer_comparisons(name: str, kind: str) -> None:
    bits = int(kind[1:])
    a = random_longs(256).astype(f"u{bits // 8}")
    b = np.where(np.arange(256) % 5 == 0, a, mixed(a))
    result = one(f"setp.{name}.{kind} %p0, %i0, %i1; selp.u32 %o0, 1, 0, %p0;", a, b)
    signed = f"{'i' if kind[0] == 's' else 'u'}{bits // 8}"
    pairs = zip(a.view(signed).tolist(), b.view(signed).tolist(), strict=True)
    assert result.tolist() == [int(COMPARISONS[name](x, y)) for x, y in pairs]


@pytest.mark.parametrize("name", COMPARISONS)
def test_float_comparisons_ordered_and_not(name: str) -> None:
    bits = np.array([0, 0x80000000, 0x3F800000, 0xBF800000, 0x7F800000, 0x7FC00000, 0xFF800001])
    grid = np.array([(x, y) for x in bits for y in bits] + [(0, 0)] * 15, dtype=np.uint32)
    a, b = grid[:, 0].copy(), grid[:, 1].copy()
    body = f"""setp.{name}.f32 %p0, %i0, %i1; setp.{name}u.f32 %p1, %i0, %i1;
    setp.num.f32 %p2, %i0, %i1; setp.nan.f32 %p3, %i0, %i1;
    selp.u32 %o0, 1, 0, %p0; selp.u32 %o1, 1, 0, %p1; selp.u32 %o2, 1, 0, %p2;
    selp.u32 %o3, 1, 0, %p3;"""
    ordered, unordered, number, nan = apply(body, a, b, outputs=(np.uint32,) * 4)
    x, y = a.view(np.float32), b.view(np.float32)
    invalid = np.isnan(x) | np.isnan(y)
    plain = np.array([COMPARISONS[name](float(p), float(q)) for p, q in zip(x, y, strict=True)])
    assert np.array_equal(ordered, plain & ~invalid)
    assert np.array_equal(unordered, plain | invalid)
    assert np.array_equal(number, ~invalid)
    assert np.array_equal(nan, invalid)


def test_setp_with_a_second_predicate_and_a_combination() -> None:
    body = """
    setp.lt.s32 %p2, %i1, 0;
    setp.lt.s32 %p0|%p1, %i0, 0;
    setp.ne.and.s32 %p3, %i0, 7, %p2; setp.eq.or.s32 %p4, %i0, 7, !%p2;
    selp.u32 %r10, 1, 0, %p0; selp.u32 %r11, 2, 0, %p1; selp.u32 %r12, 4, 0, %p3;
    selp.u32 %r13, 8, 0, %p4; or.b32 %r10, %r10, %r11; or.b32 %r12, %r12, %r13;
    or.b32 %o0, %r10, %r12;
    """
    a = np.where(np.arange(256) % 3 == 0, np.uint32(7), A)
    result = one(body, a, B)
    x, y = a.view(np.int32), B.view(np.int32)
    expected = (x < 0) * 1 + (x >= 0) * 2 + ((x != 7) & (y < 0)) * 4 + ((x == 7) | (y >= 0)) * 8
    assert np.array_equal(result, expected)


def test_cvta_gives_generic_addresses_back() -> None:
    body = """
    .reg .b64 generic, back; .reg .b64 at;
    cvt.u64.u32 at, %i0; cvta.shared.u64 generic, at; cvta.to.shared.u64 back, generic;
    cvt.u32.u64 %o0, back; setp.ne.s64 %p0, generic, at; selp.u32 %o1, 1, 0, %p0;
    """
    back, moved = apply(body, A, outputs=(np.uint32, np.uint32))
    assert np.array_equal(back, A)
    assert moved.all()
