"""Soak of random shapes: checks random legal configs of all families on random problems, any M.

Every check is the evaluator's own (search.gpu_evaluator), in the worker process that may die;
nothing is timed and nothing is stored.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

from db.records import Protocol
from ptxgen.config import KernelConfig
from ptxgen.errors import DriverError
from ptxgen.families import FAMILIES
from ptxgen.families.base import Family
from ptxgen.outcome import Outcome, Status
from ptxgen.problem import Problem
from search.compile_pool import HANDLER, TIMEOUT_S, CompilePool, cores
from search.context import StoppedError
from search.evaluator import Candidate, Effort, EvaluateRequest
from search.gpu_lock import GpuLock
from search.job import EVALUATOR
from search.shape_ahead import PlannedKernel, PlannedRound, ShapeAhead
from search.shape_report import ShapeReport, ShapeTally
from search.soak import LOOK_S, PROGRESS_S, noticed
from search.worker import GpuWorker, Limits

MAX_COMPILERS = 15
"""A check takes some ten milliseconds, a compile some hundred to a thousand."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ShapeJob:
    """One soak of random shapes.

    Attributes:
        cache_root: folder for the compiled kernels.
        seconds: how long kernels are checked, from when the GPU is ready.
        seed: of every random choice; weights and activations are those of ptxtune one.
        families: to draw from; each is as likely as any other.
        evaluator: "module:function" of the evaluator's factory.
        evaluator_options: for it.
        limits: timeouts of the GPU worker.
        compile_workers: processes; by default one a core but for one, at most 15.
        compile_handler: "module:function" of the compile processes' handler.
        compile_timeout_s: a compile that takes longer is killed.
        lock_folder: where the GPU's lock lies; None: the host's.
        gpu_uuid: the only GPU that the worker sees; empty: those that this process sees.
        rounds: problems after which it ends, whatever time is left; None: only the time counts.
        clock: seconds since any moment.
    """

    cache_root: Path
    seconds: float
    seed: int = 0
    families: Mapping[str, Family] = field(default_factory=lambda: FAMILIES)
    evaluator: str = EVALUATOR
    evaluator_options: Mapping[str, Any] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    compile_workers: int | None = None
    compile_handler: str = HANDLER
    compile_timeout_s: float = TIMEOUT_S
    lock_folder: Path | None = None
    gpu_uuid: str = ""
    rounds: int | None = None
    clock: Callable[[], float] = time.monotonic


def soak_shapes(job: ShapeJob, say: Say = lambda text: None) -> ShapeReport:
    """Checks until the time is over, or until SIGINT or SIGTERM (noticed in the main thread alone).

    Args:
        job: what to do.
        say: told about the progress every few seconds.

    Returns:
        What was done and found until then.

    Raises:
        DriverError: there is no working GPU to begin with.
    """
    stop = Event()
    compilers = job.compile_workers or max(1, min(MAX_COMPILERS, cores() - 1))
    with (
        noticed(stop) as signals,
        GpuWorker(job.evaluator, dict(job.evaluator_options), job.limits, job.gpu_uuid) as worker,
        CompilePool(job.cache_root, compilers, job.compile_timeout_s, job.compile_handler) as pool,
    ):
        device = worker.device()
        arch = device.arch
        lock = GpuLock(device.uuid or device.name, job.lock_folder)
        with ShapeAhead(job.seed, arch, job.families, pool) as ahead:
            checks = _Checks(job, worker, lock, stop, say)
            stopped = checks.run(ahead)
            if signals:
                stopped = f"it was stopped by {signals[0]}"
            return checks.report(stopped)


class _Checks:
    """The loop over rounds, batches and kernels."""

    def __init__(
        self, job: ShapeJob, worker: GpuWorker, lock: GpuLock, stop: Event, say: Say
    ) -> None:
        self._worker, self._lock, self._stop, self._say = worker, lock, stop, say
        self._tally = ShapeTally(job.seed)
        self._clock = job.clock
        self._begin = self._told = job.clock()
        self._seconds, self._rounds = job.seconds, job.rounds
        self._waited = False

    def run(self, ahead: ShapeAhead) -> str:
        """Checks until the end. Returns why it came early; empty where it did not."""
        try:
            for planned in itertools.islice(ahead.rounds(), self._rounds):
                self._wait(planned)
                self._round(planned.result())
        except StoppedError:
            return ""
        except DriverError as error:
            return str(error)
        return ""

    def report(self, stopped: str) -> ShapeReport:
        """What was done and found."""
        return self._tally.report(self._elapsed(), self._worker.restarts, stopped)

    def _round(self, planned: PlannedRound) -> None:
        """Every kernel at every batch; batch after batch, as the worker keeps one reference."""
        gone: set[KernelConfig] = set()
        for place, m in enumerate(planned.batches):
            for kernel in planned.kernels:
                self._look()
                if kernel.config in gone:
                    continue
                candidate = self._candidate(planned.problem, m, kernel, first=place == 0)
                if candidate is None or self._ends_worker(planned.problem, m, candidate):
                    gone.add(kernel.config)

    def _candidate(
        self, problem: Problem, m: int, kernel: PlannedKernel, *, first: bool
    ) -> Candidate | None:
        """The compiled kernel; None where there is none. The first time it is counted."""
        if kernel.compiled is not None:
            self._wait(kernel.compiled)
        made = kernel.candidate()
        if isinstance(made, Outcome):
            self._tally.unrun(problem, m, kernel.config, made)
            return None
        if first:
            self._tally.compiled(kernel.config)
        return made

    def _ends_worker(self, problem: Problem, m: int, candidate: Candidate) -> bool:
        """Checks a kernel at one batch. Returns whether that ended the worker process."""
        request = EvaluateRequest(problem, m, Protocol.PLAIN, candidate, Effort.CHECK)
        with self._lock.held(self._wait_for_gpu):
            outcome = self._worker.evaluate(request)
        self._tally.checked(problem, m, candidate.config, outcome)
        return outcome.status in (Status.CRASH, Status.HANG)

    def _wait_for_gpu(self) -> None:
        """Called once a second while another process holds the GPU's lock."""
        if not self._waited:
            self._say("another tuning run measures on this GPU; waiting for it")
        self._waited = True
        self._look()

    def _wait(self, future: Future[Any]) -> None:
        """Until the future is done. Raises StoppedError at the end of the soak."""
        while not wait([future], timeout=0 if future.done() else LOOK_S).done:
            self._look()

    def _look(self) -> None:
        """Tells the progress where it is time to. Raises StoppedError at the end of the soak."""
        elapsed = self._elapsed()
        if self._stop.is_set() or elapsed > self._seconds:
            raise StoppedError
        if self._clock() - self._told >= PROGRESS_S:
            self._told = self._clock()
            self._say(self._tally.progress(elapsed))

    def _elapsed(self) -> float:
        return self._clock() - self._begin
