"""Names -> slots of a warp's register file; constants and special registers have slots too."""

from __future__ import annotations

import re
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyptx.ir import nodes

from ptxgen.errors import UnsupportedPtxError
from ptxgen.interp.parameters import placed
from ptxgen.interp.parse import Entry, Operand, Statement

LANES = 32

Lanes = NDArray[Any]
"""One value a lane: 32 elements."""
Registers = list[Lanes]
"""A warp's register file by slot. Arrays are replaced, never written into: they may be shared."""

DTYPES: dict[int, Any] = {1: np.bool_, 16: np.uint16, 32: np.uint32, 64: np.uint64}

_VECTORS = ("tid", "ntid", "ctaid", "nctaid")
_CLUSTER_VECTORS = ("cluster_ctaid", "cluster_nctaid", "clusterid", "nclusterid")
SPECIALS = tuple(f"%{name}.{axis}" for name in (*_VECTORS, *_CLUSTER_VECTORS) for axis in "xyz")
LANE_ID, WARP_ID = "%laneid", "%warpid"
CLUSTER_RANK, CLUSTER_SIZE = "%cluster_ctarank", "%cluster_nctarank"
_ALL_SPECIALS = (*SPECIALS, LANE_ID, WARP_ID, CLUSTER_RANK, CLUSTER_SIZE)
_UNDEFINED = 0x7FEDBA5E
"""What a register holds before anything is written: a NaN as FP32, far out as an address."""


def type_bits(name: str) -> int:
    """Width of a PTX type in bits; predicates have 1."""
    if name == "pred":
        return 1
    bits = int(re.sub(r"^[a-z]+", "", name.replace("x2", "")))
    return bits * 2 if name.endswith("x2") else bits


class RegisterFile:
    """Gives every name and constant of an entry a slot.

    Attributes:
        template: the initial register file; specials, params and symbols are filled in by a run.
        specials: special register -> slot, of those in use.
        params: slot of each parameter in order, None for a structure.
        structures: parameters that are structures, which have addresses.
        symbols: shared variable -> slots (by width) that hold its address.
    """

    def __init__(self, entry: Entry) -> None:
        self.template: Registers = []
        self.specials: dict[str, int] = {}
        self.symbols: dict[tuple[str, int], int] = {}
        self._scopes = entry.scopes
        self._slots: dict[tuple[int, str], int] = {}
        self._constants: dict[tuple[int, int], int] = {}
        self._variables = {variable.name for variable in entry.variables}
        self.params = [
            None if item.nbytes else self._new(type_bits(item.kind)) for item in entry.params
        ]
        slots = zip(entry.params, self.params, strict=True)
        self._params = {item.name: slot for item, slot in slots if slot is not None}
        self.structures = placed(
            [(n, p.name, p.nbytes, p.align) for n, p in enumerate(entry.params) if p.nbytes]
        )
        self._addresses = {item.name: item.offset for item in self.structures}

    def _new(self, bits: int, value: int | None = None) -> int:
        if bits not in DTYPES:
            raise UnsupportedPtxError(f"the interpreter has no registers of {bits} bits.")
        raw = _UNDEFINED | _UNDEFINED << 32 if value is None else value
        raw = 0 if value is None and bits == 1 else raw & ((1 << bits) - 1)
        self.template.append(np.full(LANES, raw, dtype=DTYPES[bits]))
        return len(self.template) - 1

    def bits(self, slot: int) -> int:
        """Width of a slot."""
        dtype = self.template[slot].dtype
        return 1 if dtype == np.bool_ else dtype.itemsize * 8

    def named(self, name: str, statement: Statement) -> int | None:
        """Slot of a register as seen from the statement's scope; None for an unknown name."""
        if name in _ALL_SPECIALS:
            if name not in self.specials:
                self.specials[name] = self._new(32)
            return self.specials[name]
        scope = statement.scope
        while scope >= 0:
            parent, registers = self._scopes[scope]
            if name in registers:
                key = (scope, name)
                if key not in self._slots:
                    self._slots[key] = self._new(type_bits(registers[name]))
                return self._slots[key]
            scope = parent
        return None

    def param(self, name: str, statement: Statement) -> int:
        """Slot of a parameter."""
        if name not in self._params:
            raise unsupported(statement, f"{name!r} is no parameter of a register's size")
        return self._params[name]

    def constant(self, value: int, bits: int) -> int:
        """Slot of a constant, shared by all its uses."""
        key = (value & ((1 << bits) - 1), bits)
        if key not in self._constants:
            self._constants[key] = self._new(bits, key[0])
        return self._constants[key]

    def symbol(self, name: str, bits: int, statement: Statement) -> int:
        """Slot with the address of a shared variable, or of a parameter that is a structure."""
        if name in self._addresses:
            return self.constant(self._addresses[name], bits)
        if name not in self._variables:
            raise unsupported(statement, f"{name!r} is neither a register nor a shared variable")
        key = (name, bits)
        if key not in self.symbols:
            self.symbols[key] = self._new(bits)
        return self.symbols[key]

    def source(self, operand: Operand, kind: str, statement: Statement) -> int:
        """Slot of a source operand of a PTX type (b32, s64, f16x2, pred, ...)."""
        bits = type_bits(kind)
        if isinstance(operand, nodes.ImmediateOperand):
            return self.constant(immediate(operand.text, kind, statement), bits)
        if isinstance(operand, nodes.RegisterOperand | nodes.LabelOperand):
            slot = self.named(operand.name, statement)
            return self.symbol(operand.name, bits, statement) if slot is None else slot
        raise unsupported(statement, f"operand {operand!r} is of no known kind")

    def destination(self, operand: Operand, statement: Statement) -> int:
        """Slot of a destination register."""
        slot = None
        if isinstance(operand, nodes.RegisterOperand | nodes.LabelOperand):
            slot = self.named(operand.name, statement)
        if slot is None:
            raise unsupported(statement, f"{operand!r} is no register to write to")
        return slot


def immediate(text: str, kind: str, statement: Statement) -> int:
    """Bits of a literal of a PTX type (PTX ISA, "Constants")."""
    text = text.strip()
    try:
        if found := re.fullmatch(r"0[fF]([0-9a-fA-F]{8})", text):
            return _as(kind, struct.unpack("f", int(found[1], 16).to_bytes(4, "little"))[0])
        if found := re.fullmatch(r"0[dD]([0-9a-fA-F]{16})", text):
            return _as(kind, struct.unpack("d", int(found[1], 16).to_bytes(8, "little"))[0])
        if kind.startswith("f") and not re.match(r"-?0[xX]", text):
            return _as(kind, float(text))
        return _integer(text.rstrip("U"))
    except ValueError as error:
        raise unsupported(statement, f"{text!r} is no constant of type {kind}") from error


def _integer(text: str) -> int:
    negative, digits = text.startswith("-"), text.lstrip("-")
    octal = re.fullmatch(r"0[0-7]+", digits)
    value = int(digits, 8) if octal else int(digits, 0)
    return -value if negative else value


def _as(kind: str, value: float) -> int:
    if kind == "f16":
        return int(np.float16(value).view(np.uint16))
    if kind == "f64":
        return int(np.float64(value).view(np.uint64))
    return int(np.float32(value).view(np.uint32))


def unsupported(statement: Statement, why: str) -> UnsupportedPtxError:
    """The error of an instruction that cannot be run."""
    return UnsupportedPtxError(
        f"PTX line {statement.line}: the interpreter does not know `{statement.text}`: {why}. "
        f"Add it to ptxgen/interp, with a test against the PTX ISA."
    )
