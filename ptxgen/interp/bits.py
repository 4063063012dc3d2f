"""lop3, prmt, bit fields and bit counts (PTX ISA, "Logic and Shift Instructions", "prmt")."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ptxgen.interp.decode import Decode, Decoder
from ptxgen.interp.integer import operand_type
from ptxgen.interp.ops import Op, pure
from ptxgen.interp.registers import Lanes


def lop3(d: Decoder) -> Op:
    """Any logic function of three words, by its truth table."""
    if d.modifiers != ("b32",):
        raise d.fail("only lop3.b32 without a predicate is known")
    d.count(5)
    dst, table = d.dst(0, 32), d.number(4)
    a, b, c = (d.src(index, "b32") for index in (1, 2, 3))

    def compute(r: list[Lanes]) -> Lanes:
        x, y, z = r[a], r[b], r[c]
        result = np.zeros_like(x)
        for index in range(8):
            if table >> index & 1:
                result |= (
                    (x if index & 4 else ~x) & (y if index & 2 else ~y) & (z if index & 1 else ~z)
                )
        return result

    known = _LOP3.get(table)
    if known is None:
        return pure(d.statement, "alu", [dst], [a, b, c], compute)
    return pure(d.statement, "alu", [dst], [a, b, c], lambda r: known(r[a], r[b], r[c]))


# The tables that compilers and our kernels use most, for speed.
_LOP3: dict[int, Callable[[Lanes, Lanes, Lanes], Lanes]] = {
    0xEA: lambda a, b, c: (a & b) | c,
    0x80: lambda a, b, c: a & b & c,
    0xFE: lambda a, b, c: a | b | c,
    0x96: lambda a, b, c: a ^ b ^ c,
    0x6A: lambda a, b, c: (a & b) ^ c,
    0xF8: lambda a, b, c: a | (b & c),
}


def permute(d: Decoder) -> Op:
    """prmt.b32 in its default mode: four bytes out of eight, or their signs."""
    if d.modifiers != ("b32",):
        raise d.fail("only prmt.b32 in its default mode is known")
    d.count(4)
    dst, a, b, c = d.dst(0, 32), d.src(1, "b32"), d.src(2, "b32"), d.src(3, "b32")
    eight, seven, byte = np.uint64(8), np.uint64(7), np.uint64(0xFF)

    def compute(r: list[Lanes]) -> Lanes:
        both = r[b].astype(np.uint64) << np.uint64(32) | r[a]
        selector = r[c].astype(np.uint64)
        result = np.zeros(len(both), dtype=np.uint64)
        for index in range(4):
            nibble = selector >> np.uint64(4 * index)
            value = both >> ((nibble & seven) * eight) & byte
            sign = np.where(value & np.uint64(0x80), byte, np.uint64(0))
            result |= np.where(nibble & eight, sign, value) << np.uint64(8 * index)
        return result.astype(np.uint32)

    return pure(d.statement, "alu", [dst], [a, b, c], compute)


def extract(d: Decoder) -> Op:
    """bfe: a bit field, sign-extended for .s types."""
    kind, bits = operand_type(d, frozenset({"u32", "s32", "u64", "s64"}))
    d.count(4)
    dst, a, start, length = d.dst(0, bits), d.src(1, kind), d.src(2, "b32"), d.src(3, "b32")
    full = (1 << bits) - 1

    def one(value: int, pos: int, size: int) -> int:
        pos, size = pos & 0xFF, size & 0xFF
        field = value >> pos & ((1 << size) - 1)
        if kind.startswith("u") or size == 0:
            return field & full
        sign = value >> min(pos + size - 1, bits - 1) & 1
        known = max(0, min(size, bits - pos))
        return (field & ((1 << known) - 1) | (full << known if sign else 0)) & full

    return pure(
        d.statement,
        "alu",
        [dst],
        [a, start, length],
        lambda r: each(one, r[a], r[start], r[length]),
    )


def insert(d: Decoder) -> Op:
    """bfi: the low bits of a replace a field of b."""
    kind, bits = operand_type(d, frozenset({"b32", "b64"}))
    d.count(5)
    dst, a, b = d.dst(0, bits), d.src(1, kind), d.src(2, kind)
    start, length = d.src(3, "b32"), d.src(4, "b32")
    full = (1 << bits) - 1

    def one(value: int, base: int, pos: int, size: int) -> int:
        mask = ((1 << (size & 0xFF)) - 1) << (pos & 0xFF) & full
        return base & ~mask | value << (pos & 0xFF) & mask

    return pure(
        d.statement,
        "alu",
        [dst],
        [a, b, start, length],
        lambda r: each(one, r[a], r[b], r[start], r[length]),
    )


def count_bits(function: Callable[[int, int], int]) -> Decode:
    """popc, clz and bfind-like counts: a 32-bit result."""

    def decode(d: Decoder) -> Op:
        kind, bits = operand_type(d, frozenset({"b32", "b64"}))
        d.allow()
        d.count(2)
        dst, a = d.dst(0, 32), d.src(1, kind)

        def compute(r: list[Lanes]) -> Lanes:
            return np.array([function(int(value), bits) for value in r[a]], dtype=np.uint32)

        return pure(d.statement, "alu", [dst], [a], compute)

    return decode


def reverse(value: int, bits: int) -> int:
    return int(f"{value:0{bits}b}"[::-1], 2)


def reverse_bits(d: Decoder) -> Op:
    """brev."""
    kind, bits = operand_type(d, frozenset({"b32", "b64"}))
    d.count(2)
    dst, a = d.dst(0, bits), d.src(1, kind)
    return pure(d.statement, "alu", [dst], [a], lambda r: each(lambda v: reverse(v, bits), r[a]))


def each(function: Callable[..., int], *lanes: Lanes) -> Lanes:
    """A rare function lane by lane, in Python integers."""
    values = [function(*(int(value) for value in row)) for row in zip(*lanes, strict=True)]
    return np.array(values, dtype=lanes[0].dtype)


BITS: dict[str, Decode] = {
    "lop3": lop3,
    "prmt": permute,
    "bfe": extract,
    "bfi": insert,
    "brev": reverse_bits,
    "popc": count_bits(lambda value, _: value.bit_count()),
    "clz": count_bits(lambda value, bits: bits - value.bit_length()),
}
"""Opcodes on single bits and bytes."""
