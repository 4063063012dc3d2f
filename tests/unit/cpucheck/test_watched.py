"""Watched memory: writes counted, early reads seen, arrivals held against finished partial sums."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from ptxgen.cpucheck.watched import Arrivals, WatchedMemory


def lanes(*addresses: int) -> np.ndarray:
    return np.array(addresses, dtype=np.uint64)


def words(count: int, width: int = 1) -> np.ndarray:
    return np.ones((count, width), dtype=np.uint32)


def test_writes_are_counted_by_the_byte() -> None:
    memory = WatchedMemory()
    base = memory.allocate("y", np.zeros(8, dtype=np.uint32))
    memory.watch("y", base)
    memory.store(lanes(base, base + 8), words(2, 2), 4)
    memory.store(lanes(base + 4), words(1), 4)
    assert memory.writes("y").tolist() == [1] * 4 + [2] * 4 + [1] * 8 + [0] * 16


def test_two_lanes_with_one_address_are_two_writes() -> None:
    memory = WatchedMemory()
    base = memory.allocate("y", np.zeros(2, dtype=np.uint32))
    memory.watch("y", base)
    memory.store(lanes(base, base), words(2), 4)
    assert memory.writes("y").tolist() == [2] * 4 + [0] * 4


def test_reads_before_writes_are_seen_and_others_are_not() -> None:
    memory = WatchedMemory()
    base = memory.allocate("w", np.zeros(8, dtype=np.uint32))
    other = memory.allocate("x", np.zeros(8, dtype=np.uint32))
    memory.watch("w", base, first=8)
    memory.read(lanes(base, base + 4), 4)  # the host wrote those
    memory.read(lanes(other), 4)
    assert memory.early_reads == 0
    memory.store(lanes(base + 16), words(1), 4)
    memory.read(lanes(base + 16), 4)
    assert memory.early_reads == 0
    memory.read(lanes(base + 16), 4, 2)
    assert memory.early_reads == 1
    assert memory.read(lanes(base + 16), 4)[0, 0] == 1


COUNTED = {"a": 1, "back": 0x100, "left": 0x20100}
"""What a counter grows by: an arrival, a CTA that comes back, one that leaves its slice."""


def tiles(arrivals: Arrivals, events: list[str]) -> int:
    """Events such as "w0" (slice 0 of tile 0 is written) and "a" (somebody arrives on tile 0)."""
    counter = 0
    for event in events:
        if event in COUNTED:
            counter += COUNTED[event]
            arrivals.saw_store(lanes(arrivals.counters), words(1) * counter)
        else:
            at = arrivals.partials + int(event[1]) * arrivals.slice_bytes
            arrivals.saw_store(lanes(at, at + 4), words(2))
    return arrivals.early_tiles()


@pytest.mark.parametrize("order", sorted(set(permutations(["w0", "w1", "a", "a"]))))
def test_arrivals_need_as_many_finished_slices(order: tuple[str, ...]) -> None:
    """Exhaustive for two slices: by the j-th arrival there must be j finished ones."""
    arrivals = Arrivals(counters=1000, partials=4096, tile_of=(0, 0), slice_bytes=64)
    seen, early = {"w": 0, "a": 0}, False
    for event in order:
        seen[event[0]] += 1
        early |= seen["a"] > seen["w"]
    assert tiles(arrivals, list(order)) == int(early)


def test_a_slice_written_again_after_its_arrival_is_early() -> None:
    arrivals = Arrivals(counters=1000, partials=4096, tile_of=(0, 0), slice_bytes=64)
    assert tiles(arrivals, ["w0", "a", "w0", "w1", "a"]) == 1


def test_a_cta_that_comes_back_has_not_arrived_again() -> None:
    arrivals = Arrivals(counters=1000, partials=4096, tile_of=(0, 0), slice_bytes=64)
    assert tiles(arrivals, ["w0", "a", "left", "w1", "a", "back"]) == 0
