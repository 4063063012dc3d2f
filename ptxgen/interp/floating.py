"""FP32, FP16 and BF16 arithmetic, each operation rounded once (PTX ISA, "Floating-Point
Instructions", "Half Precision Floating-Point Instructions")."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ptxgen.interp.decode import Decode, Decoder
from ptxgen.interp.ops import Op, pure
from ptxgen.interp.registers import Lanes, Registers
from ptxgen.interp.rounding import (
    F32_NAN,
    HALF_NAN,
    canonical_f32,
    from_bf16,
    from_f16,
    odd_sum,
    to_bf16,
    to_f16,
    to_f32,
)

F32 = np.float32
HALF_TYPES = ("f16", "f16x2", "bf16", "bf16x2")

Function = Callable[..., Lanes]

# In FP64, rounded to the type afterwards; odd_sum sees to it that this is the only rounding.
_WIDE: dict[str, Function] = {
    "add": odd_sum,
    "sub": lambda a, b: odd_sum(a, -b),
    "mul": np.multiply,
    "fma": lambda a, b, c: odd_sum(a * b, c),
}
_F32: dict[str, Function] = {"add": np.add, "sub": np.subtract, "mul": np.multiply}
OPERANDS = {"add": 2, "sub": 2, "mul": 2, "fma": 3, "min": 2, "max": 2, "neg": 1, "abs": 1}
_SELECTIONS = ("min", "max", "neg", "abs")


def is_float(kind: str) -> bool:
    return kind == "f32" or kind in HALF_TYPES


def arithmetic(d: Decoder) -> Op:
    """add, sub, mul, fma, min, max, neg and abs of floats."""
    d.allow("rn")
    opcode, kind = d.statement.opcode, d.kind
    d.count(1 + OPERANDS[opcode])
    if opcode == "fma" and "rn" not in d.modifiers:
        raise d.fail("it needs .rn")
    bits = 32 if kind == "f32" or kind.endswith("x2") else 16
    raw = f"b{bits}" if kind != "f32" else kind
    dst = d.dst(0, bits)
    srcs = [d.src(index, raw) for index in range(1, len(d.operands))]
    if kind == "f32":
        compute, pipe = _single(opcode, srcs), "fma"
    else:
        compute, pipe = _half(opcode, kind.removesuffix("x2"), srcs), "half"
    return pure(d.statement, pipe, [dst], srcs, compute)


def _single(opcode: str, srcs: list[int]) -> Callable[[Registers], Lanes]:
    if opcode == "fma":
        a, b, c = srcs

        def fma(r: Registers) -> Lanes:
            wide = r[a].view(F32).astype(np.float64) * r[b].view(F32)
            return to_f32(odd_sum(wide, r[c].view(F32).astype(np.float64)))

        return fma
    if opcode in _SELECTIONS:
        select = _selection(opcode, np.uint32(0x80000000), F32_NAN, lambda bits: bits.view(F32))
        return lambda r: select(*(r[slot] for slot in srcs))
    a, b = srcs
    function = _F32[opcode]
    return lambda r: canonical_f32(function(r[a].view(F32), r[b].view(F32)))


def _half(opcode: str, kind: str, srcs: list[int]) -> Callable[[Registers], Lanes]:
    widen, narrow = (from_f16, to_f16) if kind == "f16" else (from_bf16, to_bf16)
    if opcode in _SELECTIONS:
        compute = _selection(opcode, np.uint16(0x8000), HALF_NAN, widen)
    else:
        wide = _WIDE[opcode]
        compute = lambda *halves: narrow(wide(*(widen(half) for half in halves)))

    def run(r: Registers) -> Lanes:
        result: Lanes = compute(*(r[slot].view(np.uint16) for slot in srcs))
        return result.view(r[srcs[0]].dtype)

    return run


def _selection(
    opcode: str, sign: np.unsignedinteger, nan: np.unsignedinteger, widen: Function
) -> Function:
    """min, max, neg, abs on bits: -0 < +0, and a NaN operand of min and max gives way."""
    if opcode in ("neg", "abs"):

        def flip(bits: Lanes) -> Lanes:
            result: Lanes = bits ^ sign if opcode == "neg" else bits & ~sign
            return result

        return flip
    smaller = opcode == "min"

    def select(a: Lanes, b: Lanes) -> Lanes:
        x, y = widen(a), widen(b)
        first = (x < y) if smaller else (x > y)
        signs = ((a if smaller else b) & sign) != 0
        first = np.where(x == y, signs, first)
        result = np.where(first | np.isnan(y), a, b)
        return np.where(np.isnan(x) & np.isnan(y), nan, result)

    return select


FLOAT_FORMS: dict[str, Decode] = dict.fromkeys(OPERANDS, arithmetic)
"""Float forms by opcode."""
