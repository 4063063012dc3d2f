"""The sixteen barriers of a CTA: who has arrived, who waits, and the clocks they pass on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ptxgen.errors import BarrierError
from ptxgen.interp.registers import LANES

if TYPE_CHECKING:
    from ptxgen.interp.cta import Cta
    from ptxgen.interp.warp import Warp

COUNT = 16
"""Barriers of a CTA."""


@dataclass(slots=True)
class _Barrier:
    """One barrier's present phase."""

    clock: NDArray[np.int32]
    proxy: NDArray[np.int32]
    expected: int = 0
    arrived: int = 0
    waiters: list[Warp] = field(default_factory=list)


def check_barrier(which: int, threads: Sequence[int]) -> None:
    """Raises BarrierError for a number or a count of threads, where given, that cannot be."""
    if which >= COUNT or any(count % LANES or not count for count in threads):
        raise BarrierError(
            f"barrier {which} of {', '.join(map(str, threads)) or 'all'} threads: a barrier is "
            f"0 .. {COUNT - 1}, and counts whole warps of {LANES}."
        )


class Barriers:
    """Barriers by number; expected 0 means every warp that has not ended."""

    def __init__(self, cta: Cta) -> None:
        self._cta = cta
        self._open: dict[int, _Barrier] = {}

    def arrive(self, warp: Warp, which: int, expected: int, waits: bool) -> None:
        """A warp arrives, and waits unless the barrier is complete by that.

        Raises:
            BarrierError: the warps that arrived before expect another number of warps.
        """
        found = self._open.get(which)
        if found is None:
            zeros = np.zeros(self._cta.agent_count, dtype=np.int32)
            found = self._open[which] = _Barrier(zeros, zeros.copy(), expected)
        everyone = self._cta.warp_count
        if (found.expected or everyone) != (expected or everyone):
            raise BarrierError(
                f"barrier {which} was told {found.expected} warps by one and {expected} by another "
                f"(0: all of the CTA)."
            )
        found.arrived += 1
        np.maximum(found.clock, warp.clock, out=found.clock)
        np.maximum(found.proxy, warp.proxy, out=found.proxy)
        warp.clock[warp.agent] += 1
        if waits:
            found.waiters.append(warp)
            warp.waiting = f"barrier {which}"
        self._release(which, found)

    def warp_ended(self) -> None:
        """A warp less to wait for."""
        for which, found in list(self._open.items()):
            self._release(which, found)

    def _release(self, which: int, found: _Barrier) -> None:
        running = sum(1 for warp in self._cta.warps if not warp.done)
        if found.arrived < (found.expected or running):
            return
        del self._open[which]
        for warp in found.waiters:
            warp.waiting = ""
            warp.sync += 1
            np.maximum(warp.clock, found.clock, out=warp.clock)
            np.maximum(warp.proxy, found.proxy, out=warp.proxy)
