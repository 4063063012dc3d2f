"""ShapeReport: what a soak of random shapes did and found, and the tally that it is made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from db.records import Protocol
from db.reproduce import reproduce_command
from ptxgen.compile import SERIALIZED
from ptxgen.config import KernelConfig
from ptxgen.outcome import Outcome, Status
from ptxgen.problem import Problem

Counts = Mapping[tuple[str, Status], int]
"""By family and outcome."""


@dataclass(frozen=True, slots=True)
class ShapeFailure:
    """One failed check, or one legal config that could not be emitted or compiled.

    Attributes:
        problem: what was computed.
        m: the batch.
        config: the kernel's.
        status: how it ended.
        message: why.
    """

    problem: Problem
    m: int
    config: KernelConfig
    status: Status
    message: str

    @property
    def reproduce(self) -> str:
        """The command line that runs it alone, on the same weights and activations."""
        return reproduce_command(self.problem, self.m, Protocol.PLAIN, self.config)


@dataclass(frozen=True, slots=True)
class ShapeReport:
    """What a soak of random shapes did and found.

    Attributes:
        seed: of every random choice.
        seconds: wall time, from when the GPU was ready.
        problems: that were met.
        configs: compiled and checked ones by family.
        checks: a config at one batch each.
        refused: configs that the compiler refused, which is no failure.
        failures: in the order in which they were met.
        restarts: of the GPU worker.
        stopped: why it ended before its time; empty where it did not.
    """

    seed: int
    seconds: float
    problems: int
    configs: Mapping[str, int]
    checks: Counts
    refused: Counts
    failures: tuple[ShapeFailure, ...]
    restarts: int
    stopped: str = ""

    @property
    def passed(self) -> bool:
        return not self.failures and not self.stopped and self.total > 0

    @property
    def total(self) -> int:
        """Checks of all families."""
        return sum(self.checks.values())


class ShapeTally:
    """Counts what a soak of random shapes meets."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._problems: set[Problem] = set()
        self._configs: Counter[str] = Counter()
        self._checks: Counter[tuple[str, Status]] = Counter()
        self._refused: Counter[tuple[str, Status]] = Counter()
        self._failures: list[ShapeFailure] = []

    def compiled(self, config: KernelConfig) -> None:
        """A config that is going to be checked."""
        self._configs[config.family] += 1

    def checked(self, problem: Problem, m: int, config: KernelConfig, outcome: Outcome) -> None:
        """A config that has run at one batch."""
        self._problems.add(problem)
        self._checks[config.family, outcome.status] += 1
        if outcome.status is not Status.OK:
            self._fail(problem, m, config, outcome)

    def unrun(self, problem: Problem, m: int, config: KernelConfig, outcome: Outcome) -> None:
        """A legal config that gave no kernel: refused, or a failure of the emitter or compiler."""
        if is_refusal(outcome):
            self._refused[config.family, outcome.status] += 1
        else:
            self._fail(problem, m, config, outcome)

    def progress(self, seconds: float) -> str:
        """How far it is, in a line."""
        configs, checks = self._configs.total(), self._checks.total()
        return (
            f"{seconds:4.0f} s: {checks} checks ({checks / seconds:.1f}/s) of {configs} configs "
            f"({configs / seconds:.1f}/s) on {len(self._problems)} problems, "
            f"{self._refused.total()} refused by the compiler, {len(self._failures)} failures"
        )

    def report(self, seconds: float, restarts: int, stopped: str) -> ShapeReport:
        """All of it."""
        return ShapeReport(
            seed=self._seed,
            seconds=seconds,
            problems=len(self._problems),
            configs=dict(self._configs),
            checks=dict(self._checks),
            refused=dict(self._refused),
            failures=tuple(self._failures),
            restarts=restarts,
            stopped=stopped,
        )

    def _fail(self, problem: Problem, m: int, config: KernelConfig, outcome: Outcome) -> None:
        self._failures.append(ShapeFailure(problem, m, config, outcome.status, outcome.message))


def is_refusal(outcome: Outcome) -> bool:
    """Whether a compile ended in one of the ways that the search expects of some legal configs."""
    if outcome.status is Status.COMPILE_ERROR:
        return SERIALIZED in outcome.message
    return outcome.status in (Status.SPILLED, Status.COMPILE_TIMEOUT)
