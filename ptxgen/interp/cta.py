"""Cta: the warps of one CTA with their shared memory, and what a run keeps count of."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ptxgen.interp.api import Access, AccessKind, Launch, Race, RunOptions, SharedAccess
from ptxgen.interp.barriers import Barriers
from ptxgen.interp.bulk import BulkLoads
from ptxgen.interp.global_memory import GlobalMemory
from ptxgen.interp.incoming import Incoming
from ptxgen.interp.mbarriers import AGENTS, Mbarriers
from ptxgen.interp.parameters import Parameters
from ptxgen.interp.program import Program
from ptxgen.interp.register_moves import require_whole_warpgroups
from ptxgen.interp.registers import (
    CLUSTER_RANK,
    CLUSTER_SIZE,
    DTYPES,
    LANE_ID,
    LANES,
    SPECIALS,
    WARP_ID,
    Lanes,
    Registers,
)
from ptxgen.interp.shadow import Before, RaceShadow
from ptxgen.interp.shared_memory import SHARED_BASE, SharedMemory
from ptxgen.interp.warp import Warp

if TYPE_CHECKING:
    from ptxgen.interp.cluster import Cluster


@dataclass(slots=True)
class Tally:
    """What all CTAs of a run add to."""

    options: RunOptions
    hits: list[int]
    block_hits: list[int]
    bytes: Counter[str] = field(default_factory=Counter)
    races: dict[tuple[int, int, bool], Race] = field(default_factory=dict)
    shared: list[SharedAccess] = field(default_factory=list)


class Cta:
    """One CTA.

    Attributes:
        program: what its warps run.
        memory: global memory.
        shared: shared memory.
        warps: its warps; warp_count of them.
        cluster: the cluster it belongs to, as its CTA of that rank.
        agent_count: clocks of the cluster: of its warps, of what these change in each other's CTAs,
            and of copies in bulk where there are any.
        change_agents: the second of these, a clock a warp; none where a CTA is alone.
        first_copy_agent: the first clock of copies that its own mbarriers complete.
        barriers: its named barriers.
        mbarriers: its mbarrier objects.
        loads: its cp.async.bulk to shared memory that are in flight.
        incoming: what others and copies did to its shared memory.
        parameters: arguments that are structures.
        hits: executions by PC, of instructions run singly.
        block_hits: executions by first PC, of whole blocks of pure instructions.
    """

    def __init__(
        self,
        program: Program,
        launch: Launch,
        memory: GlobalMemory,
        position: tuple[int, int, int],
        tally: Tally,
        *,
        cluster: Cluster,
        rank: int,
    ) -> None:
        self.cluster = cluster
        self.rank = rank
        self.program = program
        self.memory = memory
        self.position = position
        self.hits, self.block_hits = tally.hits, tally.block_hits
        self._tally = tally
        threads = launch.block[0] * launch.block[1] * launch.block[2]
        self.warp_count = -(-threads // LANES)
        size = launch.cluster[0] * launch.cluster[1] * launch.cluster[2]
        warps = size * self.warp_count
        self.change_agents = slice(warps, warps + (warps if size > 1 else 0))
        copies = self.change_agents.stop
        self.agent_count = copies + (size * AGENTS if program.copies_in_bulk else 0)
        self.first_copy_agent = copies + rank * AGENTS
        end = SHARED_BASE + program.shared_bytes(launch.smem_bytes)
        shadow = None
        if tally.options.races:
            shadow = RaceShadow(end, warps, program.shadow_unit, self._race)
        self.shared = SharedMemory(end, fill=0xFF, shadow=shadow)
        self._shadow = shadow
        self.barriers = Barriers(self)
        self.mbarriers = Mbarriers(self)
        self.loads = BulkLoads(self)
        self.incoming = Incoming(self)
        self.parameters = Parameters(program.registers.structures, launch.args)
        self.warps = [
            Warp(self, index, self._registers(launch, index), _live(threads, index))
            for index in range(self.warp_count)
        ]

    @property
    def done(self) -> bool:
        return all(warp.done for warp in self.warps)

    def warp_done(self, warp: Warp) -> None:
        """Told by a warp that ends.

        Raises:
            InFlightError: copies are not complete, or nothing orders them, or accesses of others
                that change shared memory, before the end of the CTA.
            DivergenceError: registers were moved by a part of a warpgroup.
        """
        warp.stores.end(warp)
        if self.done:
            require_whole_warpgroups(self.warps)
            self.loads.require_none()
            self.incoming.require_seen()
        self.barriers.warp_ended()
        self.cluster.warp_ended()

    def record(self, what: str, warp: Warp, addresses: Lanes, nbytes: int) -> None:
        """Counts an access; keeps shared addresses where asked to."""
        self._tally.bytes[what] += len(addresses) * nbytes
        if self._tally.options.record_shared and what in (
            "shared_read",
            "shared_write",
            "async_copy",
        ):
            statement = self.program.ops[warp.pc - 1].statement
            self._tally.shared.append(
                SharedAccess(
                    statement.name,
                    statement.line,
                    statement.source_line,
                    warp.index,
                    nbytes,
                    tuple(addresses.tolist()),
                )
            )

    def place(self, warp: int, pc: int) -> str:
        """Where a warp is, in words."""
        statement = self.program.ops[pc].statement
        source = f" (source line {statement.source_line})" if statement.source_line else ""
        return (
            f"PTX line {statement.line}{source}, `{statement.text}`, warp {warp} of CTA "
            f"{self.position}"
        )

    def _race(self, unit: int, before: Before, second: Warp) -> None:
        warp, pc, wrote = before
        second_pc = second.pc - 1
        key = (pc, second_pc, wrote)
        if key in self._tally.races or self._shadow is None:
            return
        pending = wrote and (self._shadow.is_pending(unit) or warp in self.loads.issuers)
        warp = self.loads.issuers.get(warp, warp)
        kind: AccessKind = "copy" if pending else "write" if wrote else "read"
        first = self._access(kind, *divmod(warp, self.warp_count), pc)
        now = self._access(
            self.program.shared_kind(second_pc), second.cta.rank, second.index, second_pc
        )
        self._tally.races[key] = Race(unit * self._shadow.unit, self.position, first, now)

    def _access(self, kind: AccessKind, rank: int, warp: int, pc: int) -> Access:
        statement = self.program.ops[pc].statement
        return Access(kind, warp, statement.line, statement.source_line, statement.text, rank)

    def _registers(self, launch: Launch, warp: int) -> Registers:
        """A warp's initial registers."""
        program = self.program
        registers = list(program.registers.template)
        for name, slot in program.registers.specials.items():
            registers[slot] = self._special(name, launch, warp)
        for param, value in zip(program.registers.params, launch.args, strict=True):
            if param is not None and isinstance(value, int):
                dtype = registers[param].dtype
                full = (1 << dtype.itemsize * 8) - 1
                registers[param] = np.full(LANES, value & full, dtype=dtype)
        for (name, bits), slot in program.registers.symbols.items():
            address = SHARED_BASE + program.shared_offsets[name]
            registers[slot] = np.full(LANES, address, dtype=DTYPES[bits])
        return registers

    def _special(self, name: str, launch: Launch, warp: int) -> Lanes:
        lanes = np.arange(LANES, dtype=np.uint32)
        if name == LANE_ID:
            return lanes
        if name == WARP_ID:
            return np.full(LANES, warp, dtype=np.uint32)
        size = launch.cluster
        if name in (CLUSTER_RANK, CLUSTER_SIZE):
            count = size[0] * size[1] * size[2]
            return np.full(LANES, self.rank if name == CLUSTER_RANK else count, dtype=np.uint32)
        thread = lanes + np.uint32(warp * LANES)
        x, y, _ = launch.block
        tid = (thread % x, thread // x % y, thread // (x * y))
        base, axis = name.removeprefix("%").split(".")
        index = "xyz".index(axis)
        if base == "tid":
            return tid[index].astype(np.uint32)
        at, many = self.position[index], launch.grid[index]
        values = {
            "ntid": launch.block[index],
            "ctaid": at,
            "nctaid": many,
            "cluster_ctaid": at % size[index],
            "cluster_nctaid": size[index],
            "clusterid": at // size[index],
            "nclusterid": many // size[index],
        }
        assert name in SPECIALS  # noqa: S101 - the decoder hands out no other name
        return np.full(LANES, values[base], dtype=np.uint32)


def _live(threads: int, warp: int) -> Lanes | None:
    rest = threads - warp * LANES
    return None if rest >= LANES else np.arange(LANES) < rest
