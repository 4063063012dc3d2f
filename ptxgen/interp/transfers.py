"""ld, st, atom and red: global and shared memory, scalar and vector (PTX ISA, "ld", "st",
"atom")."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from pyptx.ir import nodes

from ptxgen.errors import OutOfBoundsError
from ptxgen.interp import remote
from ptxgen.interp.decode import Decode, Decoder
from ptxgen.interp.integer import typed
from ptxgen.interp.moves import SHARED_WINDOW, load_param
from ptxgen.interp.ops import Op
from ptxgen.interp.registers import DTYPES, LANES, Lanes, immediate, type_bits

if TYPE_CHECKING:
    from ptxgen.interp.warp import Warp

_HINTS = frozenset(
    ["nc", "ca", "cg", "cs", "cv", "lu", "wb", "wt", "shared::cta"]
    + ["volatile", "relaxed", "acquire", "release", "acq_rel", "weak", "cta", "gpu", "sys"]
    + [f"L1::{hint}" for hint in ("evict_normal", "evict_first", "evict_last")]
    + ["L1::evict_unchanged", "L1::no_allocate", "L2::64B", "L2::128B", "L2::256B"]
)
"""Modifiers that say where to cache or how to order; here memory is coherent and in order."""
_NAMES = {"global": "global", "shared": "shared", "shared::cluster": "cluster"}
_WINDOW_END = SHARED_WINDOW + (1 << 24)


@dataclass(frozen=True, slots=True)
class Address:
    """[register + offset]."""

    slot: int
    offset: int

    def lanes(self, warp: Warp, mask: Lanes | None) -> Lanes:
        """The address of every active lane. Raises UninitializedError."""
        if warp.poison:
            warp.require_clean(self.slot, mask, "an address")
        value = warp.registers[self.slot]
        if self.offset:
            value = value + value.dtype.type(self.offset & ((1 << value.dtype.itemsize * 8) - 1))
        return value if mask is None else value[mask]


def address_of(d: Decoder, index: int, shared: bool = False) -> Address:
    """An address operand; shared ones may have 32 bits or name a variable."""
    operand = d.operands[index]
    if not isinstance(operand, nodes.AddressOperand):
        raise d.fail("an address is missing")
    offset = immediate(operand.offset, "b32", d.statement) if operand.offset else 0
    slot = d.registers.named(operand.base, d.statement)
    if slot is None:
        slot = d.registers.symbol(operand.base, 32, d.statement)
    if d.registers.bits(slot) not in ((32, 64) if shared else (64,)):
        raise d.fail("its address register has the wrong width")
    return Address(slot, offset)


def shared_addresses(warp: Warp, address: Address, mask: Lanes | None) -> Lanes:
    return address.lanes(warp, mask)


class _Form(NamedTuple):
    space: str
    kind: str
    vector: int


def _form(d: Decoder) -> _Form:
    """Space, type and vector length out of the modifiers."""
    space, count = "generic", 1
    for modifier in d.modifiers[:-1]:
        if modifier in ("global", "shared", "param", "shared::cluster"):
            space = modifier
        elif modifier in ("v2", "v4"):
            count = int(modifier[1])
        elif modifier == "shared::cta":
            space = "shared"
        elif modifier not in _HINTS:
            raise d.fail(f".{modifier} is not known here")
    if type_bits(d.kind) not in (8, 16, 32, 64) or type_bits(d.kind) * count > 128:
        raise d.fail("its size is not known")
    return _Form(space, d.kind, count)


def load(d: Decoder) -> Op:
    """ld: words narrower than their registers are zero- or sign-extended."""
    form = _form(d)
    if form.space == "param":
        return load_param(d)
    d.count(2)
    size = type_bits(form.kind) // 8
    dsts = [d.registers.destination(item, d.statement) for item in d.vector(0)]
    if len(dsts) != form.vector:
        raise d.fail(f"{len(dsts)} registers for .v{form.vector}")
    address = address_of(d, 1, form.space.startswith("shared"))
    widen = [_extension(d, form.kind, slot) for slot in dsts]

    def effect(warp: Warp, mask: Lanes | None) -> None:
        lanes = warp.active(mask)
        addresses, space = _resolve(warp, address.lanes(warp, mask), form.space)
        missing = None
        if space == "shared":
            values, missing = warp.cta.shared.read(warp, addresses, size, form.vector, lanes)
        elif space == "shared::cluster":
            values, missing = remote.read(warp, addresses, size, form.vector, lanes)
        else:
            values = warp.cta.memory.read(addresses, size, form.vector)
        warp.cta.record(f"{_NAMES[space]}_read", warp, addresses, size * form.vector)
        for index, (slot, extend) in enumerate(zip(dsts, widen, strict=True)):
            bad = None if missing is None else _spread(missing[:, index], lanes, mask)
            warp.set(slot, _spread(extend(values[:, index]), lanes, mask), mask, bad)

    return Op(d.statement, "lsu", effect)


def store(d: Decoder) -> Op:
    """st: the low bits of registers that are wider than their words."""
    form = _form(d)
    d.count(2)
    bits = type_bits(form.kind)
    address = address_of(d, 0, form.space.startswith("shared"))
    # An immediate of a byte store has no 8-bit register; 16 bits hold it.
    kind = form.kind if bits > 8 else "b16"
    srcs = [d.registers.source(item, kind, d.statement) for item in d.vector(1)]
    if len(srcs) != form.vector or any(d.registers.bits(slot) < bits for slot in srcs):
        raise d.fail("its registers do not fit its type")
    dtype = np.uint8 if bits == 8 else DTYPES[bits]

    def effect(warp: Warp, mask: Lanes | None) -> None:
        lanes = warp.active(mask)
        addresses, space = _resolve(warp, address.lanes(warp, mask), form.space)
        values = np.stack([warp.registers[slot][lanes].astype(dtype) for slot in srcs], axis=1)
        if space.startswith("shared"):
            missing = None
            if warp.poison and warp.poison_of(srcs) is not None:
                clean = np.zeros(LANES, dtype=np.bool_)
                missing = np.stack([warp.poison.get(s, clean)[lanes] for s in srcs], axis=1)
            if space == "shared":
                warp.cta.shared.write(warp, addresses, values, lanes, missing)
            else:
                remote.write(warp, addresses, values, lanes, missing)
        else:
            for slot in srcs:
                warp.require_clean(slot, mask, "a store to global memory")
            warp.cta.memory.store(addresses, values, bits // 8)
        warp.cta.record(f"{_NAMES[space]}_write", warp, addresses, bits // 8 * form.vector)

    return Op(d.statement, "lsu", effect)


def _spread(values: Lanes, lanes: Lanes, mask: Lanes | None) -> Lanes:
    """Values of the active lanes as 32 lanes."""
    if mask is None:
        return values
    spread = np.zeros(LANES, dtype=values.dtype)
    spread[lanes] = values
    return spread


def _extension(d: Decoder, kind: str, slot: int) -> Callable[[Lanes], Lanes]:
    room = d.registers.bits(slot)
    if room < type_bits(kind) or room == 1:
        raise d.fail("a register is narrower than its type")
    if room == type_bits(kind):
        return lambda values: values
    final = DTYPES[room]
    if kind.startswith("s"):
        narrow, wide = np.dtype(f"i{type_bits(kind) // 8}"), np.dtype(f"i{room // 8}")
        return lambda values: values.astype(narrow).astype(wide).view(final)
    return lambda values: values.astype(final)


def _resolve(warp: Warp, addresses: Lanes, space: str) -> tuple[Lanes, str]:
    """Generic addresses: shared ones lie in their window."""
    if space != "generic":
        return addresses, space
    inside = (addresses >= np.uint64(SHARED_WINDOW)) & (addresses < np.uint64(_WINDOW_END))
    if inside.all():
        return addresses - np.uint64(SHARED_WINDOW), "shared"
    if inside.any():
        raise OutOfBoundsError("one instruction mixes generic shared and global addresses.")
    return addresses, "global"


_ATOMS: dict[str, Callable[[int, int, int], int]] = {
    "inc": lambda old, value, _: 0 if old >= value else old + 1,
    "dec": lambda old, value, _: value if old == 0 or old > value else old - 1,
    "add": lambda old, value, _: old + value,
    "exch": lambda _, value, __: value,
    "min": lambda old, value, _: min(old, value),
    "max": lambda old, value, _: max(old, value),
    "and": lambda old, value, _: old & value,
    "or": lambda old, value, _: old | value,
    "xor": lambda old, value, _: old ^ value,
    "cas": lambda old, compare, value: value if old == compare else old,
}


def atomic(d: Decoder) -> Op:
    """atom and red on integers in global memory, lane after lane."""
    returns = d.statement.opcode == "atom"
    operation = next((item for item in d.modifiers if item in _ATOMS), "")
    unknown = [m for m in d.modifiers[:-1] if m not in (*_ATOMS, *_HINTS, "global")]
    kind = d.kind
    if unknown or not operation or "global" not in d.modifiers:
        raise d.fail("only integer atomics on .global are known")
    if kind not in ("u32", "s32", "b32", "u64", "s64", "b64"):
        raise d.fail(f".{kind} is not known here")
    bits, first = type_bits(kind), int(returns)
    d.count(first + (3 if operation == "cas" else 2))
    address = address_of(d, first)
    srcs = [d.src(index, kind) for index in range(first + 1, len(d.operands))]
    dst = d.dst(0, bits) if returns else -1
    function, full = _ATOMS[operation], (1 << bits) - 1

    def effect(warp: Warp, mask: Lanes | None) -> None:
        lanes, addresses = warp.active(mask), address.lanes(warp, mask)
        for slot in srcs:
            warp.require_clean(slot, mask, "an atomic operation")
        memory, before = warp.cta.memory, []
        operands = [typed(warp.registers[slot], kind) for slot in srcs]
        for lane, index in zip(lanes, range(len(lanes)), strict=True):
            where = addresses[index : index + 1]
            old = memory.read(where, bits // 8)
            values = [int(operand[lane]) for operand in operands]
            new = function(int(typed(old[0], kind)[0]), values[0], values[-1])
            memory.store(where, np.array([[new & full]], dtype=DTYPES[bits]), bits // 8)
            before.append(old[0, 0])
        warp.cta.record("global_read", warp, addresses, bits // 8)
        warp.cta.record("global_write", warp, addresses, bits // 8)
        if returns:
            warp.set(dst, _spread(np.array(before, dtype=DTYPES[bits]), lanes, mask), mask)

    return Op(d.statement, "lsu", effect)


TRANSFERS: dict[str, Decode] = {"ld": load, "st": store, "atom": atomic, "red": atomic}
