"""The path without a GPU: candidates are compiled, ranked, stored and served as predicted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from search_fakes import BASE, LARGE, PROBLEM, TOOLCHAIN, families, make_compiler

from db import query
from db.records import Protocol
from db.store import Store
from ptxgen.arch import arch_named, gpu_named
from ptxgen.cache import CompileCache
from ptxgen.families import emit
from ptxgen.outcome import Status
from ptxgen.problem import Problem
from search.above_floor import above_floor
from search.budget import Budget
from search.events import Event, TaskStarted, TrialEnded
from search.job import NothingMeasuredError, TuneJob
from search.model import predict_us
from search.predict import MAX_COMPILES, device_of, predict
from search.stop import StopRequest
from search.tune import tune

H200 = gpu_named("h200")
MakeJob = Callable[..., TuneJob]


def test_the_top_of_the_model_and_the_default_are_stored_as_predicted(
    store: Store, make_job: MakeJob
) -> None:
    job = make_job(families=families(LARGE), budget=Budget(trials=12))
    summary = predict(job, H200, store)
    assert summary.predicted
    trials = query.trials(store.database)
    assert len(trials) == 12
    assert {trial.outcome.status for trial in trials} == {Status.PREDICTED}
    assert trials[0].config == BASE
    by_hand = [
        predict_us(
            PROBLEM,
            trial.config,
            families(LARGE)["mma"].plan(PROBLEM, trial.config, H200.spec),
            trial.outcome.resources,
            8,
            gpu=H200,
            protocol=Protocol.PLAIN,
        )
        for trial in trials
        if trial.config and trial.outcome.resources
    ]
    assert [trial.outcome.time_us for trial in trials] == pytest.approx(by_hand)
    (winner,) = query.winners(store.database)
    assert winner.predicted
    assert winner.time_us == pytest.approx(min(by_hand))
    assert winner.default_us == pytest.approx(by_hand[0])
    assert winner.cublas_us is None
    assert winner.toolchain.driver == ""
    assert not winner.device.measured
    assert summary.tasks[0].config == winner.config


def test_a_prediction_never_replaces_a_measurement(store: Store, make_job: MakeJob) -> None:
    tune(make_job(), store)
    predict(make_job(), H200, store)
    measured, predicted = query.winners(store.database, problem=PROBLEM)
    assert (measured.predicted, predicted.predicted) == (False, True)
    answer = query.best(
        store.database, PROBLEM, 8, device_of(H200), Protocol.PLAIN,
        toolchain=replace(TOOLCHAIN, driver=""), arch=H200.spec,
    )  # fmt: skip
    assert not answer.predicted


def test_seconds_end_it_early_but_the_default_is_always_there(
    store: Store, make_job: MakeJob
) -> None:
    job = make_job(families=families(LARGE), budget=Budget(seconds=1e-9))
    predict(job, H200, store)
    (trial,) = query.trials(store.database)
    assert trial.config == BASE


def test_the_number_of_compiles_is_bounded(store: Store, make_job: MakeJob) -> None:
    job = make_job(families=families(LARGE), budget=Budget(trials=10_000))
    events: list[Event] = []
    predict(job, H200, store, events.append)
    assert sum(isinstance(event, TrialEnded) for event in events) == MAX_COMPILES
    (started,) = [event for event in events if isinstance(event, TaskStarted)]
    assert started.floor_us == pytest.approx(PROBLEM.bytes_moved(8) / 4480e3)


def test_spills_are_stored_and_do_not_win(store: Store, make_job: MakeJob) -> None:
    with pytest.raises(NothingMeasuredError, match="spills 64 bytes") as caught:
        predict(make_job(families=families(LARGE, mark="spills")), H200, store)
    assert caught.value.summary.ledger[0].status is Status.SPILLED
    reproduce = caught.value.summary.ledger[0].reproduce
    assert reproduce.startswith("ptxtune emit --n ")
    assert reproduce.endswith(" --gpu h200 --compile")
    assert query.winners(store.database) == []
    assert {trial.outcome.status for trial in query.trials(store.database)} == {Status.SPILLED}


def test_a_stop_ends_after_the_running_candidate(store: Store, make_job: MakeJob) -> None:
    stop = StopRequest()

    def on_event(event: Event) -> None:
        if isinstance(event, TrialEnded):
            stop.request()

    job = make_job(families=families(LARGE), buckets=(1, 8))
    summary = predict(job, H200, store, on_event, stop)
    assert summary.interrupted
    assert len(summary.tasks) == 1
    assert len(query.trials(store.database)) == 1


def test_handlers_of_the_pool_get_what_the_fake_expects(tmp_path: Path) -> None:
    handle = make_compiler({"cache_root": str(tmp_path)})
    answer: dict[str, Any] = handle({"text": "kernel"})
    assert answer["resources"]["spill_bytes"] == 0


def test_the_same_command_again_stores_nothing_new(store: Store, make_job: MakeJob) -> None:
    job = make_job(families=families(), budget=Budget(trials=5))
    events: list[Event] = []
    first = predict(job, H200, store)
    stored = query.trials(store.database)
    assert len(stored) == 5
    again = [predict(job, H200, store, events.append) for _ in range(2)]
    assert query.trials(store.database) == stored
    assert [event.known for event in events if isinstance(event, TaskStarted)] == [5, 5]
    assert [summary.tasks for summary in again] == [first.tasks] * 2


def test_more_trials_go_on_from_what_is_known(store: Store, make_job: MakeJob) -> None:
    for count in (1, 5, 12):
        predict(make_job(families=families(), budget=Budget(trials=count)), H200, store)
        trials = query.trials(store.database)
        assert len(trials) == len({trial.config for trial in trials}) == count
    best = min(trial.outcome.time_us or 0 for trial in trials)
    summary = predict(make_job(families=families(), budget=Budget(trials=1)), H200, store)
    assert len(query.trials(store.database)) == 12
    assert summary.tasks[0].time_us == best  # one trial does not unlearn the other eleven


def test_an_interrupted_prediction_goes_on(store: Store, make_job: MakeJob) -> None:
    stop = StopRequest()
    job = make_job(families=families(), budget=Budget(trials=5))
    predict(job, H200, store, lambda event: isinstance(event, TrialEnded) and stop.request(), stop)
    assert len(query.trials(store.database)) == 1
    predict(job, H200, store)
    assert len(query.trials(store.database)) == 5


def test_failed_candidates_are_not_compiled_again_either(store: Store, make_job: MakeJob) -> None:
    job = make_job(families=families(mark="spills"), budget=Budget(trials=3))
    for _ in range(2):
        with pytest.raises(NothingMeasuredError):
            predict(job, H200, store)
    assert len(query.trials(store.database)) == 3


@pytest.mark.parametrize("change", ["model", "nvrtc", "refresh"])
def test_what_no_longer_holds_is_predicted_anew(
    store: Store, make_job: MakeJob, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    job = make_job(families=families(), budget=Budget(trials=3))
    predict(job, H200, store)
    if change == "model":
        monkeypatch.setattr(
            "search.predict.above_floor",
            lambda *args: SimpleNamespace(total_us=2 * above_floor(*args).total_us),
        )
    elif change == "nvrtc":
        job = replace(job, toolchain=replace(job.toolchain, nvrtc="99.9"))
    else:
        job = replace(job, refresh=True)
    predict(job, H200, store)
    assert len(query.trials(store.database)) == 6


@pytest.mark.compile
def test_real_kernels_are_compiled_and_ranked(store: Store, tmp_path: Path) -> None:
    problem = Problem(256, 512)
    job = TuneJob(
        problems=(problem,),
        buckets=(8,),
        toolchain=TOOLCHAIN,
        budget=Budget(trials=4),
        cache_root=tmp_path / "cache",
        compile_workers=2,
    )
    summary = predict(job, gpu_named("rtx3090"), store)
    (task,) = summary.tasks
    assert task.config is not None
    (winner,) = query.winners(store.database)
    assert winner.device.capability == "8.6"
    source = emit(problem, task.config, arch_named("sm_86"))
    assert winner.source_digest == source.digest()
    entry = CompileCache(tmp_path / "cache").get(source)
    assert entry is not None
    (row,) = [trial for trial in query.trials(store.database) if trial.id == winner.trial_id]
    assert row.outcome.resources == entry.compiled.resources
