"""GlobalMemory: named buffers with guard gaps; every access checked for bounds and alignment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.errors import MisalignedError, OutOfBoundsError
from ptxgen.interp.registers import Lanes
from ptxgen.interp.typed_bytes import TypedBytes, misaligned

GLOBAL_BASE = 0x7000_0000_0000
ALIGN = 256
GAP = 4096
"""Bytes between allocations that belong to nobody."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """One named buffer; start and end are offsets from GLOBAL_BASE."""

    name: str
    start: int
    end: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    readonly: bool


class GlobalMemory:
    """Device memory of one or more launches."""

    def __init__(self) -> None:
        self._store = TypedBytes(0)
        self._allocations: dict[str, Allocation] = {}
        self._end = GAP
        self._starts = np.zeros(0, dtype=np.int64)
        self._order: list[Allocation] = []
        self._last: Allocation | None = None

    def allocate(
        self, name: str, array: NDArray[Any], readonly: bool = False, offset: int = 0
    ) -> int:
        """Copies an array into new memory.

        Args:
            name: for array, write and messages; must be new.
            array: initial contents.
            readonly: a write to it is an error.
            offset: bytes by which its address is off a multiple of 256.

        Returns:
            Its device address.
        """
        if name in self._allocations:
            raise ValueError(f"buffer {name!r} exists already")
        start = -(-(self._end + GAP) // ALIGN) * ALIGN + offset
        end = start + array.nbytes
        self._grow(end + GAP)
        self._end = end
        made = Allocation(name, start, end, array.dtype, array.shape, readonly)
        self._allocations[name] = made
        self._order.append(made)
        self._starts = np.array([item.start for item in self._order], dtype=np.int64)
        self.write(name, array)
        return GLOBAL_BASE + start

    def _grow(self, needed: int) -> None:
        if needed > self._store.bytes.size:
            old = self._store
            self._store = TypedBytes(max(needed, 2 * old.bytes.size))
            self._store.bytes[: old.bytes.size] = old.bytes

    def array(self, name: str) -> NDArray[Any]:
        """A copy of a buffer's present contents, in its dtype and shape."""
        found = self._allocations[name]
        raw = self._store.bytes[found.start : found.end].copy()
        return raw.view(found.dtype).reshape(found.shape)

    def write(self, name: str, array: NDArray[Any]) -> None:
        """Replaces a buffer's contents by an array of the same number of bytes."""
        found = self._allocations[name]
        raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        self._store.bytes[found.start : found.end] = raw

    def read(self, addresses: Lanes, size: int, count: int = 1) -> Lanes:
        """[lanes, count] words. Raises OutOfBoundsError, MisalignedError."""
        return self._store.read(self.check(addresses, size * count, False), size, count)

    def store(self, addresses: Lanes, values: Lanes, size: int) -> None:
        """Writes [lanes, count] words. Raises OutOfBoundsError, MisalignedError."""
        offsets = self.check(addresses, size * values.shape[1], True)
        self._store.write(offsets, values, size)

    def read_bytes(self, addresses: Lanes, lengths: Lanes, width: int) -> Lanes:
        """[lanes, width] bytes of which each lane's first `length` are read, the rest zero."""
        columns = np.arange(width)
        wanted = columns[None, :] < lengths[:, None]
        for extent in np.unique(lengths[lengths > 0]):
            self._bounds(addresses[lengths == extent], int(extent), False)
        offsets = (addresses - np.uint64(GLOBAL_BASE)).astype(np.int64)
        where = np.where(wanted, offsets[:, None] + columns[None, :], 0)
        return np.where(wanted, self._store.bytes[where], np.uint8(0))

    def check(self, addresses: Lanes, nbytes: int, writes: bool) -> Lanes:
        """Offsets of aligned accesses inside allocations, one of them for each lane."""
        if misaligned(addresses, nbytes):
            wrong = next(int(a) for a in addresses if int(a) % nbytes)
            raise MisalignedError(
                f"global address {wrong:#x} ({self._place(wrong)}) is no multiple of the "
                f"{nbytes} bytes accessed."
            )
        return self._bounds(addresses, nbytes, writes)

    def _bounds(self, addresses: Lanes, nbytes: int, writes: bool) -> Lanes:
        offsets = (addresses - np.uint64(GLOBAL_BASE)).astype(np.int64)
        low, high = int(offsets.min()), int(offsets.max()) + nbytes
        last = self._last
        if last and last.start <= low and high <= last.end and not (writes and last.readonly):
            return offsets
        which = np.searchsorted(self._starts, offsets, side="right") - 1
        for index, offset in zip(which, offsets, strict=True):
            self._inside(int(index), int(offset), nbytes, writes)
        self._last = self._order[int(which[0])]
        return offsets

    def _inside(self, index: int, offset: int, nbytes: int, writes: bool) -> None:
        found = self._order[index] if index >= 0 else None
        address = GLOBAL_BASE + offset
        if found is None or offset + nbytes > found.end:
            raise OutOfBoundsError(
                f"{nbytes} bytes at global address {address:#x} lie outside every buffer "
                f"({self._place(address)})."
            )
        if writes and found.readonly:
            raise OutOfBoundsError(
                f"write of {nbytes} bytes to {self._place(address)}, which is read-only."
            )

    def _place(self, address: int) -> str:
        """An address in words, relative to the buffer before it."""
        offset = address - GLOBAL_BASE
        before = [item for item in self._order if item.start <= offset]
        if not before:
            return "before every buffer"
        last = before[-1]
        return f"byte {offset - last.start} of {last.name!r}, which has {last.end - last.start}"
