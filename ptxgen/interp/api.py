"""What goes into the interpreter and what comes out: launches, schedules, races, reports."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

Policy = Literal["round_robin", "random", "reverse", "one_ahead"]
AccessKind = Literal["read", "write", "copy"]

POLICIES: tuple[Policy, ...] = ("round_robin", "random", "reverse", "one_ahead")


@dataclass(frozen=True, slots=True)
class Schedule:
    """In which order warps and CTAs take their turns. Equal schedules give equal runs.

    Attributes:
        seed: of every random choice.
        policy: "round_robin" takes warps in turns of a few instructions, CTAs in order;
            "random" takes a random warp for a random while, CTAs shuffled; "reverse" runs the last
            runnable warp until it blocks, CTAs from the last to the first; "one_ahead" lets one
            random warp run as far ahead of the others as barriers allow, CTAs shuffled.
        resident: CTAs that run interleaved; the next starts where one has ended.
    """

    seed: int = 0
    policy: Policy = "round_robin"
    resident: int = 1


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch.

    Attributes:
        grid: CTAs in x, y, z.
        block: threads of a CTA in x, y, z.
        smem_bytes: dynamic shared memory of a CTA.
        args: kernel arguments in order: ints, pointers as GlobalMemory addresses; bytes for a
            structure by value, such as encode_map's of a tensor map.
        cluster: CTAs of a cluster in x, y, z; they run together. A kernel that states its cluster
            itself (.reqnctapercluster) may be launched without.
    """

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    smem_bytes: int
    args: tuple[int | bytes, ...]
    cluster: tuple[int, int, int] = (1, 1, 1)


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Attributes:
    races: watch shared memory for unsynchronised accesses.
    record_shared: keep the addresses of shared-memory accesses in RunReport.shared_accesses.
    step_limit: warp instructions after which a run counts as endless.
    """

    races: bool = True
    record_shared: bool = False
    step_limit: int = 50_000_000


@dataclass(frozen=True, slots=True)
class Access:
    """Who touched shared memory.

    Attributes:
        kind: "read", "write" or "copy" (an asynchronous copy that was not waited for).
        warp: warp of the CTA.
        ptx_line: line of the PTX text, from 1.
        source_line: line of the CUDA text (PTX compiled with -lineinfo), or 0.
        text: the PTX instruction.
        rank: which CTA of its cluster the warp belongs to.
    """

    kind: AccessKind
    warp: int
    ptx_line: int
    source_line: int
    text: str
    rank: int = 0


_ASYNC_READS = ("wgmma", "cp.async.bulk.global")
"""Instructions that see ordinary writes only after a fence."""


@dataclass(frozen=True, slots=True)
class Race:
    """Two accesses to the same shared memory, one a write, with no synchronisation between.

    Attributes:
        address: shared address of the first byte seen.
        cta: index of the CTA in x, y, z.
        first: the earlier access in this run.
        second: the later one; where both are of one warp, two of its lanes race.
    """

    address: int
    cta: tuple[int, int, int]
    first: Access
    second: Access

    def __str__(self) -> str:
        def told(access: Access) -> str:
            rank = f" of rank {access.rank}" if access.rank else ""
            source = f", source line {access.source_line}" if access.source_line else ""
            return (
                f"{access.kind} by warp {access.warp}{rank} ({access.text} at PTX line "
                f"{access.ptx_line}{source})"
            )

        fence = " after a fence.proxy.async" if self.second.text.startswith(_ASYNC_READS) else ""
        return (
            f"race on shared address {self.address:#x} in CTA {self.cta}: {told(self.first)} and "
            f"{told(self.second)} have no barrier{fence} between them"
        )


@dataclass(frozen=True, slots=True)
class SharedAccess:
    """One warp's shared-memory access.

    Attributes:
        opcode: with its modifiers, such as ld.shared.v4.b32.
        ptx_line: line of the PTX text, from 1.
        source_line: line of the CUDA text (PTX compiled with -lineinfo), or 0.
        warp: warp of the CTA.
        lane_bytes: bytes that each address stands for (16 for a row of ldmatrix).
        addresses: shared addresses of the active lanes (ldmatrix: of the rows, matrix by matrix).
    """

    opcode: str
    ptx_line: int
    source_line: int
    warp: int
    lane_bytes: int
    addresses: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Counts:
    """What a run executed.

    Attributes:
        opcodes: warp instructions by opcode with its modifiers (lop3.b32), all warps together.
        pipes: warp instructions by pipe: alu, fma, half, tensor, lsu, control, convert.
        bytes: bytes by memory space and direction: global_read, global_write, shared_read,
            shared_write, cluster_read, cluster_write (.shared::cluster); async_copy (global to
            shared) and matrix_read (wgmma, from shared) are in none of these.
    """

    opcodes: Counter[str] = field(default_factory=Counter)
    pipes: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class RunReport:
    """What a run did besides writing global memory.

    Attributes:
        races: each pair of instructions once.
        counts: instructions and bytes.
        shared_accesses: in order, where RunOptions.record_shared asked for them.
        steps: warp instructions executed.
    """

    races: tuple[Race, ...]
    counts: Counts
    shared_accesses: tuple[SharedAccess, ...]
    steps: int
