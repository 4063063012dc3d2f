"""Mbarriers: the mbarrier objects of a CTA, their phases, and the warps that wait for them
(PTX ISA, "mbarrier")."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ptxgen.errors import MbarrierError
from ptxgen.interp.registers import Lanes

if TYPE_CHECKING:
    from ptxgen.interp.cta import Cta
    from ptxgen.interp.warp import Warp

MAX_COUNT = (1 << 20) - 1
"""Largest arrival count and largest transaction count."""
AGENTS = 64
"""Clocks beside those of the warps, for copies that mbarriers complete; further mbarriers share."""
IDLE_LIMIT = 200
"""How often all waiting warps may try again in vain before that is a deadlock."""
_COOKIE = 0x6D62617272696572
"""What the eight bytes of an mbarrier hold here; the contents are opaque by the PTX ISA."""


@dataclass(slots=True)
class _Clocks:
    """What arrivals pass on to those who wait."""

    clock: NDArray[np.int32]
    proxy: NDArray[np.int32]

    def copy(self) -> _Clocks:
        return _Clocks(self.clock.copy(), self.proxy.copy())


@dataclass(slots=True)
class Mbarrier:
    """One mbarrier object.

    Attributes:
        expected: arrivals of a phase.
        pending: arrivals still missing in the present phase.
        agent: index of the clock of the copies that it completes.
        opened: clocks of all arrivals so far.
        done: the same at the end of the last complete phase.
        phase: complete phases.
        tx: bytes announced and not yet copied; negative where the copy was first.
        arrivers: warps that arrived in the present phase.
        done_arrivers: warps that arrived in the phase before.
    """

    expected: int
    pending: int
    agent: int
    opened: _Clocks
    done: _Clocks
    phase: int = 0
    tx: int = 0
    arrivers: set[int] = field(default_factory=set)
    done_arrivers: set[int] = field(default_factory=set)


class Init(NamedTuple):
    """An mbarrier.init: where, by which lane, and the clock of its warp then."""

    cta: Cta
    address: int
    lane: int
    clock: int


class Mbarriers:
    """The mbarriers of a CTA by address."""

    def __init__(self, cta: Cta) -> None:
        self._cta = cta
        self._found: dict[int, Mbarrier] = {}
        self._ticks = [1] * AGENTS
        self._sleepers: list[tuple[Warp, Mbarrier]] = []
        self._made = 0

    def init(self, warp: Warp, lane: int, address: int, count: int) -> None:
        """mbarrier.init. Raises MbarrierError for a count outside of 1 .. MAX_COUNT."""
        if not 1 <= count <= MAX_COUNT:
            raise MbarrierError(f"an mbarrier counts 1 .. {MAX_COUNT} arrivals, not {count}.")
        self._write(warp, lane, address, None)
        warp.inits.append(Init(self._cta, address, lane, int(warp.clock[warp.agent])))
        zeros = np.zeros(self._cta.agent_count, dtype=np.int32)
        clocks = _Clocks(zeros, zeros.copy())
        agent = self._made % AGENTS
        self._made += 1
        self._found[address] = Mbarrier(count, count, agent, clocks, clocks.copy())
        self._cta.cluster.idle = 0

    def invalidate(self, warp: Warp, lane: int, address: int) -> None:
        """mbarrier.inval: its bytes are free for other use, and hold nothing."""
        self.at(warp, lane, address)
        self._write(warp, lane, address, np.ones((1, 1), dtype=np.bool_))
        del self._found[address]
        self._cta.cluster.idle = 0

    def _write(self, warp: Warp, lane: int, address: int, missing: Lanes | None) -> None:
        where = np.array([address], dtype=np.uint64)
        word = np.array([[_COOKIE]], dtype=np.uint64)
        self._cta.shared.write(warp, where, word, np.array([lane]), missing)

    def at(self, warp: Warp, lane: int, address: int) -> Mbarrier:
        """The mbarrier at an address, read by a lane.

        Raises:
            MbarrierError: there is none, or its bytes were written by another instruction.
            MisalignedError, OutOfBoundsError: no address of an mbarrier.
        """
        where = np.array([address], dtype=np.uint64)
        words, missing = self._cta.shared.read(warp, where, 8, 1, np.array([lane]))
        found = self._found.get(address)
        if found is None:
            raise MbarrierError(f"no mbarrier was initialised at shared address {address:#x}.")
        if missing is not None or int(words[0, 0]) != _COOKIE:
            raise MbarrierError(
                f"the mbarrier at shared address {address:#x} was overwritten by another write."
            )
        return found

    def expect(self, found: Mbarrier, nbytes: int) -> None:
        """expect-tx: the present phase is not complete before so many more bytes are copied."""
        self._count_bytes(found, nbytes)
        self._complete(found)

    def arrive(self, warp: Warp, lanes: Lanes, found: Mbarrier, count: int) -> int:
        """Arrivals by some of a warp's lanes; returns the phase they arrived in."""
        if not 1 <= count <= found.pending:
            raise MbarrierError(
                f"{count} arrivals at an mbarrier that waits for {found.pending} more of "
                f"{found.expected} in phase {found.phase}."
            )
        phase = found.phase
        np.maximum(found.opened.clock, warp.clock, out=found.opened.clock)
        np.maximum(found.opened.proxy, warp.proxy, out=found.opened.proxy)
        warp.clock[warp.agent] += 1
        for cta in self._cta.cluster.ctas:
            cta.shared.not_released(warp, lanes)
        found.arrivers.add(warp.agent)
        found.pending -= count
        self._complete(found)
        return phase

    def copied(self, found: Mbarrier, nbytes: int) -> None:
        """complete-tx: bytes have been copied."""
        self._count_bytes(found, -nbytes)
        self._complete(found)

    def valid(self, address: int, found: Mbarrier) -> bool:
        """Whether an mbarrier is still the one at an address."""
        return self._found.get(address) is found

    def tick(self, found: Mbarrier) -> int:
        """Clock of a copy that the present phase completes."""
        return self._ticks[found.agent]

    def _count_bytes(self, found: Mbarrier, nbytes: int) -> None:
        found.tx += nbytes
        self._cta.cluster.idle = 0
        if abs(found.tx) > MAX_COUNT:
            raise MbarrierError(
                f"an mbarrier counts at most {MAX_COUNT} bytes; {found.tx} are too many."
            )

    def _complete(self, found: Mbarrier) -> None:
        """Ends the phase where nothing is missing, and wakes those who wait for that."""
        self._cta.cluster.idle = 0
        if found.pending or found.tx:
            return
        agent, tick = self._cta.first_copy_agent + found.agent, self._ticks[found.agent]
        if agent < self._cta.agent_count:
            found.opened.clock[agent] = found.opened.proxy[agent] = tick
        self._ticks[found.agent] += 1
        found.done = found.opened.copy()
        found.done_arrivers, found.arrivers = found.arrivers, set()
        found.phase += 1
        found.pending = found.expected
        self._wake(lambda which: which is found)

    def passed(self, warp: Warp, found: Mbarrier, whole: bool) -> None:
        """A warp has seen the phase before complete: what came before that is visible to it.

        Args:
            warp: one that waited.
            found: for what.
            whole: all of its lanes did; their own arrivals order them among each other then.
        """
        np.maximum(warp.clock, found.done.clock, out=warp.clock)
        np.maximum(warp.proxy, found.done.proxy, out=warp.proxy)
        if whole and warp.agent in found.done_arrivers:
            warp.sync += 1

    def sleep(self, warp: Warp, found: Mbarrier, address: int) -> None:
        """A warp has waited in vain: it tries again when the phase ends, or nobody else can run."""
        warp.waiting = (
            f"the mbarrier at {address:#x}, phase {found.phase}, which lacks {found.pending} of "
            f"{found.expected} arrivals and {found.tx} bytes"
        )
        warp.turn()
        self._sleepers.append((warp, found))

    def wake_all(self) -> bool:
        """Lets all try again, since nobody else can run; whether there were any."""
        return self._wake(lambda _: True)

    def _wake(self, which: Callable[[Mbarrier], bool]) -> bool:
        woken = [warp for warp, found in self._sleepers if which(found)]
        self._sleepers = [(warp, found) for warp, found in self._sleepers if not which(found)]
        for warp in woken:
            warp.waiting = ""
        return bool(woken)
