"""Op: one decoded instruction. Pure ones are functions of registers; the others touch the warp."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ptxgen.interp.parse import Statement
from ptxgen.interp.registers import Lanes, Registers

if TYPE_CHECKING:
    from ptxgen.interp.warp import Warp

Compute = Callable[[Registers], Any]
"""Result lanes from the register file: one array, or a tuple of them for several destinations."""
Effect = Callable[["Warp", Lanes | None], None]
"""Runs an instruction of a warp for the lanes of a mask (None: all 32)."""


class Op:
    """A decoded instruction.

    Attributes:
        statement: what it was decoded from.
        pipe: alu, fma, half, tensor, lsu, control or convert.
        guard: slot of the guard predicate, or -1.
        negated: the guard is @!p.
        effect: what to do; the program counter is already on the next instruction.
        fast: for pure instructions, the same for all 32 lanes and without poison.
    """

    __slots__ = ("effect", "fast", "guard", "negated", "pipe", "statement")

    def __init__(
        self,
        statement: Statement,
        pipe: str,
        effect: Effect,
        fast: Callable[[Registers], None] | None = None,
    ) -> None:
        self.statement = statement
        self.pipe = pipe
        self.effect = effect
        self.fast = fast
        self.guard = -1
        self.negated = False


def pure(
    statement: Statement, pipe: str, dsts: Sequence[int], srcs: Sequence[int], compute: Compute
) -> Op:
    """An instruction whose only effect is its destinations; poison spreads lane by lane."""
    if len(dsts) == 1:
        dst = dsts[0]

        def fast(registers: Registers) -> None:
            registers[dst] = compute(registers)

        def results(registers: Registers) -> tuple[Lanes, ...]:
            return (compute(registers),)

    else:

        def fast(registers: Registers) -> None:
            for slot, value in zip(dsts, compute(registers), strict=True):
                registers[slot] = value

        def results(registers: Registers) -> tuple[Lanes, ...]:
            return tuple(compute(registers))

    used = tuple(dict.fromkeys(srcs))

    def effect(warp: Warp, mask: Lanes | None) -> None:
        bad = warp.poison_of(used) if warp.poison else None
        for slot, value in zip(dsts, results(warp.registers), strict=True):
            warp.set(slot, value, mask, bad)

    return Op(statement, pipe, effect, fast)


def merged(new: Lanes, old: Lanes, mask: Lanes | None) -> Lanes:
    """New values where the mask has a lane, old ones elsewhere."""
    return new if mask is None else np.where(mask, new, old)
