"""ShapeAhead: draws, emits and compiles rounds of a soak of random shapes ahead of their checks."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from db.records import Protocol
from ptxgen.arch import ArchSpec
from ptxgen.config import KernelConfig
from ptxgen.families.base import Family
from ptxgen.outcome import Outcome, Status
from ptxgen.problem import Problem
from ptxgen.source import KernelSource
from search.compile_pool import Compiled, CompilePool
from search.context import emit_source
from search.evaluator import Candidate
from search.events import Task
from search.shapes import CONFIGS, Round, draw_round


@dataclass(frozen=True, slots=True)
class PlannedKernel:
    """A config whose kernel is being compiled.

    Attributes:
        config: the config.
        source: its kernel; an outcome where the emitter failed.
        compiled: the compile; None where there is nothing to compile.
    """

    config: KernelConfig
    source: KernelSource | Outcome
    compiled: Future[Compiled] | None

    def candidate(self) -> Candidate | Outcome:
        """The kernel, or the outcome that says why there is none. Waits for the compile."""
        if isinstance(self.source, Outcome):
            return self.source
        done = self.compiled.result() if self.compiled else Compiled()
        if done.failure is not None or done.resources is None:
            return done.failure or Outcome(Status.COMPILE_ERROR, "no cubin")
        return Candidate(
            self.config,
            self.source.plan,
            self.source.entry,
            done.cubin_path,
            done.resources,
            self.source.digest(),
        )


@dataclass(frozen=True, slots=True)
class PlannedRound:
    """A round whose kernels are being compiled."""

    problem: Problem
    batches: tuple[int, ...]
    kernels: tuple[PlannedKernel, ...]


class ShapeAhead:
    """Rounds 0, 1, 2... of a seed; a thread plans so many ahead that no compile process waits.

    Args:
        seed: of all rounds.
        arch: the GPU's.
        families: to draw from.
        pool: compiles.
    """

    def __init__(
        self, seed: int, arch: ArchSpec, families: Mapping[str, Family], pool: CompilePool
    ) -> None:
        self._arch, self._families, self._pool = arch, families, pool
        self._draw = partial(draw_round, seed, arch=arch, families=families)
        self._depth = 2 + 2 * pool.workers // CONFIGS
        self._planner = ThreadPoolExecutor(1, thread_name_prefix="shapes")

    def rounds(self) -> Iterator[Future[PlannedRound]]:
        """All rounds, without end."""
        planned: deque[Future[PlannedRound]] = deque()
        number = 0
        while True:
            while len(planned) <= self._depth:
                planned.append(self._planner.submit(self._plan, number))
                number += 1
            yield planned.popleft()

    def close(self) -> None:
        """Waits for the round that is being planned, and drops the others."""
        self._planner.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> ShapeAhead:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _plan(self, number: int) -> PlannedRound:
        drawn = self._draw(number)
        kernels = tuple(self._kernel(drawn, config) for config in drawn.configs)
        return PlannedRound(drawn.problem, drawn.batches, kernels)

    def _kernel(self, drawn: Round, config: KernelConfig) -> PlannedKernel:
        task = Task(drawn.problem, drawn.batches[0], Protocol.PLAIN)
        source = emit_source(task, config, self._arch, self._families)
        compiled = None if isinstance(source, Outcome) else self._pool.submit(source)
        return PlannedKernel(config, source, compiled)
