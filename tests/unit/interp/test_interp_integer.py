"""Integer, logic and bit instructions against Python integers (PTX ISA, "Integer Arithmetic
Instructions", "Logic and Shift Instructions", "Data Movement: prmt")."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from lanes_kernel import apply, mixed, one, random_longs, random_words

A, B, C = random_words(256), mixed(random_words(256)), random_words(256, 7)
LA, LB = random_longs(256), mixed(random_longs(256))


def number(value: int, kind: str) -> int:
    bits = int(kind[1:])
    value &= (1 << bits) - 1
    return value - (1 << bits) if kind[0] == "s" and value >> (bits - 1) else value


def truncated(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


BINARY: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul.lo": lambda a, b: a * b,
    "min": min,
    "max": max,
    "div": lambda a, b: truncated(a, b) if b else -1,
    "rem": lambda a, b: a - b * truncated(a, b) if b else a,
}


@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64", "u16", "s16"])
@pytest.mark.parametrize("opcode", BINARY)
def test_binary_arithmetic(opcode: str, kind: str) -> None:
    bits = int(kind[1:])
    dtype = np.dtype(f"u{bits // 8}")
    a, b = (LA, LB) if bits == 64 else (A.astype(dtype), B.astype(dtype))
    result = one(f"{opcode}.{kind} %o0, %i0, %i1;", a, b, output=dtype)
    expected = [
        BINARY[opcode](number(int(x), kind), number(int(y), kind)) & (2**bits - 1)
        for x, y in zip(a, b, strict=True)
    ]
    assert result.tolist() == expected


@pytest.mark.parametrize("kind", ["u32", "s32"])
def test_wide_and_high_products(kind: str) -> None:
    exact = [number(int(x), kind) * number(int(y), kind) for x, y in zip(A, B, strict=True)]
    wide = one(f"mul.wide.{kind} %o0, %i0, %i1;", A, B, output=np.uint64)
    assert wide.tolist() == [value % 2**64 for value in exact]
    high = one(f"mul.hi.{kind} %o0, %i0, %i1;", A, B)
    assert high.tolist() == [(value >> 32) % 2**32 for value in exact]
    mad = one(f"mad.lo.{kind} %o0, %i0, %i1, %i2;", A, B, C)
    assert mad.tolist() == [(v + int(c)) % 2**32 for v, c in zip(exact, C, strict=True)]
    long = one(f"mad.wide.{kind} %o0, %i0, %i1, %i2;", A, B, LA, output=np.uint64)
    assert long.tolist() == [(v + int(c)) % 2**64 for v, c in zip(exact, LA, strict=True)]


@pytest.mark.parametrize("kind", ["u64", "s64"])
def test_high_product_of_64_bits(kind: str) -> None:
    high = one(f"mul.hi.{kind} %o0, %i0, %i1;", LA, LB, output=np.uint64)
    exact = [number(int(x), kind) * number(int(y), kind) for x, y in zip(LA, LB, strict=True)]
    assert high.tolist() == [(value >> 64) % 2**64 for value in exact]


@pytest.mark.parametrize("kind", ["s32", "s64"])
def test_negation_and_absolute_value(kind: str) -> None:
    values = LA if kind == "s64" else A
    modulus = 2 ** int(kind[1:])
    dtype = values.dtype
    neg = one(f"neg.{kind} %o0, %i0;", values, output=dtype)
    assert neg.tolist() == [-int(v) % modulus for v in values]
    absolute = one(f"abs.{kind} %o0, %i0;", values, output=dtype)
    assert absolute.tolist() == [abs(number(int(v), kind)) % modulus for v in values]


@pytest.mark.parametrize(
    ("opcode", "function"),
    [("and", lambda a, b: a & b), ("or", lambda a, b: a | b), ("xor", lambda a, b: a ^ b)],
)
def test_bitwise(opcode: str, function: Callable[[int, int], int]) -> None:
    pairs = list(zip(A.tolist(), B.tolist(), strict=True))
    assert one(f"{opcode}.b32 %o0, %i0, %i1;", A, B).tolist() == [function(a, b) for a, b in pairs]
    longs = list(zip(LA.tolist(), LB.tolist(), strict=True))
    result = one(f"{opcode}.b64 %o0, %i0, %i1;", LA, LB, output=np.uint64)
    assert result.tolist() == [function(a, b) for a, b in longs]


def test_predicate_logic() -> None:
    body = """
    setp.ne.s32 %p0, %i0, 0; setp.ne.s32 %p1, %i1, 0;
    and.pred %p2, %p0, %p1; or.pred %p3, %p0, %p1; xor.pred %p4, %p0, %p1; not.pred %p5, %p0;
    selp.u32 %r10, 1, 0, %p2; selp.u32 %r11, 2, 0, %p3; selp.u32 %r12, 4, 0, %p4;
    selp.u32 %r13, 8, 0, %p5;
    or.b32 %r10, %r10, %r11; or.b32 %r12, %r12, %r13; or.b32 %o0, %r10, %r12;
    """
    a = np.array([0, 0, 1, 1] * 8, dtype=np.uint32)
    b = np.array([0, 1, 0, 1] * 8, dtype=np.uint32)
    assert one(body, a, b).tolist() == [8, 8 | 4 | 2, 4 | 2, 1 | 2] * 8


def test_not_and_counts() -> None:
    body = "not.b32 %o0, %i0; popc.b32 %o1, %i0; clz.b32 %o2, %i0; brev.b32 %o3, %i0;"
    inverted, bits, zeros, turned = apply(body, A, outputs=(np.uint32,) * 4)
    assert inverted.tolist() == [~int(v) % 2**32 for v in A]
    assert bits.tolist() == [bin(v).count("1") for v in A]
    assert zeros.tolist() == [32 - int(v).bit_length() for v in A]
    assert turned.tolist() == [int(f"{v:032b}"[::-1], 2) for v in A]


@pytest.mark.parametrize("kind", ["b32", "u32", "s32", "b64", "s64", "b16", "s16"])
def test_shifts_beyond_the_width_leave_zero_or_the_sign(kind: str) -> None:
    bits = int(kind[1:])
    dtype = np.dtype(f"u{bits // 8}")
    values = LA if bits == 64 else A.astype(dtype)
    amounts = np.resize(np.array([*range(70), 255, 2**31, 2**32 - 1], dtype=np.uint32), 256)
    pairs = list(zip(values.tolist(), amounts.tolist(), strict=True))
    if kind[0] != "s":
        left = one(f"shl.{kind.replace('u', 'b')} %o0, %i0, %i1;", values, amounts, output=dtype)
        assert left.tolist() == [(v << min(n, 64)) % 2**bits for v, n in pairs]
    right = one(f"shr.{kind} %o0, %i0, %i1;", values, amounts, output=dtype)
    expected = [number(v, kind.replace("b", "u")) >> min(n, bits) for v, n in pairs]
    assert right.tolist() == [v % 2**bits for v in expected]


@pytest.mark.parametrize("mode", ["wrap", "clamp"])
def test_funnel_shifts(mode: str) -> None:
    amounts = np.resize(np.array([*range(36), 64, 2**32 - 1], dtype=np.uint32), 256)
    left = one(f"shf.l.{mode}.b32 %o0, %i0, %i1, %i2;", A, B, amounts)
    right = one(f"shf.r.{mode}.b32 %o0, %i0, %i1, %i2;", A, B, amounts)
    for index, (a, b, c) in enumerate(zip(A.tolist(), B.tolist(), amounts.tolist(), strict=True)):
        n = c & 31 if mode == "wrap" else min(c, 32)
        pair = b << 32 | a
        assert left[index] == (pair << n >> 32) % 2**32
        assert right[index] == (pair >> n) % 2**32


def test_lop3_has_every_truth_table() -> None:
    """All 256 immediates: bit abc of the table is the result for those three bits."""
    a, b, c = random_words(32), random_words(32, 3), random_words(32, 5)
    for start in range(0, 256, 16):
        tables = range(start, start + 16)
        body = "\n".join(
            f"lop3.b32 %o{n}, %i0, %i1, %i2, {table:#x};" for n, table in enumerate(tables)
        )
        results = apply(body, a, b, c, outputs=(np.uint32,) * 16)
        for table, result in zip(tables, results, strict=True):
            expected = np.zeros(32, dtype=np.uint32)
            for bit in range(32):
                x, y, z = ((v >> np.uint32(bit)) & np.uint32(1) for v in (a, b, c))
                hit = np.uint32(table) >> (x << np.uint32(2) | y << np.uint32(1) | z)
                expected |= (hit & np.uint32(1)) << np.uint32(bit)
            assert np.array_equal(result, expected), f"{table:#x}"


def test_prmt_with_every_selector() -> None:
    """All 65536 selectors; a nibble's top bit replicates the byte's sign."""
    selectors = np.arange(65536, dtype=np.uint32)
    a, b = np.full(65536, 0x83_12_F4_05, np.uint32), np.full(65536, 0x7E_C1_00_9B, np.uint32)
    result = one("prmt.b32 %o0, %i0, %i1, %i2;", a, b, selectors)
    source = [0x05, 0xF4, 0x12, 0x83, 0x9B, 0x00, 0xC1, 0x7E]
    table = np.array(
        [source[n & 7] if n < 8 else 0xFF * (source[n & 7] >> 7) for n in range(16)], np.uint32
    )
    parts = [
        table[(selectors >> np.uint32(4 * n)) & np.uint32(15)] << np.uint32(8 * n) for n in range(4)
    ]
    assert np.array_equal(result, parts[0] | parts[1] | parts[2] | parts[3])


@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
def test_bfe_follows_the_manuals_pseudocode(kind: str) -> None:
    bits = int(kind[1:])
    values = LA if bits == 64 else A
    rng = np.random.default_rng(3)
    starts = rng.integers(0, 70, 256, dtype=np.uint32)
    lengths = rng.integers(0, 70, 256, dtype=np.uint32)
    result = one(f"bfe.{kind} %o0, %i0, %i1, %i2;", values, starts, lengths, output=values.dtype)
    msb = bits - 1
    for index, value in enumerate(values.tolist()):
        pos, length = int(starts[index]) & 0xFF, int(lengths[index]) & 0xFF
        bit = [value >> n & 1 for n in range(bits)]
        sign = 0 if kind[0] == "u" or length == 0 else bit[min(pos + length - 1, msb)]
        d = [bit[pos + i] if i < length and pos + i <= msb else sign for i in range(bits)]
        assert result[index] == sum(b << n for n, b in enumerate(d))


def test_bfi_replaces_a_field() -> None:
    rng = np.random.default_rng(4)
    starts = rng.integers(0, 40, 256, dtype=np.uint32)
    lengths = rng.integers(0, 40, 256, dtype=np.uint32)
    result = one("bfi.b32 %o0, %i0, %i1, %i2, %i3;", A, B, starts, lengths)
    for index in range(256):
        pos, length = int(starts[index]), int(lengths[index])
        bits = [int(B[index]) >> n & 1 for n in range(32)]
        for i in range(length):
            if pos + i < 32:
                bits[pos + i] = int(A[index]) >> i & 1 if i < 32 else 0
        assert result[index] == sum(b << n for n, b in enumerate(bits))
