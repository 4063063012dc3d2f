"""Cluster: CTAs that run together, their barrier, and each other's shared memory (PTX ISA,
"barrier.cluster", "mapa", "State Spaces")."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ptxgen.errors import DeadlockError, DivergenceError, OutOfBoundsError
from ptxgen.interp.api import Launch
from ptxgen.interp.cta import Cta, Tally
from ptxgen.interp.global_memory import GlobalMemory
from ptxgen.interp.mbarriers import IDLE_LIMIT, Init
from ptxgen.interp.program import Program
from ptxgen.interp.remote import MAX_RANKS

if TYPE_CHECKING:
    from ptxgen.interp.warp import Warp


class Cluster:
    """CTAs of one cluster; without clusters, one CTA.

    Attributes:
        ctas: by rank.
        idle: how often all waiting warps tried again since an mbarrier last changed.
    """

    def __init__(
        self,
        program: Program,
        launch: Launch,
        memory: GlobalMemory,
        first: tuple[int, int, int],
        tally: Tally,
    ) -> None:
        self.ctas: list[Cta] = []
        self.idle = 0
        for rank in range(size_of(launch)):
            x, y, z = ranked(rank, launch.cluster)
            position = (first[0] + x, first[1] + y, first[2] + z)
            self.ctas.append(Cta(program, launch, memory, position, tally, cluster=self, rank=rank))
        self._warps = sum(cta.warp_count for cta in self.ctas)
        self._new_phase(self.ctas[0].agent_count)
        self._phase = 0
        self._arrived_in: dict[int, int] = {}

    @property
    def done(self) -> bool:
        return all(cta.done for cta in self.ctas)

    def runnable(self) -> list[Warp]:
        """Warps that neither wait nor have ended. Raises DeadlockError where all others wait."""
        found = self._awake()
        while not found and self._stir():
            found = self._awake()
        if not found and not self.done:
            waiting = "; ".join(
                f"{cta.place(warp.index, warp.pc - 1)} for {warp.waiting}"
                for cta in self.ctas
                for warp in cta.warps
                if not warp.done
            )
            raise DeadlockError(f"every warp that has not ended waits for another: {waiting}.")
        return found

    def _stir(self) -> bool:
        """Nobody can run: whether something has happened that may change that."""
        flying = [cta for cta in self.ctas if cta.loads.flying]
        for cta in flying:
            cta.loads.land(-1)
        if flying:
            return True
        self.idle += 1
        woken = [cta.mbarriers.wake_all() for cta in self.ctas if self.idle <= IDLE_LIMIT]
        return any(woken)

    def _awake(self) -> list[Warp]:
        return [w for cta in self.ctas for w in cta.warps if not w.done and not w.waiting]

    def cta_at(self, rank: int) -> Cta:
        """A CTA whose shared memory is asked for. Raises OutOfBoundsError."""
        self.require_rank(rank)
        if self.ctas[rank].done:
            raise OutOfBoundsError(
                f"the CTA of rank {rank} has ended; its shared memory is gone. Let it wait at a "
                f"cluster barrier until the others no longer need it (one that releases, if they "
                f"change it), or for the mbarrier that their arrivals and copies count on."
            )
        return self.ctas[rank]

    def require_rank(self, rank: int) -> None:
        """Raises OutOfBoundsError for a rank that the cluster does not have."""
        if rank >= len(self.ctas):
            raise OutOfBoundsError(
                f"rank {rank} lies outside the cluster, which has {len(self.ctas)} CTAs."
            )

    def arrive(self, warp: Warp, releases: bool) -> None:
        """barrier.cluster.arrive; relaxed ones pass on what a fence before them has released.

        Raises:
            DivergenceError: the warp has arrived already.
        """
        if self._arrived_in.get(warp.agent) is not None:
            raise DivergenceError("a warp arrived at the cluster barrier twice without a wait.")
        self._arrived_in[warp.agent] = self._phase
        passed_on = (warp.clock, warp.proxy) if releases else warp.released
        if passed_on:
            np.maximum(self._clock, passed_on[0], out=self._clock)
            np.maximum(self._proxy, passed_on[1], out=self._proxy)
        self._inits += [(warp.agent, item) for item in warp.released_inits]
        warp.released_inits = []
        warp.clock[warp.agent] += 1
        self._arrived += 1
        self._complete()

    def wait(self, warp: Warp) -> None:
        """barrier.cluster.wait. Raises DivergenceError without an arrival before."""
        if warp.agent not in self._arrived_in:
            raise DivergenceError("a warp waits at the cluster barrier without having arrived.")
        if self._arrived_in[warp.agent] == self._phase:
            warp.waiting = "the cluster barrier"
            self._waiters.append(warp)
        else:
            self._passed(warp)

    def warp_ended(self) -> None:
        """A warp less to wait for."""
        self._complete()

    def _complete(self) -> None:
        running = sum(not warp.done for cta in self.ctas for warp in cta.warps)
        if not self._arrived or self._arrived < running:
            return
        self._phase += 1
        self._done = (self._clock, self._proxy)
        for agent, item in self._inits:
            item.cta.shared.settle(item.address, agent, item.clock)
        waiters = self._waiters
        self._new_phase(len(self._clock))
        for warp in waiters:
            warp.waiting = ""
            self._passed(warp)

    def _passed(self, warp: Warp) -> None:
        del self._arrived_in[warp.agent]
        warp.sync += 1
        np.maximum(warp.clock, self._done[0], out=warp.clock)
        np.maximum(warp.proxy, self._done[1], out=warp.proxy)

    def _new_phase(self, agents: int) -> None:
        self._arrived = 0
        self._waiters: list[Warp] = []
        self._inits: list[tuple[int, Init]] = []
        self._clock, self._proxy = np.zeros((2, agents), dtype=np.int32)


def size_of(launch: Launch) -> int:
    """CTAs of a cluster."""
    return launch.cluster[0] * launch.cluster[1] * launch.cluster[2]


def ranked(rank: int, cluster: tuple[int, int, int]) -> tuple[int, int, int]:
    """Position in its cluster of the CTA of a rank."""
    return rank % cluster[0], rank // cluster[0] % cluster[1], rank // (cluster[0] * cluster[1])


def stated_cluster(launch: Launch, stated: tuple[int, int, int] | None) -> Launch:
    """The launch with the cluster that the kernel states. Raises ValueError for another one."""
    if stated is None or launch.cluster == stated:
        return launch
    if launch.cluster != (1, 1, 1):
        raise ValueError(
            f"the launch has clusters of {launch.cluster} CTAs, and the kernel states {stated}"
        )
    return replace(launch, cluster=stated)


def check_cluster(launch: Launch) -> None:
    """Raises ValueError where the grid is no multiple of the cluster, or that is too large."""
    fits = all(c >= 1 and g % c == 0 for g, c in zip(launch.grid, launch.cluster, strict=True))
    if not fits or size_of(launch) > MAX_RANKS:
        raise ValueError(
            f"a grid of {launch.grid} is no whole number of clusters of {launch.cluster} CTAs, of "
            f"which a cluster has at most {MAX_RANKS}"
        )
