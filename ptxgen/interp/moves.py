"""mov, cvt, cvta, selp and ld.param: values from one register to another (PTX ISA, "Data Movement
and Conversion Instructions")."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from pyptx.ir import nodes

from ptxgen.interp.decode import Decode, Decoder
from ptxgen.interp.floating import is_float
from ptxgen.interp.integer import SIGNED
from ptxgen.interp.ops import Op, pure
from ptxgen.interp.parameters import PARAM_WINDOW
from ptxgen.interp.registers import DTYPES, Lanes, type_bits
from ptxgen.interp.rounding import canonical_f32, from_f16, to_bf16, to_f16

SHARED_WINDOW = 0x7E00_0000_0000
"""Generic address of shared address 0."""
_WINDOWS = {"shared": SHARED_WINDOW, "global": 0, "param": PARAM_WINDOW}

Convert = Callable[[Lanes], Lanes]


def move(d: Decoder) -> Op:
    """mov: a register, a constant, an address, or several registers packed into one and back."""
    kind = d.kind
    d.allow()
    d.count(2)
    if isinstance(d.operands[0], nodes.VectorOperand):
        return _unpack(d, kind)
    if isinstance(d.operands[1], nodes.VectorOperand):
        return _pack(d, kind)
    dst, a = d.dst(0, type_bits(kind)), d.src(1, kind)
    return pure(d.statement, "alu", [dst], [a], lambda r: r[a])


def _unpack(d: Decoder, kind: str) -> Op:
    count = len(d.vector(0))
    part = type_bits(kind) // count
    dsts, a = d.dst_vector(0, part), d.src(1, kind)

    def compute(r: list[Lanes]) -> Lanes:
        # A register that a vector load filled is a column of its result.
        parts: Lanes = np.ascontiguousarray(r[a]).view(DTYPES[part])
        return parts.reshape(-1, count).T

    return pure(d.statement, "alu", dsts, [a], compute)


def _pack(d: Decoder, kind: str) -> Op:
    bits, count = type_bits(kind), len(d.vector(1))
    dst, srcs = d.dst(0, bits), d.src_vector(1, f"b{bits // count}")

    def compute(r: list[Lanes]) -> Lanes:
        packed: Lanes = np.stack([r[slot] for slot in srcs], axis=1).view(DTYPES[bits])
        return packed.reshape(-1)

    return pure(d.statement, "alu", [dst], srcs, compute)


def select(d: Decoder) -> Op:
    """selp: a where the predicate holds, else b."""
    kind = d.kind
    d.allow()
    d.count(4)
    dst, a, b = d.dst(0, type_bits(kind)), d.src(1, kind), d.src(2, kind)
    p = d.src(3, "pred")
    return pure(d.statement, "alu", [dst], [a, b, p], lambda r: np.where(r[p], r[a], r[b]))


def convert_address(d: Decoder) -> Op:
    """cvta between the shared and parameter windows, global memory and generic addresses."""
    space = d.modifiers[-2] if len(d.modifiers) > 1 else ""
    if d.kind != "u64" or space not in _WINDOWS or len(d.modifiers) > 3:
        raise d.fail("only cvta{.to}.{shared,global,param}.u64 is known")
    d.count(2)
    dst, a = d.dst(0, 64), d.src(1, "u64")
    offset = np.uint64(_WINDOWS[space])
    if d.modifiers[0] == "to":
        return pure(d.statement, "alu", [dst], [a], lambda r: r[a] - offset)
    return pure(d.statement, "alu", [dst], [a], lambda r: r[a] + offset)


def convert(d: Decoder) -> Op:
    """cvt between integers, between floats, and from one to the other; no .sat and no .ftz."""
    if len(d.modifiers) < 2:
        raise d.fail("it needs two types")
    *modes, to, origin = d.modifiers
    if to in ("f16x2", "bf16x2") and origin == "f32" and modes == ["rn"]:
        return _convert_pair(d, to)
    d.count(2)
    if is_float(to) or is_float(origin):
        function = _float_conversion(d, to, origin, modes)
    elif modes:
        raise d.fail(f"mode {modes} is not known for integers")
    else:
        return _convert_integer(d, to, origin)
    bits = type_bits(to)
    raw = origin if origin == "f32" else f"b{type_bits(origin)}"
    dst, a = d.dst(0, bits), d.src(1, raw)
    return pure(d.statement, "convert", [dst], [a], lambda r: function(r[a]))


def _convert_pair(d: Decoder, to: str) -> Op:
    """cvt.rn.{f16x2,bf16x2}.f32: the first source goes into the high half."""
    d.count(3)
    dst, high, low = d.dst(0, 32), d.src(1, "f32"), d.src(2, "f32")
    narrow = to_f16 if to == "f16x2" else to_bf16

    def compute(r: list[Lanes]) -> Lanes:
        pair = np.stack([r[low], r[high]], axis=1).reshape(-1)
        return narrow(pair.view(np.float32).astype(np.float64)).view(np.uint32)

    return pure(d.statement, "convert", [dst], [high, low], compute)


def _convert_integer(d: Decoder, to: str, origin: str) -> Op:
    """Sign- or zero-extends, or truncates. Registers may be wider than 8-bit types."""
    slot = d.registers.source(d.operands[1], f"b{max(16, type_bits(origin))}", d.statement)
    dst = d.registers.destination(d.operands[0], d.statement)
    held, room = d.registers.bits(slot), d.registers.bits(dst)
    if held < type_bits(origin) or room < type_bits(to):
        raise d.fail("a register is narrower than its type")
    small, wide = type_bits(origin), type_bits(to)

    def number(bits: int, kind: str) -> np.dtype[np.generic]:
        return np.dtype(f"{'i' if kind.startswith('s') else 'u'}{bits // 8}")

    source, target = number(small, origin), number(wide, to)
    final, extended = np.dtype(DTYPES[room]), number(room, to)

    def compute(r: list[Lanes]) -> Lanes:
        value = r[slot].astype(f"u{small // 8}").view(source)
        return value.astype(target).astype(extended).view(final)

    return pure(d.statement, "alu", [dst], [slot], compute)


def _float_conversion(d: Decoder, to: str, origin: str, modes: list[str]) -> Convert:
    if not is_float(origin):
        if modes == ["rn"] and to == "f32" and type_bits(origin) in (16, 32, 64):
            return _from_integer(origin)
    elif not is_float(to):
        if modes == ["rzi"] and origin == "f32" and to in ("s32", "u32"):
            return _to_integer(to)
    elif to == "f32" and origin == "bf16" and not modes:
        # An H200 only moves the bits up, of a NaN too (2026-11-29: 109 NaN of 8,192 random lanes).
        return lambda bits: bits.astype(np.uint32) << np.uint32(16)
    elif to == "f32" and origin == "f16" and not modes:
        return lambda bits: canonical_f32(from_f16(bits).astype(np.float32))
    elif origin == "f32" and to in ("f16", "bf16") and modes == ["rn"]:
        narrow = to_f16 if to == "f16" else to_bf16
        return lambda bits: narrow(bits.view(np.float32).astype(np.float64))
    raise d.fail("this conversion is not known")


def _from_integer(origin: str) -> Convert:
    bits = type_bits(origin)
    dtype = SIGNED[bits] if origin.startswith("s") else DTYPES[bits]
    return lambda value: value.view(dtype).astype(np.float32).view(np.uint32)


def _to_integer(to: str) -> Convert:
    """Towards zero; beyond the range the nearest end, NaN gives 0 (PTX ISA, "cvt")."""
    low, high = (-(2**31), 2**31 - 1) if to == "s32" else (0, 2**32 - 1)

    def function(bits: Lanes) -> Lanes:
        wide = np.nan_to_num(bits.view(np.float32).astype(np.float64), nan=0.0)
        return to_bits(np.clip(np.trunc(wide), low, high))

    def to_bits(wide: Lanes) -> Lanes:
        return wide.astype(np.int64).astype(np.uint32)

    return function


def load_param(d: Decoder) -> Op:
    """ld.param: a kernel argument."""
    operand = d.operands[1]
    if not isinstance(operand, nodes.AddressOperand) or operand.offset is not None:
        raise d.fail("a parameter is read as a whole, by its name")
    a = d.registers.param(operand.base, d.statement)
    dst = d.dst(0, type_bits(d.kind))
    if d.registers.bits(a) != type_bits(d.kind):
        raise d.fail("its type is not the parameter's")
    return pure(d.statement, "lsu", [dst], [a], lambda r: r[a])


MOVES: dict[str, Decode] = {
    "mov": move,
    "selp": select,
    "cvta": convert_address,
    "cvt": convert,
}
