"""WatchedMemory: global memory that counts writes, and sees what is read or announced too early."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ptxgen.interp import GlobalMemory
from ptxgen.interp.registers import Lanes

COUNTER_BYTES = 4
LOW_BYTE = 0xFF
"""Of a counter: the parts that are there. With stream_k, CTAs that come back are counted above."""


@dataclass(slots=True)
class Arrivals:
    """The workspace of a launch plan: when CTAs count themselves in, and when they write.

    Attributes:
        counters: address of the counters, one a tile.
        partials: address of the partial tiles.
        tile_of: by partial tile, the counter of the output tile that it is a part of; -1 where it
            is not used.
        slice_bytes: of a partial tile.
    """

    counters: int
    partials: int
    tile_of: tuple[int, ...]
    slice_bytes: int
    _clock: int = 0
    _counts: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    _arrived: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    _written: dict[int, int] = field(default_factory=dict)

    def saw_store(self, addresses: Lanes, values: Lanes) -> None:
        """Told about every store, in the order in which they happen."""
        self._clock += 1
        for address in np.unique(addresses).tolist():
            if self.counters <= address < self.partials:
                counter = (address - self.counters) // COUNTER_BYTES
                count = int(values[addresses == address][-1, 0]) & LOW_BYTE
                if count != self._counts[counter]:
                    self._arrived[counter].append(self._clock)
                self._counts[counter] = count
            elif address >= self.partials:
                self._written[(address - self.partials) // self.slice_bytes] = self._clock

    def early_tiles(self) -> int:
        """Tiles with more arrivals, at some time, than finished partial tiles.

        Who counted itself in is not known, so the order of the ends is held against the order of
        the arrivals: by the j-th arrival, j partial tiles must have been finished.
        """
        early = 0
        for tile, arrived in self._arrived.items():
            parts = [part for part, owner in enumerate(self.tile_of) if owner == tile]
            finished = sorted(self._written.get(part, 0) for part in parts)
            pairs = zip(finished, sorted(arrived), strict=False)
            early += any(end > arrival for end, arrival in pairs)
        return early


@dataclass(frozen=True, slots=True)
class _Watch:
    """One watched buffer: its first address and how often each byte was written."""

    address: int
    writes: NDArray[np.int32]


class WatchedMemory(GlobalMemory):
    """Global memory in which some buffers start as nobody's.

    Attributes:
        early_reads: words of watched buffers that were read before they were written.
        arrivals: of the split-K workspace, where there is one.
    """

    def __init__(self) -> None:
        super().__init__()
        self._watches: dict[str, _Watch] = {}
        self.early_reads = 0
        self.arrivals: Arrivals | None = None

    def watch(self, name: str, address: int, first: int = 0) -> None:
        """Watches a buffer from its byte `first` on; those before it count as written.

        Args:
            name: of an allocated buffer.
            address: its address.
            first: bytes at its start that the host has written.
        """
        writes = np.zeros(self.array(name).nbytes, dtype=np.int32)
        writes[:first] = 1
        self._watches[name] = _Watch(address, writes)

    def watch_arrivals(self, arrivals: Arrivals) -> None:
        """Watches the order of partial sums and counters."""
        self.arrivals = arrivals

    def writes(self, name: str) -> NDArray[np.int32]:
        """How often each byte of a watched buffer was written."""
        return self._watches[name].writes

    def store(self, addresses: Lanes, values: Lanes, size: int) -> None:
        super().store(addresses, values, size)
        for watch in self._watches.values():
            touched = _bytes_of(watch, addresses, size * values.shape[1])
            np.add.at(watch.writes, touched, 1)
        if self.arrivals:
            self.arrivals.saw_store(addresses, values)

    def read(self, addresses: Lanes, size: int, count: int = 1) -> Lanes:
        for watch in self._watches.values():
            touched = _bytes_of(watch, addresses, size * count)
            self.early_reads += int((watch.writes[touched] == 0).sum()) // size
        return super().read(addresses, size, count)


def _bytes_of(watch: _Watch, addresses: Lanes, nbytes: int) -> NDArray[np.int64]:
    """Offsets of the bytes of a watched buffer that an access of each lane touches."""
    offsets = (addresses - np.uint64(watch.address)).astype(np.int64)
    inside = offsets[(offsets >= 0) & (offsets + nbytes <= watch.writes.size)]
    found: NDArray[np.int64] = (inside[:, None] + np.arange(nbytes)[None, :]).reshape(-1)
    return found
