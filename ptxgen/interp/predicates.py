"""setp: comparisons (PTX ISA, "Comparison and Selection Instructions: setp")."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from pyptx.ir import nodes

from ptxgen.interp.decode import Decode, Decoder
from ptxgen.interp.integer import BIT_TYPES, INTEGER_TYPES, typed
from ptxgen.interp.ops import Op, pure
from ptxgen.interp.registers import Lanes, Registers

F32 = np.float32
Compare = Callable[[Lanes, Lanes], Lanes]

_ORDERED: dict[str, Compare] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
_UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
_COMBINE: dict[str, Compare] = {
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
}


def set_predicate(d: Decoder) -> Op:
    """setp.cmp{.boolop}.type p{|q}, a, b{, {!}c}: q is the opposite comparison."""
    comparison, *boolean, kind = d.modifiers
    compare = _comparison(d, comparison, kind)
    if len(boolean) > 1 or (boolean and boolean[0] not in _COMBINE):
        raise d.fail(f"boolean operator {boolean} is not known")
    d.count(4 if boolean else 3)
    a, b = d.src(1, kind), d.src(2, kind)
    srcs, dsts = [a, b], _destinations(d)
    combine = _COMBINE[boolean[0]] if boolean else None
    c, negated = predicate_source(d, 3) if boolean else (-1, False)
    srcs += [c] if boolean else []

    def both(r: Registers) -> tuple[Lanes, Lanes]:
        hit = compare(r[a], r[b])
        if combine is None:
            return hit, ~hit
        other = ~r[c] if negated else r[c]
        return combine(hit, other), combine(~hit, other)

    if len(dsts) == 1:
        return pure(d.statement, "alu", dsts, srcs, lambda r: both(r)[0])
    return pure(d.statement, "alu", dsts, srcs, both)


def _destinations(d: Decoder) -> list[int]:
    operand = d.operands[0]
    parts = (operand.left, operand.right) if isinstance(operand, nodes.PipeOperand) else (operand,)
    return [d.registers.destination(part, d.statement) for part in parts]


def predicate_source(d: Decoder, index: int) -> tuple[int, bool]:
    """Slot of a predicate operand, and whether it is negated."""
    operand = d.operands[index]
    if isinstance(operand, nodes.NegatedOperand):
        return d.source(operand.operand, "pred"), True
    return d.source(operand, "pred"), False


def _comparison(d: Decoder, name: str, kind: str) -> Compare:
    if kind == "f32":
        return _float_comparison(d, name)
    if name in _UNSIGNED and kind.startswith("u"):
        name = _UNSIGNED[name]
    equality = name in ("eq", "ne")
    if name not in _ORDERED or kind not in (BIT_TYPES if equality else set()) | INTEGER_TYPES:
        raise d.fail(f"comparison .{name}.{kind} is not known")
    function = _ORDERED[name]
    if not kind.startswith("s") or equality:
        return function
    return lambda a, b: function(typed(a, kind), typed(b, kind))


def _float_comparison(d: Decoder, name: str) -> Compare:
    """Ordered comparisons are false for NaN; those with a u (equ, neu, ltu, ...) true."""
    if name in ("num", "nan"):
        wanted = name == "nan"
        return lambda a, b: (np.isnan(a.view(F32)) | np.isnan(b.view(F32))) == wanted
    unordered = name.endswith("u") and name[:-1] in _ORDERED
    base = name[:-1] if unordered else name
    if base not in _ORDERED:
        raise d.fail(f"comparison .{name}.f32 is not known")
    function = _ORDERED[base]

    def compare(a: Lanes, b: Lanes) -> Lanes:
        x, y = a.view(F32), b.view(F32)
        nan = np.isnan(x) | np.isnan(y)
        hit = function(x, y)
        return hit | nan if unordered else hit & ~nan

    return compare


PREDICATES: dict[str, Decode] = {"setp": set_predicate}
