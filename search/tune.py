"""tune: the main job. For every problem x bucket x protocol: search, finals, winner; all stored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial

from db.store import Store
from ptxgen.config import KernelConfig
from ptxgen.errors import ConfigError
from ptxgen.outcome import Outcome, Status
from search.compile_pool import CompilePool
from search.conclude import conclude
from search.context import RunContext, emit_source
from search.evaluator import Candidate, Effort, EvaluateRequest
from search.events import Event, Note, OnEvent, RunStarted, Task, TaskEnded
from search.gpu_lock import GpuLock
from search.job import NothingMeasuredError, TuneJob, TuneSummary
from search.space import Space
from search.stop import StopRequest
from search.task_search import TaskSearch
from search.worker import GpuWorker

STOPPING = "stopping after the running trial; everything measured is kept (Ctrl-C again: at once)"


def ignore(_event: Event) -> None:
    """Shows nothing."""


def tune(
    job: TuneJob,
    store: Store,
    on_event: OnEvent = ignore,
    stop: StopRequest | None = None,
) -> TuneSummary:
    """Tunes every problem x bucket x protocol of a job on the GPU.

    Finished trials of earlier runs are taken over, so an interrupted run goes on where it ended.
    Call it from a thread that outlives the run.

    Args:
        job: what to tune, and how.
        store: where every attempt and every winner is written, one transaction each.
        on_event: told about the progress.
        stop: asks for the end; Ctrl-C does so by itself in the main thread.

    Returns:
        The summary; its `interrupted` says whether the user ended the run.

    Raises:
        NothingMeasuredError: the run ended by itself without any winner.
        DriverError: there is no working GPU.
    """
    stop = stop or StopRequest()
    store.recover_orphans()
    with (
        stop.on_interrupt(lambda: on_event(Note(STOPPING))),
        running(job, store, on_event, stop) as context,
    ):
        ended: list[TaskEnded] = []
        try:
            _run_tasks(context, ended)
        except KeyboardInterrupt:  # the second Ctrl-C; the run's end kills the workers
            stop.request()
        summary = _summary(context, ended)
    if not summary.won and not summary.interrupted:
        raise NothingMeasuredError(_nothing_measured(summary), summary)
    return summary


def run_one(
    job: TuneJob, config: KernelConfig | None, store: Store, on_event: OnEvent = ignore
) -> Outcome:
    """Compiles, checks and times one config of a job's first task, however often it failed before.

    Args:
        job: its first problem, bucket and protocol count.
        config: the config; None for the built-in default.
        store: where the attempt is written.
        on_event: told about the progress.

    Returns:
        How it ended.
    """
    task = job.tasks()[0]
    store.recover_orphans()
    with running(job, store, on_event, StopRequest()) as context:
        chosen = config or context.default_config(task)
        source = emit_source(task, chosen, context.arch, context.families)
        if isinstance(source, Outcome):
            context.record_unrun(task, chosen, "", source)
            return source
        compiled = context.pool.submit(source).result()
        digest = source.digest()
        if compiled.failure is not None or compiled.resources is None:
            outcome = compiled.failure or Outcome(Status.COMPILE_ERROR, "no cubin")
            context.record_unrun(task, chosen, digest, outcome)
            return outcome
        candidate = Candidate(
            chosen, source.plan, source.entry, compiled.cubin_path, compiled.resources, digest
        )
        request = EvaluateRequest(
            task.problem, task.m, task.protocol, candidate, effort=Effort.FULL
        )
        return context.measure(task, request)[1]


@contextmanager
def running(
    job: TuneJob, store: Store, on_event: OnEvent, stop: StopRequest
) -> Iterator[RunContext]:
    """A run in the database with its worker and compile pool; all ended with the block."""
    with (
        GpuWorker(job.evaluator, dict(job.evaluator_options), job.limits, job.gpu_uuid) as worker,
        CompilePool(
            job.cache_folder(), job.compile_workers, job.compile_timeout_s, job.compile_handler
        ) as pool,
    ):
        device = worker.device()
        arch = device.arch
        toolchain = replace(job.toolchain, driver=worker.driver_version())
        run_id = store.start_run(device, toolchain, job.settings())
        on_event(RunStarted(run_id, device, len(job.tasks())))
        lock = GpuLock(device.uuid or device.name, job.lock_folder)
        try:
            yield RunContext(
                job, store, run_id, device, toolchain, arch, worker, pool, lock, stop, on_event
            )
        finally:
            store.end_run(run_id)


def _run_tasks(context: RunContext, ended: list[TaskEnded]) -> None:
    """Searches task after task until the user stops; appends how each one ended."""
    tasks = context.job.tasks()
    spaces = _Spaces(context)
    for index, task in enumerate(tasks):
        if context.stop.requested:
            return
        following = tasks[index + 1 : index + 2]
        context.during_finals = partial(spaces.prepare, following)
        result = _run_task(context, task, index, spaces)
        ended.append(result)
        context.on_event(result)


class _Spaces:
    """Spaces of a run's tasks; each is made during the finals before it, for it takes a while."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._made: dict[tuple[str, int, bool], Space] = {}

    def of(self, task: Task) -> Space:
        """The task's space; forgets all others.

        Raises:
            ConfigError: no config is legal.
        """
        key = self._key(task)
        self._made = {key: self._made.get(key) or self._new(task)}
        return self._made[key]

    def prepare(self, tasks: Iterable[Task]) -> None:
        """Makes spaces ahead. One without any legal config says so when it is asked for."""
        for task in tasks:
            key = self._key(task)
            if key not in self._made:
                with suppress(ConfigError):
                    self._made[key] = self._new(task)

    @staticmethod
    def _key(task: Task) -> tuple[str, int, bool]:
        return (task.problem.key(), task.m, task.chained)

    def _new(self, task: Task) -> Space:
        arch, families = self._context.arch, self._context.families
        return Space(task.problem, arch, task.m, families, chained=task.chained)


def _run_task(context: RunContext, task: Task, index: int, spaces: _Spaces) -> TaskEnded:
    """One search and its end; a problem without any legal config does not end the others."""
    try:
        search = TaskSearch(context, task, spaces.of(task), index)
    except ConfigError as error:
        return TaskEnded(task, None, None, None, None, context.floor_us(task), str(error))
    search.run()
    return conclude(context, search, task)


def _summary(context: RunContext, ended: list[TaskEnded]) -> TuneSummary:
    return TuneSummary(
        run_id=context.run_id,
        device=context.device,
        toolchain=context.toolchain,
        tasks=tuple(ended),
        ledger=context.ledger.entries(),
        interrupted=context.stop.requested,
        restarts=context.worker.restarts,
    )


def _nothing_measured(summary: TuneSummary) -> str:
    """Why there is no winner, with a command line for every class of failure."""
    failures = "; ".join(
        f"{entry.count} x {entry.status.value}, such as: {entry.message} "
        f"(run it alone: {entry.reproduce})"
        for entry in summary.ledger
    )
    reasons = "; ".join(dict.fromkeys(task.message for task in summary.tasks if task.message))
    return (
        f"nothing was measured well on {summary.device.name}, so there is no winner and the "
        f"built-in default stays in use: {failures or reasons or 'no task was run'}. Run ptxtune "
        f"doctor to check the GPU and the toolchain."
    )
