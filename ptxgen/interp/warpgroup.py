"""wgmma with A in registers: the tensor cores run beside the warp until it waits (PTX ISA,
"Asynchronous Warpgroup Level Matrix Instructions").

Each of the four warps multiplies its own 16 rows, so a warp is simulated by itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from pyptx.ir import nodes

from ptxgen.errors import InFlightError
from ptxgen.interp.decode import Decode, Decoder
from ptxgen.interp.matrix import WIDEN, matrix_a
from ptxgen.interp.ops import Op
from ptxgen.interp.registers import LANES, Lanes
from ptxgen.interp.rounding import to_f32

if TYPE_CHECKING:
    from ptxgen.interp.warp import Warp

WARPS = 4
_ROW_BYTES = {0: 16, 1: 128, 2: 64, 3: 32}
"""Bytes of a row of the swizzle modes none, 128, 64 and 32 bytes."""
_FORM = re.compile(r"m64n(\d+)k16")


@dataclass(slots=True, eq=False)
class Product:
    """One wgmma in flight.

    Attributes:
        slots: accumulator registers.
        values: what they will hold, [len(slots), 32].
        bad: which lanes of them are poisoned, or None.
        operands: A's registers and what they held.
        addresses: shared addresses of B, 16 bytes each.
    """

    slots: tuple[int, ...]
    values: Lanes
    bad: Lanes | None
    operands: tuple[tuple[int, Lanes], ...]
    addresses: Lanes


class ProductQueue:
    """A warp's wgmma in flight, and the registers that are theirs until it has waited."""

    def __init__(self) -> None:
        self._open: list[Product] = []
        self._groups: list[list[Product]] = []
        self._latest: dict[int, tuple[Product, int]] = {}
        self._held: dict[int, Lanes] = {}
        self._fenced: list[Lanes] = []

    def fence(self, warp: Warp) -> None:
        """wgmma.fence: registers written before it may be operands."""
        self._fenced = list(warp.registers)

    def accumulator(self, warp: Warp, slot: int) -> tuple[Lanes, Lanes | None]:
        """Value and poison of an accumulator as the next wgmma sees it. Raises InFlightError."""
        if slot in self._latest:
            self._untouched(warp, slot, self._held[slot])
            product, index = self._latest[slot]
            return product.values[index], None if product.bad is None else product.bad[index]
        return self.operand(warp, slot), warp.poison.get(slot)

    def operand(self, warp: Warp, slot: int) -> Lanes:
        """Value of a register that no wgmma writes. Raises InFlightError."""
        if not self._fenced or warp.registers[slot] is not self._fenced[slot]:
            raise InFlightError("a register was written after the last wgmma.fence.")
        return warp.registers[slot]

    def issue(self, warp: Warp, product: Product) -> None:
        self._open.append(product)
        for index, slot in enumerate(product.slots):
            self._latest[slot] = (product, index)
            self._held.setdefault(slot, warp.registers[slot])

    def commit(self) -> None:
        self._groups.append(self._open)
        self._open = []

    def wait(self, warp: Warp, pending: int) -> None:
        """Finishes all groups but the latest `pending`. Raises InFlightError."""
        count = max(0, len(self._groups) - pending)
        finished = [product for group in self._groups[:count] for product in group]
        del self._groups[:count]
        for product in finished:
            for slot, held in product.operands:
                self._untouched(warp, slot, held)
            for index, slot in enumerate(product.slots):
                if self._latest[slot][0] is product:
                    self._finish(warp, product, slot, index)
            warp.cta.shared.end_matrix_read(warp, product.addresses)
        for product in (*self._open, *(item for group in self._groups for item in group)):
            warp.cta.shared.hold_matrix_read(warp, product.addresses)

    def _finish(self, warp: Warp, product: Product, slot: int, index: int) -> None:
        self._untouched(warp, slot, self._held[slot])
        bad = None if product.bad is None else product.bad[index]
        warp.set(slot, product.values[index], None, bad)
        self._fenced[slot] = warp.registers[slot]
        del self._latest[slot], self._held[slot]

    @staticmethod
    def _untouched(warp: Warp, slot: int, held: Lanes) -> None:
        if warp.registers[slot] is not held:
            raise InFlightError("a register of a wgmma was written before the wait that covers it.")


def warpgroup(d: Decoder) -> Op:
    """wgmma.fence, commit_group, wait_group and mma_async."""
    form = d.modifiers
    if form == ("fence", "sync", "aligned"):
        return _whole(d, lambda warp: warp.products.fence(warp))
    if form == ("commit_group", "sync", "aligned"):
        return _whole(d, lambda warp: warp.products.commit())
    if form == ("wait_group", "sync", "aligned"):
        pending = d.number(0)
        return _whole(d, lambda warp: warp.products.wait(warp, pending))
    if form[:1] == ("mma_async",):
        return _multiply(d)
    raise d.fail("this form is not known")


def _whole(d: Decoder, act: Callable[[Warp], None]) -> Op:

    def effect(warp: Warp, mask: Lanes | None) -> None:
        warp.require_full(mask)
        act(warp)

    return Op(d.statement, "tensor", effect)


def _multiply(d: Decoder) -> Op:
    """d[64, n] = a[64, 16] b[16, n] + d, B behind a descriptor, K-major."""
    found = _FORM.fullmatch(d.modifiers[3]) if len(d.modifiers) == 7 else None
    kind = d.modifiers[-1]
    tail = ("f32", kind, kind)
    if found is None or d.modifiers[1:3] != ("sync", "aligned") or d.modifiers[4:] != tail:
        raise d.fail("only mma_async.sync.aligned.m64nNk16.f32.{f16,bf16} is known")
    if kind not in WIDEN or not isinstance(d.operands[1], nodes.VectorOperand):
        raise d.fail("A must be f16 or bf16 in registers")
    d.count(7)
    columns, widen = int(found[1]), WIDEN[kind]
    dsts, a, b = d.dst_vector(0, 32), d.src_vector(1, "b32"), d.src(2, "b64")
    if len(dsts) != columns // 2 or len(a) != 4:
        raise d.fail("its fragments have the wrong number of registers")
    if [d.number(index) for index in (3, 4, 5, 6)] != [1, 1, 1, 0]:
        raise d.fail("only scales of 1 and a K-major B are known")
    slots = tuple(dsts)

    def effect(warp: Warp, mask: Lanes | None) -> None:
        warp.require_full(mask)
        warp.require_clean(b, mask, "a matrix descriptor")
        addresses = matrix_addresses(int(warp.registers[b][0]), columns)
        words, missing = warp.cta.shared.start_matrix_read(warp, addresses)
        left = matrix_a([warp.products.operand(warp, slot) for slot in a], [0, 1, 2, 3], widen)
        right = widen(np.ascontiguousarray(words).view(np.uint16).reshape(-1)).reshape(columns, 16)
        before = [warp.products.accumulator(warp, slot) for slot in slots]
        added = np.stack([value for value, _ in before]).view(np.float32)
        result = left @ right.T + _tile(added.astype(np.float64))
        values = _registers(to_f32(result.reshape(-1)).reshape(16, columns))
        bad = _poison(warp, a, missing, [poison for _, poison in before])
        operands = tuple((slot, warp.registers[slot]) for slot in a)
        warp.products.issue(warp, Product(slots, values, bad, operands, addresses))
        if warp.index % WARPS == 0:  # the four warps read B together
            warp.cta.record("matrix_read", warp, addresses, 16)

    return Op(d.statement, "tensor", effect)


def _tile(registers: Lanes) -> Lanes:
    """[16, n] of accumulators [n / 2, 32]: 4 registers a group of 8 columns, as in mma."""
    count = len(registers) // 4
    parts = registers.reshape(count, 2, 2, 8, 4)
    return parts.transpose(1, 3, 0, 4, 2).reshape(16, 8 * count)


def _registers(tile: Lanes) -> Lanes:
    """The inverse of _tile."""
    count = tile.shape[1] // 8
    parts = tile.reshape(2, 8, count, 4, 2).transpose(2, 0, 4, 1, 3)
    return np.ascontiguousarray(parts).reshape(4 * count, LANES)


def _poison(
    warp: Warp, a: list[int], missing: Lanes | None, before: list[Lanes | None]
) -> Lanes | None:
    """As for mma: A spoils rows, B columns, an accumulator itself."""
    spoiled_a = [warp.poison.get(slot) for slot in a] if warp.poison else [None] * 4
    if missing is None and all(item is None for item in (*spoiled_a, *before)):
        return None
    clean = np.zeros(LANES, dtype=np.bool_)
    own = _tile(np.stack([clean if item is None else item for item in before]))
    rows = np.zeros((2, 8), dtype=np.bool_)
    for index, item in enumerate(spoiled_a):
        if item is not None:
            rows[index % 2] |= np.logical_or.reduce(item.reshape(8, 4), axis=1)
    own = own | rows.reshape(16, 1)
    if missing is not None:
        own = own | np.logical_or.reduce(missing.reshape(own.shape[1], -1), axis=1)[None, :]
    return _registers(own)


def matrix_addresses(descriptor: int, rows: int) -> Lanes:
    """Shared addresses of the two 16-byte chunks of each row of a K-major operand, [2 rows].

    PTX ISA, "Matrix Descriptor Format" and "Strides": rows lie in groups of 8; the swizzle xors the
    chunk's place in its row with the row's place in its 128-byte lines.
    """
    start = (descriptor & 0x3FFF) << 4
    leading = (descriptor >> 16 & 0x3FFF) << 4
    stride = (descriptor >> 32 & 0x3FFF) << 4
    mode = descriptor >> 62 & 3
    row, chunk = np.divmod(np.arange(2 * rows, dtype=np.int64), 2)
    step = leading if mode == 0 else 16
    address = start + row // 8 * stride + row % 8 * _ROW_BYTES[mode] + chunk * step
    lines = {0: 0, 1: 7, 2: 3, 3: 1}[mode]
    swizzled: Lanes = address ^ (address >> 7 & lines) << 4
    return swizzled.astype(np.uint32)


WARPGROUP: dict[str, Decode] = {"wgmma": warpgroup}
