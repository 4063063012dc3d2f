"""RunContext: what all searches of one run share, and the one place where trials are stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from db import query
from db.records import DeviceRecord, ToolchainRecord
from db.store import Store
from ptxgen.arch import ArchSpec
from ptxgen.config import KernelConfig
from ptxgen.errors import ConfigError, StoreError
from ptxgen.families import default_config
from ptxgen.families.base import Family
from ptxgen.outcome import Outcome, Status
from ptxgen.source import KernelSource
from search.compile_pool import CompilePool
from search.evaluator import Contender, EvaluateRequest, config_of, name_of
from search.events import Note, OnEvent, Task
from search.gpu_lock import GpuLock
from search.job import TuneJob
from search.ledger import Ledger
from search.model import floor_us
from search.stop import StopRequest
from search.worker import GpuWorker

MAX_KILLS = 2
"""A config that killed or hung the worker this often on a device is not run there again."""


WRITE_TRIES = 3
"""Tries of a write before the run ends; on SQLite each one waits half a minute for a lock."""

T = TypeVar("T")


class StoppedError(Exception):
    """The user asked for the end while nothing was running."""


@dataclass(slots=True)
class RunContext:
    """Everything that a search needs besides its own task.

    During finals this process has nothing to do, so it calls `during_finals`, where that is set.
    """

    job: TuneJob
    store: Store
    run_id: int
    device: DeviceRecord
    toolchain: ToolchainRecord
    arch: ArchSpec
    worker: GpuWorker
    pool: CompilePool
    lock: GpuLock
    stop: StopRequest
    on_event: OnEvent
    ledger: Ledger = field(default_factory=Ledger)
    during_finals: Callable[[], None] | None = None

    @property
    def families(self) -> Mapping[str, Family]:
        return self.job.kernel_families()

    def floor_us(self, task: Task) -> float:
        """The physical floor of a task on this device; 0 where its ceilings are not known."""
        device = self.device
        if not device.read_gbps or not device.tensor_tflops:
            return 0.0
        return floor_us(task.problem, task.m, device.read_gbps, device.tensor_tflops)

    def default_config(self, task: Task) -> KernelConfig:
        """The built-in default."""
        return default_config(
            task.problem,
            self.arch,
            task.m,
            self.device.num_sms,
            self.families,
            chained=task.chained,
        )

    def kills(self, source_digest: str) -> int:
        """How often this source killed or hung a worker on this device model and driver."""
        return query.crash_count(
            self.store.database, source_digest, self.device, self.toolchain.driver
        )

    @contextmanager
    def gpu(self) -> Iterator[GpuWorker]:
        """The worker, with the host's lock on its GPU. Raises StoppedError while waiting for it."""
        told = False

        def waiting() -> None:
            nonlocal told
            if self.stop.requested:
                raise StoppedError
            if not told:
                self.on_event(Note("another tuning run measures on this GPU; waiting for it"))
            told = True

        with self.lock.held(waiting):
            yield self.worker

    def measure(
        self, task: Task, request: EvaluateRequest, meanwhile: Callable[[], None] | None = None
    ) -> tuple[int, Outcome]:
        """Journals, runs and stores one candidate, or a baseline. Returns the trial's id too.

        `meanwhile` is called once while the GPU is busy: the next candidates can be made then.
        """
        candidate = request.candidate
        restarts = self.worker.restarts
        with self.gpu() as worker:
            trial_id = self._started(task, candidate)
            try:
                outcome = worker.evaluate(request, meanwhile)
            except BaseException as error:  # Ctrl-C, or a broken GPU: not this candidate's fault
                reason = f"not measured: {error or type(error).__name__}"
                self._end(trial_id, Outcome(Status.NOISY, reason))
                raise
        self._end(trial_id, outcome)
        self.ledger.add(task, config_of(candidate), outcome)
        if self.worker.restarts > restarts:
            self.on_event(Note("the GPU worker was restarted"))
        return trial_id, outcome

    def record(self, task: Task, candidate: Contender, outcome: Outcome) -> int:
        """Stores a trial that is over already, such as a finalist's. Returns its id."""
        trial_id = self._started(task, candidate)
        self._end(trial_id, outcome)
        return trial_id

    def record_unrun(
        self, task: Task, config: KernelConfig, source_digest: str, outcome: Outcome
    ) -> None:
        """Stores a candidate that never reached the GPU."""
        trial_id = self._patiently(
            lambda: self.store.start_trial(
                self.run_id,
                task.problem,
                task.m,
                task.protocol,
                config=config,
                source_digest=source_digest,
            )
        )
        self._end(trial_id, outcome)
        self.ledger.add(task, config, outcome)

    def _started(self, task: Task, candidate: Contender) -> int:
        return self._patiently(
            lambda: self.store.start_trial(
                self.run_id,
                task.problem,
                task.m,
                task.protocol,
                contender=name_of(candidate),
                config=config_of(candidate),
                source_digest=candidate.source_digest if candidate else "",
            )
        )

    def _end(self, trial_id: int, outcome: Outcome) -> None:
        self._patiently(lambda: self.store.end_trial(trial_id, outcome))

    def _patiently(self, write: Callable[[], T]) -> T:
        """A write that outlasts a database locked for a minute; each try waits by itself as well.

        A measured trial that could not be stored would count as a crash of its config.
        """
        for _ in range(WRITE_TRIES - 1):
            try:
                return write()
            except StoreError as error:
                if self.stop.requested:
                    raise
                self.on_event(Note(f"trying again: {error}"))
        return write()


def emit_source(
    task: Task, config: KernelConfig, arch: ArchSpec, families: Mapping[str, Family]
) -> KernelSource | Outcome:
    """The kernel of a config, or the outcome that says why there is none.

    A fault inside an emitter is one config's outcome as well: it must not end a long run.
    """
    try:
        return families[config.family].emit(task.problem, config, arch)
    except ConfigError as error:
        return Outcome(Status.INVALID, str(error))
    except Exception as error:
        return Outcome(Status.INVALID, f"the emitter failed: {type(error).__name__}: {error}")
