"""predict: the main job without a GPU: compile for a named GPU, rank by the model, store."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace

from db import query
from db.records import DeviceRecord, ToolchainRecord, TrialRecord
from db.store import Store
from ptxgen.arch import ArchSpec, GpuSpec
from ptxgen.config import KernelConfig
from ptxgen.errors import ConfigError
from ptxgen.families import default_config
from ptxgen.outcome import Outcome, Resources, Status
from ptxgen.source import KernelSource
from search.above_floor import above_floor
from search.budget import Meter
from search.compile_pool import Compiled, CompilePool
from search.context import emit_source
from search.events import (
    Note,
    OnEvent,
    RunStarted,
    Task,
    TaskEnded,
    TaskStarted,
    TrialEnded,
)
from search.job import NothingMeasuredError, TuneJob, TuneSummary
from search.ledger import Ledger
from search.model import MODEL_VERSION, floor_us, take_apart
from search.ranking import Ranker
from search.space import Space
from search.stop import StopRequest
from search.tune import STOPPING, ignore

MAX_COMPILES = 64
"""Candidates compiled a task at most: below the model's top, its order says nothing new."""


@dataclass(slots=True)
class _Prediction:
    """One run's shared things."""

    job: TuneJob
    gpu: GpuSpec
    store: Store
    run_id: int
    pool: CompilePool
    stop: StopRequest
    on_event: OnEvent
    ledger: Ledger
    toolchain: ToolchainRecord
    earlier_runs: frozenset[int]
    """Runs that predicted: their failures are of the compiler, not of a GPU."""

    @property
    def arch(self) -> ArchSpec:
        return self.gpu.spec


@dataclass(frozen=True, slots=True)
class _Row:
    """A stored candidate of one task."""

    config: KernelConfig
    trial_id: int
    outcome: Outcome


def device_of(gpu: GpuSpec) -> DeviceRecord:
    """The device record of a GPU that is known by name only."""
    return DeviceRecord(
        name=gpu.device_name,
        capability=".".join(map(str, gpu.spec.capability)),
        num_sms=gpu.num_sms,
        smem_optin_bytes=gpu.spec.smem_per_cta,
        l2_bytes=gpu.l2_bytes,
        read_gbps=gpu.read_gbps,
        tensor_tflops=gpu.tensor_tflops,
        launch_us=gpu.launch_us,
    )


def predict(
    job: TuneJob,
    gpu: GpuSpec,
    store: Store,
    on_event: OnEvent = ignore,
    stop: StopRequest | None = None,
) -> TuneSummary:
    """Ranks the candidates of every problem x bucket x protocol for a GPU that is not here.

    The model orders all legal configs with estimated registers; the top ones and the default are
    compiled, and ranked again by what the compiler really gave them. Every row is stored as
    predicted; a predicted winner never replaces a measured one. Candidates that an earlier
    prediction stored are not repeated where they still hold, and count for the winner.

    Args:
        job: what to rank; its evaluator is not used.
        gpu: the GPU in question.
        store: where the rows are written.
        on_event: told about the progress.
        stop: asks for the end; Ctrl-C does so by itself in the main thread.

    Raises:
        NothingMeasuredError: the run ended by itself without any winner.
        CompileError, ArchError: NVRTC is missing or cannot target the GPU.
    """
    stop = stop or StopRequest()
    device, toolchain = device_of(gpu), replace(job.toolchain, driver="")
    ledger, ended = Ledger(predicted_for=gpu.name), list[TaskEnded]()
    settings = {**job.settings(), "predicted": True, "model_version": MODEL_VERSION}
    with (
        stop.on_interrupt(lambda: on_event(Note(STOPPING))),
        CompilePool(
            job.cache_folder(), job.compile_workers, job.compile_timeout_s, job.compile_handler
        ) as pool,
    ):
        earlier = frozenset(
            run.id for run in query.runs(store.database) if run.settings.get("predicted") is True
        )
        run_id = store.start_run(device, toolchain, settings)
        on_event(RunStarted(run_id, device, len(job.tasks()), predicted=True))
        shared = _Prediction(
            job, gpu, store, run_id, pool, stop, on_event, ledger, toolchain, earlier
        )
        try:
            for result in _tasks(shared):
                ended.append(result)
                on_event(result)
        except KeyboardInterrupt:
            stop.request()
        finally:
            store.end_run(run_id)
    summary = TuneSummary(
        run_id, device, toolchain, tuple(ended), ledger.entries(), stop.requested, predicted=True
    )
    if not summary.won and not summary.interrupted:
        reasons = [entry.message for entry in summary.ledger] + [task.message for task in ended]
        raise NothingMeasuredError(
            f"no candidate could be predicted for {gpu.device_name}: "
            f"{'; '.join(dict.fromkeys(filter(None, reasons)))}. "
            f"Run ptxtune doctor to check NVRTC.",
            summary,
        )
    return summary


def _tasks(shared: _Prediction) -> Iterator[TaskEnded]:
    for index, task in enumerate(shared.job.tasks()):
        if shared.stop.requested:
            return
        try:
            yield _predict_task(shared, task, index)
        except ConfigError as error:
            yield TaskEnded(task, None, None, None, None, 0.0, str(error))


def _predict_task(shared: _Prediction, task: Task, index: int) -> TaskEnded:
    """Ranks one task and stores its predicted winner."""
    gpu, families = shared.gpu, shared.job.kernel_families()
    floor = floor_us(task.problem, task.m, gpu.read_gbps, gpu.tensor_tflops)
    space = Space(task.problem, shared.arch, task.m, families, chained=task.chained)
    default = default_config(
        task.problem, shared.arch, task.m, gpu.num_sms, families, chained=task.chained
    )
    space.add(default)
    budget = shared.job.budget
    known = {} if shared.job.refresh else _earlier_rows(shared, task, space)
    shared.on_event(TaskStarted(task, index, len(space), len(known), floor, budget))
    count = min(budget.trials or MAX_COMPILES, MAX_COMPILES)
    best = Ranker(task, shared.arch, gpu, families).best(space, count, shared.job.seed)
    configs = list({item.key(): item for item in [default, *best]}.values())[:count]
    fresh = [item for item in configs if item.key() not in known]
    rows = [*known.values(), *_compiled_rows(shared, task, fresh, floor)]
    good = [row for row in rows if row.outcome.status is Status.PREDICTED]
    if not good:
        return TaskEnded(task, None, None, None, None, floor, "no candidate compiled")
    winner = min(
        good, key=lambda row: (row.outcome.time_us, row.config != default, row.config.key())
    )
    default_us = next((row.outcome.time_us for row in good if row.config == default), None)
    shared.store.set_winner(
        winner.trial_id,
        default_us=default_us,
        refresh=True,
        batch_invariant=task.batch_invariant,
    )
    return TaskEnded(task, winner.config, winner.outcome.time_us, default_us, None, floor)


def _earlier_rows(shared: _Prediction, task: Task, space: Space) -> dict[str, _Row]:
    """Candidates that an earlier prediction stored and that still hold, by config key.

    They do where the emitter writes the same source, this NVRTC compiled it, and the model says the
    same of what the compiler gave it.
    """
    records = [
        item
        for predicted in (True, False)
        for item in query.finished(
            shared.store.database,
            task.problem,
            device_of(shared.gpu),
            task.m,
            task.protocol,
            toolchain=shared.toolchain,
            predicted=predicted,
        )
        if predicted or item.run_id in shared.earlier_runs
    ]
    found: dict[str, _Row] = {}
    for item in sorted(records, key=lambda item: item.id):
        config = None if item.config is None else space.get(item.config.key())
        if config is not None and _holds(shared, task, config, item):
            found[config.key()] = _Row(config, item.id, item.outcome)
    return found


def _holds(shared: _Prediction, task: Task, config: KernelConfig, stored: TrialRecord) -> bool:
    """Whether a stored candidate would come out the same now."""
    source = emit_source(task, config, shared.arch, shared.job.kernel_families())
    if isinstance(source, Outcome) or source.digest() != stored.source_digest:
        return False
    outcome = stored.outcome
    if outcome.status not in (Status.PREDICTED, Status.INVALID):
        return True
    if outcome.resources is None:
        return False
    now = _judged(shared, task, config, source, outcome.resources)
    return now.status is outcome.status and now.time_us == outcome.time_us


def _compiled_rows(
    shared: _Prediction, task: Task, configs: list[KernelConfig], floor: float
) -> Iterator[_Row]:
    """Compiles, predicts and stores configs until the seconds are over; the first one always."""
    meter, best_us = Meter(replace(shared.job.budget, trials=None)), float("inf")
    waiting = _submitted(shared, task, configs)
    for number, (config, source, future) in enumerate(waiting):
        if number and (shared.stop.requested or meter.exhausted()):
            for _, _, unwanted in waiting[number:]:
                if isinstance(unwanted, Future):
                    unwanted.cancel()
            return
        outcome = replace(_outcome(shared, task, config, source, future), floor_us=floor)
        digest = source.digest() if source else ""
        trial_id = shared.store.add_predicted(
            shared.run_id,
            task.problem,
            task.m,
            task.protocol,
            config=config,
            source_digest=digest,
            outcome=outcome,
        )
        shared.ledger.add(task, config, outcome)
        if outcome.status is Status.PREDICTED and outcome.time_us is not None:
            best_us = min(best_us, outcome.time_us)
        meter.trials += 1
        best = best_us if best_us < float("inf") else None
        shared.on_event(TrialEnded(task, config, outcome, best, meter.trials))
        yield _Row(config, trial_id, outcome)


def _submitted(
    shared: _Prediction, task: Task, configs: list[KernelConfig]
) -> list[tuple[KernelConfig, KernelSource | None, Future[Compiled] | Outcome]]:
    """Emits configs and hands them to the compile pool; an outcome where there is no kernel."""
    found: list[tuple[KernelConfig, KernelSource | None, Future[Compiled] | Outcome]] = []
    for config in configs:
        source = emit_source(task, config, shared.arch, shared.job.kernel_families())
        if isinstance(source, Outcome):
            found.append((config, None, source))
        else:
            found.append((config, source, shared.pool.submit(source)))
    return found


def _outcome(
    shared: _Prediction,
    task: Task,
    config: KernelConfig,
    source: KernelSource | None,
    compiled: Future[Compiled] | Outcome,
) -> Outcome:
    """The predicted outcome of one config, from what the compiler gave it."""
    if source is None or isinstance(compiled, Outcome):
        return compiled if isinstance(compiled, Outcome) else Outcome(Status.INVALID, "not emitted")
    result = compiled.result()
    if result.failure is not None or result.resources is None:
        return result.failure or Outcome(Status.COMPILE_ERROR, "no cubin")
    return _judged(shared, task, config, source, result.resources)


def _judged(
    shared: _Prediction,
    task: Task,
    config: KernelConfig,
    source: KernelSource,
    resources: Resources,
) -> Outcome:
    """What the model says of a compiled kernel."""
    found = take_apart(
        task.problem,
        config,
        source.plan,
        resources,
        task.m,
        gpu=shared.gpu,
        protocol=task.protocol,
    )
    if found is None:
        reason = f"not one CTA fits an SM of {shared.gpu.device_name}"
        return Outcome(Status.INVALID, reason, resources=resources)
    time_us = above_floor(found, task.problem, task.m, shared.gpu).total_us
    return Outcome(Status.PREDICTED, time_us=time_us, resources=resources)
