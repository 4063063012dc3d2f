"""run: a launch on the interpreter, its CTAs and warps in the order of a schedule."""

from __future__ import annotations

import random
from collections import Counter
from itertools import islice

import numpy as np

from ptxgen.errors import KernelFaultError, StepLimitError
from ptxgen.interp.api import Counts, Launch, RunOptions, RunReport, Schedule
from ptxgen.interp.cluster import Cluster, check_cluster, size_of, stated_cluster
from ptxgen.interp.cta import Tally
from ptxgen.interp.global_memory import GlobalMemory
from ptxgen.interp.program import Program
from ptxgen.interp.warp import Warp

TURN = 24
"""Instructions of a turn in the round-robin schedule, and the most of a random one is 4 turns."""
_FOREVER = 1 << 20


def run(
    program: Program,
    launch: Launch,
    memory: GlobalMemory,
    schedule: Schedule | None = None,
    options: RunOptions | None = None,
) -> RunReport:
    """Runs a kernel to its end.

    Args:
        program: from load_program.
        launch: grid, block, dynamic shared memory and arguments.
        memory: read and written.
        schedule: order of warps and CTAs; round robin where None.
        options: what to watch.

    Raises:
        OutOfBoundsError, MisalignedError, UninitializedError, DivergenceError, DeadlockError,
        StepLimitError: what the kernel did wrong, with its PTX line and the races seen before.
        ValueError: the launch does not fit the program.
    """
    schedule, options = schedule or Schedule(), options or RunOptions()
    if len(launch.args) != len(program.registers.params):
        raise ValueError(
            f"the kernel takes {len(program.registers.params)} arguments, not {len(launch.args)}"
        )
    for slot, arg in zip(program.registers.params, launch.args, strict=True):
        if slot is not None and isinstance(arg, bytes):
            raise ValueError("bytes were passed for a parameter that is no structure")
    launch = stated_cluster(launch, program.entry.cluster)
    check_cluster(launch)
    tally = Tally(options, [0] * len(program.ops), [0] * len(program.ops))
    try:
        with np.errstate(all="ignore"):
            steps = _run_ctas(program, launch, memory, schedule, tally)
    except KernelFaultError as error:
        error.races = tuple(tally.races.values())
        raise
    return RunReport(
        tuple(tally.races.values()), _counts(program, tally), tuple(tally.shared), steps
    )


def _run_ctas(
    program: Program, launch: Launch, memory: GlobalMemory, schedule: Schedule, tally: Tally
) -> int:
    chooser = _Chooser(schedule)
    x, y, z = launch.cluster
    firsts = chooser.order((launch.grid[0] // x, launch.grid[1] // y, launch.grid[2] // z))
    positions = ((i * x, j * y, k * z) for i, j, k in firsts)
    resident: list[Cluster] = []
    most = max(1, schedule.resident // size_of(launch))
    steps, limit = 0, tally.options.step_limit
    while True:
        for position in islice(positions, most - len(resident)):
            resident.append(Cluster(program, launch, memory, position, tally))
        if not resident:
            return steps
        warp, budget = chooser.next_turn(resident)
        steps += warp.run(min(budget, limit - steps + 1))
        if steps > limit:
            raise StepLimitError(
                f"the kernel ran {steps} warp instructions, more than the limit of {limit}: "
                f"{warp.cta.place(warp.index, warp.pc)}. Raise RunOptions.step_limit for a larger "
                f"problem."
            )
        resident = [cluster for cluster in resident if not cluster.done]


class _Chooser:
    """Whose turn is next, for how many instructions, and which bulk copies land before it."""

    def __init__(self, schedule: Schedule) -> None:
        self._policy = schedule.policy
        # No secrets here, but runs that can be repeated.
        self._random = random.Random(schedule.seed)  # noqa: S311
        self._turn = -1
        self._ahead: Warp | None = None

    def order(self, grid: tuple[int, int, int]) -> list[tuple[int, int, int]]:
        order = [(x, y, z) for z in range(grid[2]) for y in range(grid[1]) for x in range(grid[0])]
        if self._policy == "reverse":
            order.reverse()
        elif self._policy in ("random", "one_ahead"):
            self._random.shuffle(order)
        return order

    def next_turn(self, resident: list[Cluster]) -> tuple[Warp, int]:
        self._land(resident)
        runnable = [warp for cluster in resident for warp in cluster.runnable()]
        self._turn += 1
        if self._policy == "round_robin":
            return self._after_last(runnable), TURN
        if self._policy == "reverse":
            alone = len(resident) == len(resident[0].ctas) == 1
            return runnable[-1], _FOREVER if alone else 4 * TURN
        if self._policy == "random":
            return self._random.choice(runnable), self._random.randint(1, 4 * TURN)
        return self._leader(runnable)

    def _land(self, resident: list[Cluster]) -> None:
        """Bulk copies: the oldest at every turn, or a random one at some, or as late as can be."""
        for cta in (cta for cluster in resident for cta in cluster.ctas):
            flying = len(cta.loads.flying)
            if flying and self._policy == "round_robin":
                cta.loads.land(0)
            elif flying and self._policy == "random" and self._random.random() < 1 / 2:
                cta.loads.land(self._random.randrange(flying))

    def _after_last(self, runnable: list[Warp]) -> Warp:
        """The next one in turn; those that wait are skipped."""
        return runnable[self._turn % len(runnable)]

    def _leader(self, runnable: list[Warp]) -> tuple[Warp, int]:
        """One warp runs until it must wait; then the others take small turns until it can."""
        if self._ahead is None or self._ahead.done:
            self._ahead = self._random.choice(runnable)
        if self._ahead in runnable:
            return self._ahead, 4 * TURN
        return self._random.choice(runnable), TURN


def _counts(program: Program, tally: Tally) -> Counts:
    hits = np.array(tally.hits, dtype=np.int64)
    for pc, times in enumerate(tally.block_hits):
        if times:
            hits[pc : pc + len(program.blocks[pc])] += times
    opcodes: Counter[str] = Counter()
    pipes: Counter[str] = Counter()
    for op, times in zip(program.ops, hits.tolist(), strict=True):
        if times:
            opcodes[op.statement.name] += times
            pipes[op.pipe] += times
    return Counts(opcodes, pipes, tally.bytes)
