"""Integer arithmetic, logic and shifts (PTX ISA, "Integer Arithmetic Instructions",
"Logic and Shift Instructions")."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ptxgen.interp.decode import Decode, Decoder
from ptxgen.interp.ops import Op, pure
from ptxgen.interp.registers import DTYPES, Lanes, type_bits

SIGNED: dict[int, Any] = {16: np.int16, 32: np.int32, 64: np.int64}
INTEGER_TYPES = frozenset(f"{kind}{bits}" for kind in "us" for bits in (16, 32, 64))
BIT_TYPES = frozenset({"b16", "b32", "b64", "pred"})

Binary = Callable[[Lanes, Lanes], Lanes]


def typed(lanes: Lanes, kind: str) -> Lanes:
    """Lanes as numbers of an integer type: signed ones as two's complement."""
    return lanes.view(SIGNED[type_bits(kind)]) if kind.startswith("s") else lanes


def bits_of(lanes: Lanes) -> Lanes:
    """The inverse of typed."""
    return lanes.view(DTYPES[lanes.dtype.itemsize * 8])


def operand_type(d: Decoder, allowed: frozenset[str]) -> tuple[str, int]:
    """The type and its bits. Raises where it is not allowed."""
    if d.kind not in allowed:
        raise d.fail(f".{d.kind} is not among its types here")
    return d.kind, type_bits(d.kind)


def wrapping(function: Binary) -> Decode:
    """Two operands whose result does not depend on signedness: modular arithmetic."""

    def decode(d: Decoder) -> Op:
        kind, bits = operand_type(d, INTEGER_TYPES)
        d.allow()
        d.count(3)
        dst, a, b = d.dst(0, bits), d.src(1, kind), d.src(2, kind)
        return pure(d.statement, "alu", [dst], [a, b], lambda r: function(r[a], r[b]))

    return decode


def signed(function: Binary) -> Decode:
    """Two operands read as numbers of the type."""

    def decode(d: Decoder) -> Op:
        kind, bits = operand_type(d, INTEGER_TYPES)
        d.allow()
        d.count(3)
        dst, a, b = d.dst(0, bits), d.src(1, kind), d.src(2, kind)

        def compute(r: list[Lanes]) -> Lanes:
            return bits_of(function(typed(r[a], kind), typed(r[b], kind)))

        return pure(d.statement, "alu", [dst], [a, b], compute)

    return decode


def divide(a: Lanes, b: Lanes) -> Lanes:
    """Quotient rounded towards zero; division by zero gives all ones, as the hardware does."""
    safe = np.where(b == 0, b.dtype.type(1), b)
    quotient = a // safe
    if a.dtype.kind == "i":  # numpy rounds down
        quotient = quotient + ((a % safe != 0) & ((a < 0) != (safe < 0))).astype(a.dtype)
    return np.where(b == 0, ~a.dtype.type(0), quotient)


def remainder(a: Lanes, b: Lanes) -> Lanes:
    """a - divide(a, b) * b, so of the sign of a; modulo zero gives a."""
    return np.where(b == 0, a, a - divide(a, b) * b)


def product_parts(a: Lanes, b: Lanes, kind: str) -> tuple[Lanes, Lanes]:
    """(low, high) half of the full product."""
    bits = type_bits(kind)
    if bits == 64:
        wide = [(int(x) * int(y)) for x, y in zip(typed(a, kind), typed(b, kind), strict=True)]
        low = np.array([value & (2**64 - 1) for value in wide], dtype=np.uint64)
        return low, np.array([value >> 64 & (2**64 - 1) for value in wide], dtype=np.uint64)
    product = widened(a, b, kind)
    return product.astype(DTYPES[bits]), (product >> product.dtype.type(bits)).astype(DTYPES[bits])


def widened(a: Lanes, b: Lanes, kind: str) -> Lanes:
    """The full product, in twice the bits."""
    wide = (SIGNED if kind.startswith("s") else DTYPES)[type_bits(kind) * 2]
    return bits_of(typed(a, kind).astype(wide) * typed(b, kind).astype(wide))


def multiply(d: Decoder) -> Op:
    """mul and mad of integers: .lo, .hi and .wide."""
    kind, bits = operand_type(d, INTEGER_TYPES)
    mode = d.modifiers[0] if len(d.modifiers) == 2 else ""
    adds = d.statement.opcode == "mad"
    d.count(4 if adds else 3)
    if mode not in ("lo", "hi", "wide") or (mode == "wide" and bits == 64):
        raise d.fail("it needs .lo, .hi or .wide")
    parts: dict[str, Binary] = {
        "lo": np.multiply,
        "hi": lambda x, y: product_parts(x, y, kind)[1],
        "wide": lambda x, y: widened(x, y, kind),
    }
    part, wide = parts[mode], 2 * bits if mode == "wide" else bits
    dst, a, b = d.dst(0, wide), d.src(1, kind), d.src(2, kind)
    if not adds:
        return pure(d.statement, "fma", [dst], [a, b], lambda r: part(r[a], r[b]))
    c = d.src(3, f"{kind[0]}{wide}")
    return pure(d.statement, "fma", [dst], [a, b, c], lambda r: part(r[a], r[b]) + r[c])


def unary(function: Callable[[Lanes], Lanes], allowed: frozenset[str]) -> Decode:
    """One operand."""

    def decode(d: Decoder) -> Op:
        kind, bits = operand_type(d, allowed)
        d.allow()
        d.count(2)
        dst, a = d.dst(0, bits), d.src(1, kind)
        return pure(
            d.statement, "alu", [dst], [a], lambda r: bits_of_any(function(typed(r[a], kind)))
        )

    return decode


def bits_of_any(lanes: Lanes) -> Lanes:
    return lanes if lanes.dtype == np.bool_ else bits_of(lanes)


def bitwise(function: Binary) -> Decode:
    """and, or, xor on bits and predicates."""

    def decode(d: Decoder) -> Op:
        kind, bits = operand_type(d, BIT_TYPES)
        d.allow()
        d.count(3)
        dst, a, b = d.dst(0, bits), d.src(1, kind), d.src(2, kind)
        return pure(d.statement, "alu", [dst], [a, b], lambda r: function(r[a], r[b]))

    return decode


def shift(left: bool) -> Decode:
    """shl and shr: amounts above the width shift everything out (shr.s: leave the sign)."""

    def decode(d: Decoder) -> Op:
        kind, bits = operand_type(d, (INTEGER_TYPES | BIT_TYPES) - {"pred"})
        d.allow()
        d.count(3)
        dst, a, amount = d.dst(0, bits), d.src(1, kind), d.src(2, "b32")
        arithmetic = kind.startswith("s") and not left
        limit = np.uint32(bits - 1)

        def compute(r: list[Lanes]) -> Lanes:
            value = r[a].view(SIGNED[bits]) if arithmetic else r[a]
            clamped = np.minimum(r[amount], limit).astype(value.dtype)
            result = value << clamped if left else value >> clamped
            if not arithmetic:
                result = np.where(r[amount] > limit, value.dtype.type(0), result)
            return bits_of(result)

        return pure(d.statement, "alu", [dst], [a, amount], compute)

    return decode


def funnel_shift(d: Decoder) -> Op:
    """shf.l and shf.r, .wrap and .clamp: 32 bits out of the 64 of {b, a}."""
    direction, mode = d.modifiers[0], d.modifiers[1]
    if d.modifiers[2:] != ("b32",) or direction not in ("l", "r") or mode not in ("wrap", "clamp"):
        raise d.fail("only shf.{l,r}.{wrap,clamp}.b32 exists")
    d.count(4)
    dst, a, b, c = d.dst(0, 32), d.src(1, "b32"), d.src(2, "b32"), d.src(3, "b32")

    def compute(r: list[Lanes]) -> Lanes:
        amount = r[c] & np.uint32(31) if mode == "wrap" else np.minimum(r[c], np.uint32(32))
        wide = r[b].astype(np.uint64) << np.uint64(32) | r[a]
        if direction == "l":
            return (wide << amount.astype(np.uint64) >> np.uint64(32)).astype(np.uint32)
        return (wide >> amount.astype(np.uint64)).astype(np.uint32)

    return pure(d.statement, "alu", [dst], [a, b, c], compute)


_SIGNED_TYPES = frozenset({"s16", "s32", "s64"})

INTEGER: dict[str, Decode] = {
    "div": signed(divide),
    "rem": signed(remainder),
    "and": bitwise(np.bitwise_and),
    "or": bitwise(np.bitwise_or),
    "xor": bitwise(np.bitwise_xor),
    "not": unary(np.invert, BIT_TYPES),
    "shl": shift(left=True),
    "shr": shift(left=False),
    "shf": funnel_shift,
}
"""Opcodes that exist for integers and bits alone."""

INTEGER_FORMS: dict[str, Decode] = {
    "add": wrapping(np.add),
    "sub": wrapping(np.subtract),
    "mul": multiply,
    "mad": multiply,
    "min": signed(np.minimum),
    "max": signed(np.maximum),
    "neg": unary(np.negative, _SIGNED_TYPES),
    "abs": unary(np.abs, _SIGNED_TYPES),
}
"""Integer forms of opcodes that also exist for floats."""
