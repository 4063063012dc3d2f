"""What every decoder needs: the operands of a statement as slots, and the errors."""

from __future__ import annotations

from collections.abc import Callable

from pyptx.ir import nodes

from ptxgen.errors import UnsupportedPtxError
from ptxgen.interp.ops import Op
from ptxgen.interp.parse import Operand, Statement
from ptxgen.interp.registers import RegisterFile, type_bits, unsupported


class Decoder:
    """One statement being decoded into an Op."""

    def __init__(self, statement: Statement, registers: RegisterFile) -> None:
        self.statement = statement
        self.registers = registers
        self.modifiers = statement.modifiers
        self.operands = statement.operands

    @property
    def kind(self) -> str:
        """The last modifier: for most instructions their type."""
        return self.modifiers[-1] if self.modifiers else ""

    def fail(self, why: str) -> UnsupportedPtxError:
        return unsupported(self.statement, why)

    def allow(self, *known: str) -> None:
        """Raises where a modifier besides the type is none of those known."""
        for modifier in self.modifiers[:-1]:
            if modifier not in known:
                raise self.fail(f".{modifier} is not known here")

    def count(self, *allowed: int) -> int:
        """Number of operands. Raises where it is not allowed."""
        if len(self.operands) not in allowed:
            raise self.fail(f"{len(self.operands)} operands")
        return len(self.operands)

    def dst(self, index: int, bits: int) -> int:
        """Slot of a destination register of exactly that width."""
        return self._sized(self.registers.destination(self.operands[index], self.statement), bits)

    def src(self, index: int, kind: str) -> int:
        """Slot of a source operand of a type."""
        return self.source(self.operands[index], kind)

    def source(self, operand: Operand, kind: str) -> int:
        slot = self.registers.source(operand, kind, self.statement)
        return self._sized(slot, type_bits(kind))

    def _sized(self, slot: int, bits: int) -> int:
        if self.registers.bits(slot) != bits:
            raise self.fail(
                f"an operand has {self.registers.bits(slot)} bits where it needs {bits}"
            )
        return slot

    def vector(self, index: int) -> tuple[Operand, ...]:
        """Elements of a {...} operand, or the operand itself as the only one."""
        operand = self.operands[index]
        return operand.elements if isinstance(operand, nodes.VectorOperand) else (operand,)

    def dst_vector(self, index: int, bits: int) -> list[int]:
        found = self.vector(index)
        slots = [self.registers.destination(item, self.statement) for item in found]
        return [self._sized(slot, bits) for slot in slots]

    def src_vector(self, index: int, kind: str) -> list[int]:
        return [self.source(item, kind) for item in self.vector(index)]

    def number(self, index: int) -> int:
        """Value of an operand that must be a literal."""
        operand = self.operands[index]
        if not isinstance(operand, nodes.ImmediateOperand):
            raise self.fail("an operand must be a constant")
        slot = self.registers.source(operand, "b32", self.statement)
        return int(self.registers.template[slot][0])


Decode = Callable[[Decoder], Op]
"""Turns a statement into an Op. Raises UnsupportedPtxError for forms it does not know."""
