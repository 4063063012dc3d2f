"""RaceShadow: who last touched each unit of a CTA's shared memory, and whether a barrier lies
between two accesses of which one is a write."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ptxgen.interp.registers import Lanes

if TYPE_CHECKING:
    from ptxgen.interp.warp import Warp

PENDING = 1 << 30
"""Clock of a copy that has not been waited for: after every clock a warp can know."""
SEVERAL = -2
"""In place of a lane: more than one."""

Before = tuple[int, int, bool]
"""An earlier access: its warp, its PC and whether it was a write."""
Report = Callable[[int, Before, "Warp"], None]
"""Told of a race: unit, the earlier access and the warp that now runs the later one."""


class RaceShadow:
    """Vector clocks, as in FastTrack (Flanagan and Freund, 2009), kept as arrays.

    Warps have clocks that barriers advance and merge. An access is ordered after another one if its
    warp's clock vector covers the other's clock. Within a warp, lanes are ordered by the warp's
    sync count, which bar.warp.sync and CTA barriers advance.
    """

    def __init__(self, nbytes: int, warps: int, unit: int, report: Report) -> None:
        units = -(-nbytes // unit)
        self.unit = unit
        self._report = report
        self._w_warp = np.full(units, -1, dtype=np.int32)
        self._w_clock = np.zeros(units, dtype=np.int32)
        self._w_pc = np.zeros(units, dtype=np.int32)
        self._w_lane = np.full(units, -1, dtype=np.int32)
        self._w_sync = np.full(units, -1, dtype=np.int32)
        self._r_clock = np.zeros((warps, units), dtype=np.int32)
        self._r_pc = np.zeros((warps, units), dtype=np.int32)
        self._r_lane = np.full((warps, units), -1, dtype=np.int32)
        self._r_sync = np.full((warps, units), -1, dtype=np.int32)

    def units_of(self, offsets: Lanes, nbytes: int, lanes: Lanes) -> tuple[Lanes, Lanes]:
        """(unit, lane) of every unit that accesses of nbytes at aligned offsets touch."""
        first, count = offsets // self.unit, max(1, nbytes // self.unit)
        if count == 1:
            return first, lanes
        units = first[:, None] + np.arange(count)
        return units.reshape(-1), np.repeat(lanes, count)

    def read(self, warp: Warp, units: Lanes, lanes: Lanes) -> None:
        """A read; lanes of SEVERAL stand for the whole warp."""
        self._after_writes(warp, units, lanes)
        me = warp.agent
        again = self._r_sync[me, units] == warp.sync
        known = self._r_lane[me, units]
        shared = again & (known != lanes)
        self._r_lane[me, units] = lanes
        shared |= self._r_lane[me, units] != lanes
        if shared.any():
            self._r_lane[me, units[shared]] = SEVERAL
        self._r_clock[me, units] = warp.clock[me]
        self._r_sync[me, units] = warp.sync
        self._r_pc[me, units] = warp.pc - 1

    def write(self, warp: Warp, units: Lanes, lanes: Lanes, pending: bool) -> None:
        """A write, or the issue of a copy that lands at an unknown time until `landed`."""
        self._after_writes(warp, units, lanes)
        me = warp.agent
        late = self._r_clock[:, units] > warp.clock[: len(self._r_clock), None]
        if late.any():
            who, where = np.argwhere(late)[0]
            unit = int(units[where])
            self._report(unit, (int(who), int(self._r_pc[who, unit]), False), warp)
        own = (self._r_sync[me, units] == warp.sync) & (self._r_lane[me, units] != lanes)
        if own.any():
            unit = int(units[np.argmax(own)])
            self._report(unit, (me, int(self._r_pc[me, unit]), False), warp)
        self._w_warp[units] = me
        self._w_clock[units] = PENDING if pending else warp.clock[me]
        self._w_pc[units] = warp.pc - 1
        self._w_lane[units] = lanes
        self._w_sync[units] = warp.sync

    def matrix_read(self, warp: Warp, units: Lanes) -> None:
        """A wgmma starts to read: it sees writes that a fence.proxy.async and a barrier precede."""
        late = self._w_clock[units] > warp.proxy[self._w_warp[units]]
        if late.any():
            unit = int(units[np.argmax(late)])
            self._report(unit, (int(self._w_warp[unit]), int(self._w_pc[unit]), True), warp)
        self._r_pc[warp.agent, units] = warp.pc - 1
        self.reading(warp, units, done=False)

    def reading(self, warp: Warp, units: Lanes, done: bool) -> None:
        """Marks units as being read by a wgmma, or as read before this warp's present clock."""
        me = warp.agent
        self._r_clock[me, units] = warp.clock[me] if done else PENDING
        self._r_sync[me, units] = -1  # the wait is one of the whole warp

    def landed(self, warp: Warp, units: Lanes) -> None:
        """A warp's lanes have waited for their copies to these units."""
        mine = units[(self._w_warp[units] == warp.agent) & (self._w_clock[units] == PENDING)]
        self._w_clock[mine] = warp.clock[warp.agent]
        self._w_sync[mine] = warp.sync

    def landed_for(self, units: Lanes, agent: int, clock: int) -> None:
        """A bulk copy to these units has landed, at a clock that its mbarrier passes on."""
        mine = units[self._w_clock[units] == PENDING]
        self._w_warp[mine], self._w_clock[mine], self._w_sync[mine] = agent, clock, -1

    def settle(self, units: Lanes, agent: int, clock: int) -> None:
        """A write by an agent at its clock, where it is still the last, is ordered before all."""
        mine = units[(self._w_warp[units] == agent) & (self._w_clock[units] == clock)]
        self._w_clock[mine], self._w_sync[mine] = 0, -1

    def not_released(self, warp: Warp, lanes: Lanes) -> None:
        """Some lanes have arrived somewhere and the warp's clock has gone on: accesses of the other
        lanes since they were last synchronised count as made after that."""
        me, now = warp.agent, warp.clock[warp.agent]
        ours = (self._w_warp == me) & (self._w_sync == warp.sync) & (self._w_clock < now)
        self._w_clock[ours & ~np.isin(self._w_lane, lanes)] = now
        read = (self._r_sync[me] == warp.sync) & (self._r_clock[me] < now)
        self._r_clock[me, read & ~np.isin(self._r_lane[me], lanes)] = now

    def is_pending(self, unit: int) -> bool:
        """Whether the last write of a unit is a copy that was not waited for."""
        return bool(self._w_clock[unit] == PENDING)

    def _after_writes(self, warp: Warp, units: Lanes, lanes: Lanes) -> None:
        writer = self._w_warp[units]
        late = self._w_clock[units] > warp.clock[writer]
        late |= (
            (writer == warp.agent)
            & (self._w_sync[units] == warp.sync)
            & (self._w_lane[units] != lanes)
        )
        if late.any():
            unit = int(units[np.argmax(late)])
            before, where = int(self._w_warp[unit]), int(self._w_pc[unit])
            self._report(unit, (before, where, True), warp)
