"""TuneJob and TuneSummary: what a tuning run is asked to do, and what came of it. Data only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from db.records import DeviceRecord, Protocol, ToolchainRecord
from ptxgen.env import cache_dir
from ptxgen.errors import ProblemError, PtxtuneError
from ptxgen.families import FAMILIES
from ptxgen.families.base import Family
from ptxgen.families.invariant import invariant_families
from ptxgen.problem import Problem, check_m
from search.budget import PRESETS, Budget
from search.compile_pool import HANDLER, TIMEOUT_S
from search.events import Task, TaskEnded
from search.ledger import LedgerEntry
from search.samplers import check_sampler
from search.worker import Limits

EVALUATOR = "search.gpu_evaluator:create"


@dataclass(frozen=True, slots=True)
class TuneJob:
    """One tuning run.

    Attributes:
        problems: what is tuned.
        buckets: batch sizes, each > 0.
        protocols: how launches follow each other while they are timed.
        toolchain: of this process; the driver's version is filled in from the device.
        budget: limits of each problem x bucket x protocol.
        sampler: tpe, random or exhaustive; None: exhaustive for small spaces, else tpe.
        seed: of every random choice.
        refresh: measure again what earlier runs have measured.
        baseline: time cuBLAS, and from M = 64 on dequantize + matmul, in the finals.
        evaluator: "module:function" that makes the evaluator in the worker process.
        evaluator_options: plain JSON data for it.
        limits: timeouts of the worker.
        cache_root: compile cache; the user's where None.
        compile_workers: processes; one a core, at most 8, where None.
        compile_timeout_s: of one compile.
        compile_handler: "module:function" that compiles in the processes of the pool.
        families: kernel families; all registered ones where None.
        lock_folder: folder of the host-wide GPU lock; the temporary folder where None.
        gpu_uuid: the only GPU that the worker process sees; empty: those that this process sees.
        batch_invariant: search only configs whose result for a row does not depend on M.
    """

    problems: tuple[Problem, ...]
    buckets: tuple[int, ...]
    toolchain: ToolchainRecord
    protocols: tuple[Protocol, ...] = (Protocol.PLAIN,)
    budget: Budget = PRESETS["quick"]
    sampler: str | None = None
    seed: int = 0
    refresh: bool = False
    baseline: bool = True
    evaluator: str = EVALUATOR
    evaluator_options: Mapping[str, Any] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    cache_root: Path | None = None
    compile_workers: int | None = None
    compile_timeout_s: float = TIMEOUT_S
    compile_handler: str = HANDLER
    families: Mapping[str, Family] | None = None
    lock_folder: Path | None = None
    gpu_uuid: str = ""
    batch_invariant: bool = False

    def __post_init__(self) -> None:
        if not self.problems or not self.buckets or not self.protocols:
            raise ProblemError(
                "there is nothing to tune: give at least one problem, one M and one protocol."
            )
        if self.sampler is not None:
            check_sampler(self.sampler)
        for m in self.buckets:
            if check_m(m) == 0:
                raise ProblemError("M = 0 needs no kernel and cannot be tuned; give M >= 1.")

    def tasks(self) -> tuple[Task, ...]:
        """Every problem x bucket x protocol, once each, one problem after the other."""
        found = (
            Task(problem, m, protocol, self.batch_invariant)
            for problem in self.problems
            for m in sorted(set(self.buckets))
            for protocol in self.protocols
        )
        return tuple(dict.fromkeys(found))

    def kernel_families(self) -> Mapping[str, Family]:
        """The families to search. Raises ConfigError where none of them is batch-invariant."""
        found = FAMILIES if self.families is None else self.families
        return invariant_families(found) if self.batch_invariant else found

    def cache_folder(self) -> Path:
        """The compile cache's folder."""
        return self.cache_root or cache_dir()

    def settings(self) -> dict[str, Any]:
        """What the run's row records of this job, as JSON data."""
        return {
            "problems": [problem.key() for problem in self.problems],
            "buckets": list(self.buckets),
            "protocols": [protocol.value for protocol in self.protocols],
            "trials": self.budget.trials,
            "patience": self.budget.patience,
            "seconds": self.budget.seconds,
            "sampler": self.sampler,
            "seed": self.seed,
            "refresh": self.refresh,
            "batch_invariant": self.batch_invariant,
        }


@dataclass(frozen=True, slots=True)
class TuneSummary:
    """What came of a run.

    Attributes:
        run_id: in the database.
        device: the GPU.
        toolchain: what the results depend on besides it.
        tasks: how every finished search ended, in order.
        ledger: failures by class.
        interrupted: the user ended it early.
        predicted: nothing was run; times are the model's.
        restarts: of the GPU worker.
    """

    run_id: int
    device: DeviceRecord
    toolchain: ToolchainRecord
    tasks: tuple[TaskEnded, ...]
    ledger: tuple[LedgerEntry, ...] = ()
    interrupted: bool = False
    predicted: bool = False
    restarts: int = 0

    @property
    def won(self) -> int:
        """Searches that have a winner."""
        return sum(task.config is not None for task in self.tasks)


class NothingMeasuredError(PtxtuneError):
    """A run that ended without a single winner, and was not interrupted.

    Attributes:
        summary: what did happen.
    """

    exit_code = 3

    def __init__(self, message: str, summary: TuneSummary) -> None:
        super().__init__(message)
        self.summary = summary
