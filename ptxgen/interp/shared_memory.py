"""SharedMemory of one CTA: bounds, alignment, bytes nobody has written, and the race shadow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ptxgen.errors import MisalignedError, OutOfBoundsError
from ptxgen.interp.registers import LANES, Lanes
from ptxgen.interp.shadow import RaceShadow
from ptxgen.interp.typed_bytes import TypedBytes, misaligned

if TYPE_CHECKING:
    from ptxgen.interp.warp import Warp

SHARED_BASE = 1024
"""First valid shared address; what lies below belongs to the system."""
_WRITTEN = {1: 1, 2: 0x0101, 4: 0x01010101, 8: 0x0101010101010101}


class SharedMemory:
    """Bytes SHARED_BASE .. end of a CTA; addresses are offsets into it."""

    def __init__(self, end: int, fill: int, shadow: RaceShadow | None) -> None:
        self.end = end
        self._data = TypedBytes(end)
        self._data.bytes[:] = fill
        self._written = TypedBytes(end)
        self._shadow = shadow

    def check(self, addresses: Lanes, nbytes: int) -> Lanes:
        """The addresses as indices. Raises OutOfBoundsError, MisalignedError."""
        if misaligned(addresses, nbytes):
            wrong = next(int(a) for a in addresses if int(a) % nbytes)
            raise MisalignedError(
                f"shared address {wrong:#x} is no multiple of the {nbytes} bytes accessed."
            )
        indices = addresses.astype(np.int64)
        if int(indices.min()) < SHARED_BASE or int(indices.max()) + nbytes > self.end:
            wrong = next(int(a) for a in indices if not SHARED_BASE <= a <= self.end - nbytes)
            raise OutOfBoundsError(
                f"{nbytes} bytes at shared address {wrong:#x} lie outside the CTA's shared memory, "
                f"{SHARED_BASE:#x} .. {self.end:#x}."
            )
        return indices

    def read(
        self, warp: Warp, addresses: Lanes, size: int, count: int, lanes: Lanes
    ) -> tuple[Lanes, Lanes | None]:
        """([lanes, count] words, which of them hold bytes nobody wrote, or None)."""
        indices = self.check(addresses, size * count)
        if self._shadow:
            units, owners = self._shadow.units_of(indices, size * count, lanes)
            self._shadow.read(warp, units, owners)
        missing = self._written.read(indices, size, count) != _WRITTEN[size]
        return self._data.read(indices, size, count), missing if missing.any() else None

    def write(
        self, warp: Warp, addresses: Lanes, values: Lanes, lanes: Lanes, missing: Lanes | None
    ) -> None:
        """Writes [lanes, count] words; those marked as missing count as unwritten again."""
        size = values.dtype.itemsize * values.shape[1]
        indices = self.check(addresses, size)
        if self._shadow:
            units, owners = self._shadow.units_of(indices, size, lanes)
            self._shadow.write(warp, units, owners, pending=False)
        self._put(indices, values, missing)

    def start_matrix_read(self, warp: Warp, addresses: Lanes) -> tuple[Lanes, Lanes | None]:
        """As read, of 16 bytes each, by a wgmma: others must keep off until end_matrix_read."""
        indices = self.check(addresses, 16)
        if self._shadow:
            units, _ = self._shadow.units_of(indices, 16, indices)
            self._shadow.matrix_read(warp, units)
        missing = self._written.read(indices, 4, 4) != _WRITTEN[4]
        return self._data.read(indices, 4, 4), missing if missing.any() else None

    def hold_matrix_read(self, warp: Warp, addresses: Lanes) -> None:
        """A wgmma is still in flight, whatever has ended that read the same bytes."""
        if self._shadow:
            units, _ = self._shadow.units_of(addresses.astype(np.int64), 16, addresses)
            self._shadow.reading(warp, units, done=False)

    def end_matrix_read(self, warp: Warp, addresses: Lanes) -> None:
        """The warp has waited for a wgmma."""
        if self._shadow:
            units, _ = self._shadow.units_of(addresses.astype(np.int64), 16, addresses)
            self._shadow.reading(warp, units, done=True)

    def not_released(self, warp: Warp, lanes: Lanes) -> None:
        """Some of a warp's lanes have arrived somewhere; what the others did is not passed on."""
        if self._shadow and len(lanes) < LANES:
            self._shadow.not_released(warp, lanes)

    def issue_copy(self, warp: Warp, indices: Lanes, nbytes: int, lanes: Lanes) -> None:
        """A cp.async to these indices was issued: from now on others must keep off."""
        if self._shadow:
            units, owners = self._shadow.units_of(indices, nbytes, lanes)
            self._shadow.write(warp, units, owners, pending=True)

    def land_copy(self, warp: Warp, indices: Lanes, values: Lanes) -> None:
        """The copied bytes [lanes, nbytes] become visible to the issuing lanes."""
        size = values.shape[1]
        words = np.ascontiguousarray(values).view(np.uint32)
        self._put(indices, words, None)
        if self._shadow:
            units, _ = self._shadow.units_of(indices, size, indices)
            self._shadow.landed(warp, units)

    def land_bulk(self, indices: Lanes, values: Lanes, agent: int, clock: int) -> None:
        """Rows of a bulk copy land; who sees that clock of its mbarrier may read them."""
        self._put(indices, values, None)
        if self._shadow:
            units, _ = self._shadow.units_of(indices, 16, indices)
            self._shadow.landed_for(units, agent, clock)

    def settle(self, address: int, agent: int, clock: int) -> None:
        """The mbarrier.init of a warp, at its clock, is visible to the whole cluster."""
        if self._shadow:
            where = np.array([address], dtype=np.int64)
            units, _ = self._shadow.units_of(where, 8, where)
            self._shadow.settle(units, agent, clock)

    def _put(self, indices: Lanes, values: Lanes, missing: Lanes | None) -> None:
        size = values.dtype.itemsize
        self._data.write(indices, values, size)
        word = values.dtype.type(_WRITTEN[size])
        if missing is None:
            self._written.write(indices, np.broadcast_to(word, values.shape), size)
        else:
            zero = values.dtype.type(0)
            self._written.write(indices, np.where(missing, zero, word), size)
