"""Incoming: what warps of other CTAs, and copies, change in a CTA's shared memory. All of that must
come before its end (CUDA C++ Programming Guide, "Distributed Shared Memory")."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ptxgen.errors import InFlightError

if TYPE_CHECKING:
    from ptxgen.interp.cta import Cta
    from ptxgen.interp.warp import Warp


class _Change(NamedTuple):
    """At which clock of its agent, by which warp and where in the program."""

    clock: int
    warp: Warp
    pc: int


class Incoming:
    """The last change of a CTA's shared memory by each agent from elsewhere.

    The interpreter makes a change at once; a GPU may let it travel until something that orders it
    has been waited for. So the order is asked for, not what came first in this schedule.
    """

    def __init__(self, cta: Cta) -> None:
        self._cta = cta
        self._last: dict[int, _Change] = {}

    def from_warp(self, warp: Warp) -> None:
        """A warp arrives or stores here. Told before the change is passed on to anybody.

        Changes have clocks of their own, since a release may leave them out.
        """
        if warp.cta is self._cta:
            return
        agent = self._cta.change_agents.start + warp.agent
        warp.clock[agent] += 1
        self._last[agent] = _Change(int(warp.clock[agent]), warp, warp.pc - 1)

    def from_copy(self, agent: int, clock: int, warp: Warp, pc: int) -> None:
        """A copy of a warp has landed, at a clock that its mbarrier passes on."""
        self._last[agent] = _Change(clock, warp, pc)

    def require_seen(self) -> None:
        """The CTA has ended. Raises InFlightError unless its warps knew of every change."""
        known: NDArray[np.int32] = np.maximum.reduce([warp.clock for warp in self._cta.warps])
        for agent, change in self._last.items():
            if change.clock > known[agent]:
                raise on_its_way(self._cta, change.warp, change.pc)


def on_its_way(cta: Cta, warp: Warp, pc: int) -> InFlightError:
    """A CTA has ended before what a warp's instruction does to its shared memory."""
    return InFlightError(
        f"CTA {cta.position} ended while this may still be on its way to its shared memory: "
        f"{warp.cta.place(warp.index, pc)}. Let it wait for the phase of the mbarrier that counts "
        f"this, or, for arrivals and plain stores, at a cluster barrier whose arrivals release; a "
        f"relaxed one orders nothing."
    )
