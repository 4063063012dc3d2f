"""Program: an entry decoded once, to be run many times."""

from __future__ import annotations

from collections.abc import Callable

from ptxgen.errors import UnsupportedPtxError
from ptxgen.interp.api import AccessKind
from ptxgen.interp.async_stores import STORES
from ptxgen.interp.bits import BITS
from ptxgen.interp.bulk import POLICIES
from ptxgen.interp.control import CONTROL, branch
from ptxgen.interp.copies import COPIES
from ptxgen.interp.decode import Decode, Decoder
from ptxgen.interp.floating import FLOAT_FORMS, is_float
from ptxgen.interp.integer import INTEGER, INTEGER_FORMS
from ptxgen.interp.matrix import MATRIX
from ptxgen.interp.mbarrier_ops import MBARRIER
from ptxgen.interp.moves import MOVES
from ptxgen.interp.ops import Op
from ptxgen.interp.parse import Entry, Statement, parse_entry
from ptxgen.interp.predicates import PREDICATES
from ptxgen.interp.register_moves import REGISTER_MOVES
from ptxgen.interp.registers import RegisterFile, Registers, type_bits, unsupported
from ptxgen.interp.remote import REMOTE
from ptxgen.interp.shuffle import SHUFFLE
from ptxgen.interp.tensor_copies import PREFETCH
from ptxgen.interp.transfers import TRANSFERS
from ptxgen.interp.warpgroup import WARPGROUP

_OPCODES: dict[str, Decode] = {
    **INTEGER,
    **BITS,
    **MOVES,
    **PREDICATES,
    **TRANSFERS,
    **STORES,
    **COPIES,
    **PREFETCH,
    **SHUFFLE,
    **POLICIES,
    **MBARRIER,
    **REGISTER_MOVES,
    **REMOTE,
    **MATRIX,
    **WARPGROUP,
    **CONTROL,
}


class Program:
    """A decoded entry.

    Attributes:
        entry: what it was decoded from.
        ops: instructions by PC; the last one ends the thread.
        blocks: by PC, the run of unguarded pure instructions that starts there (may be empty).
        registers: slots and the initial register file.
        shared_offsets: shared variable -> offset from the first valid shared address.
        copies_in_bulk: it has a cp.async.bulk or a st.async.
        shadow_unit: bytes that the race shadow watches together.
    """

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.registers = RegisterFile(entry)
        self.ops = [self._decode(statement) for statement in entry.statements]
        self.blocks = self._blocks()
        self.shared_offsets, self._static = _layout(entry)
        self.copies_in_bulk = any(_completes_mbarriers(op) for op in self.ops)
        self.shadow_unit = 1 if any(_stores_less_than_a_word(op) for op in self.ops) else 4

    def shared_bytes(self, dynamic: int) -> int:
        """Shared memory of a CTA launched with so much dynamic memory."""
        return self._static + dynamic

    def shared_kind(self, pc: int) -> AccessKind:
        """How an instruction accesses shared memory."""
        statement = self.ops[pc].statement
        if statement.opcode == "cp" or statement.modifiers[:1] == ("async",):
            return "read" if "bulk_group" in statement.modifiers else "copy"
        writes = statement.opcode == "st" or statement.modifiers[:1] in (("init",), ("inval",))
        return "write" if writes else "read"

    def _decode(self, statement: Statement) -> Op:
        decoder = Decoder(statement, self.registers)
        op = self._decoding(statement)(decoder)
        if statement.guard:
            name, op.negated = statement.guard
            slot = self.registers.named(name, statement)
            if slot is None:
                raise decoder.fail(f"{name!r} is no predicate")
            op.guard = slot
        return op

    def _decoding(self, statement: Statement) -> Decode:
        opcode = statement.opcode
        if opcode == "bra":
            return branch(self.entry)
        if opcode in FLOAT_FORMS and is_float(
            statement.modifiers[-1] if statement.modifiers else ""
        ):
            return FLOAT_FORMS[opcode]
        found = INTEGER_FORMS.get(opcode) or _OPCODES.get(opcode)
        if found is None:
            raise unsupported(statement, f"opcode {statement.name}")
        return found

    def _blocks(self) -> list[tuple[Callable[[Registers], None], ...]]:
        blocks: list[tuple[Callable[[Registers], None], ...]] = [()] * len(self.ops)
        following: tuple[Callable[[Registers], None], ...] = ()
        for pc in range(len(self.ops) - 1, -1, -1):
            fast = self.ops[pc].fast
            following = () if fast is None or self.ops[pc].guard >= 0 else (fast, *following)
            blocks[pc] = following
        return blocks


def load_program(ptx: str, entry: str) -> Program:
    """Decodes one kernel of a PTX module.

    Args:
        ptx: PTX text, as NVRTC makes it.
        entry: name of the kernel.

    Raises:
        UnsupportedPtxError: names the instruction and its line.
    """
    return Program(parse_entry(ptx, entry))


def _completes_mbarriers(op: Op) -> bool:
    statement = op.statement
    return "bulk" in statement.modifiers or statement.name.startswith("st.async")


def _stores_less_than_a_word(op: Op) -> bool:
    statement = op.statement
    generic = "global" not in statement.modifiers
    return statement.opcode == "st" and generic and type_bits(statement.modifiers[-1]) < 32


def _layout(entry: Entry) -> tuple[dict[str, int], int]:
    """Offsets of shared variables, those sized by the launch last, and the bytes before these."""
    offsets, end = {}, 0
    for variable in sorted(entry.variables, key=lambda item: item.nbytes == 0):
        if variable.align > 1024:
            raise UnsupportedPtxError(f"{variable.name!r} is aligned to {variable.align} bytes.")
        end = -(-end // variable.align) * variable.align
        offsets[variable.name] = end
        end += variable.nbytes
    return offsets, end
