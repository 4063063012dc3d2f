"""The end of a search: who takes part in the finals, what wins, and the proof that is stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from search_fakes import BASE, PROBLEM, SMALL, families, true_us

from db import query
from db.export_rows import export_rows
from db.records import WinnerRecord
from db.store import Store
from ptxgen.arch import arch_named
from ptxgen.evidence import State
from ptxgen.outcome import Outcome, Status
from search.budget import Budget
from search.events import Event, Note
from search.finals import FINALISTS, ratio_of
from search.job import NothingMeasuredError, TuneJob
from search.proof import prove
from search.tune import run_one, tune

FAMILY = families(SMALL)["mma"]
LEGAL = list(FAMILY.candidates(PROBLEM, arch_named("sm_90a"), 8))
RANKED = sorted(LEGAL, key=true_us)
OPTIMUM = RANKED[0]
SLOWDOWNS = [1.0, 1.0, 1.5, 1.5, 1.4, 1.0, 1.45]

MakeJob = Callable[..., TuneJob]


@pytest.fixture
def rigged_job(make_job: MakeJob) -> MakeJob:
    def make(options: dict[str, Any] | None = None, **fields: Any) -> TuneJob:
        return make_job(options, evaluator="rigged_evaluator:create", **fields)

    return make


@pytest.fixture
def finalists(evaluated: Callable[[], list[str]]) -> Callable[[], list[list[str]]]:
    """Config keys of every finals so far."""

    def read() -> list[list[str]]:
        lines = [line for line in evaluated() if line.startswith("finals ")]
        return [line.removeprefix("finals ").split(" | ") for line in lines]

    return read


def winner(store: Store) -> WinnerRecord:
    (found,) = query.winners(store.database, problem=PROBLEM)
    return found


def test_the_proof_stands_beside_the_winner(store: Store, rigged_job: MakeJob) -> None:
    summary = tune(rigged_job({"rounds": SLOWDOWNS}), store)
    found = winner(store)
    proof = found.proof
    assert proof is not None
    assert found.config == OPTIMUM
    assert proof.rounds == 7
    assert proof.time_us.low <= proof.time_us.median <= proof.time_us.high
    assert proof.time_us.median == pytest.approx(found.time_us)
    # The clock moved by a half within the window; the ratios of the same rounds do not care.
    assert proof.over_default is not None
    assert proof.over_cublas is not None
    for ratio, truth in ((proof.over_default, true_us(BASE)), (proof.over_cublas, 20.0)):
        expected = truth / true_us(OPTIMUM)
        assert (ratio.low, ratio.median, ratio.high) == pytest.approx((expected,) * 3)
    assert proof.previous_us is None
    assert found.evidence is not None
    assert found.evidence.state is State.COOL
    (task,) = summary.tasks
    assert (task.proof, task.evidence, task.ties) == (proof, found.evidence, found.ties)
    row = export_rows(store.database)[0]
    assert row["proof"] == proof.to_dict()
    assert (row["state"], row["throttle"], row["other_processes"]) == ("cool", [], 0)


def test_a_lucky_sample_of_the_screening_does_not_win(store: Store, rigged_job: MakeJob) -> None:
    lucky = RANKED[5]
    tune(rigged_job({"screen_us": {lucky.key(): 0.9 * true_us(OPTIMUM)}}), store)
    assert winner(store).config == OPTIMUM


@pytest.mark.parametrize("refresh", [False, True])
def test_the_previous_winner_takes_part_though_the_screening_ranks_it_last(
    store: Store, rigged_job: MakeJob, finalists: Callable[[], list[list[str]]], refresh: bool
) -> None:
    tune(rigged_job(budget=Budget(trials=20)), store)
    before = winner(store)
    slow = {"screen_us": {before.config.key(): 500.0}}
    tune(rigged_job(slow, refresh=refresh), store)
    assert len(finalists()) == 2
    assert before.config.key() in finalists()[-1]
    assert winner(store).time_us <= before.time_us


def test_earlier_finalists_are_known_by_their_screening_not_by_a_slow_clock(
    store: Store, rigged_job: MakeJob, finalists: Callable[[], list[list[str]]]
) -> None:
    """Everything takes a third longer in the finals; who was there stays ahead all the same."""
    slow = {"final_us": {config.key(): 4 / 3 * true_us(config) for config in LEGAL}}
    tune(rigged_job(slow, budget=Budget(trials=len(LEGAL) - 4)), store)
    tune(rigged_job(slow), store)
    assert {config.key() for config in RANKED[:FINALISTS]} <= set(finalists()[-1])


def test_a_later_time_under_a_profiler_does_not_lose_a_config_its_place(
    store: Store, rigged_job: MakeJob, finalists: Callable[[], list[list[str]]]
) -> None:
    tune(rigged_job(budget=Budget(trials=len(LEGAL) - 1)), store)
    second = next(config for config in RANKED[1:] if config.key() in finalists()[0])
    run_one(rigged_job({"screen_us": {second.key(): 70.0}}), second, store)
    tune(rigged_job(), store)
    assert second.key() in finalists()[-1]


def test_with_refresh_the_previous_winner_takes_part_though_the_search_never_met_it(
    store: Store, rigged_job: MakeJob, finalists: Callable[[], list[list[str]]]
) -> None:
    tune(rigged_job(), store)
    summary = tune(rigged_job(refresh=True, budget=Budget(trials=1)), store)
    assert set(finalists()[-1]) == {BASE.key(), OPTIMUM.key(), "cublas"}
    found = winner(store)
    assert found.config == OPTIMUM
    assert query.trial(store.database, found.trial_id).run_id == summary.run_id
    mine = query.trials(store.database, run_id=summary.run_id, config=OPTIMUM)
    assert len(mine) == 2  # journalled, checked and timed alone before the finals


def test_a_beaten_previous_winner_is_named_with_its_ratio(
    store: Store, rigged_job: MakeJob
) -> None:
    tune(rigged_job(), store)
    second = RANKED[1]
    final_us = {OPTIMUM.key(): 2 * true_us(second), second.key(): true_us(second)}
    tune(rigged_job({"final_us": final_us}, refresh=True), store)
    found = winner(store)
    assert found.config == second
    assert found.proof is not None
    assert found.proof.over_previous is not None
    assert found.proof.over_previous.median == pytest.approx(2.0)


def test_a_previous_winner_that_fails_now_does_not_take_part(
    store: Store, rigged_job: MakeJob, finalists: Callable[[], list[list[str]]]
) -> None:
    tune(rigged_job(), store)
    tune(rigged_job({"failed": [OPTIMUM.key()]}, refresh=True), store)
    assert OPTIMUM.key() not in finalists()[-1]
    assert winner(store).config == RANKED[1]


def test_throttled_finals_leave_the_stored_winner_alone(store: Store, rigged_job: MakeJob) -> None:
    tune(rigged_job(), store)
    before = winner(store)
    fault = "round 1 of 11: the GPU was throttled (hw_slowdown), 4 times in a row"
    with pytest.raises(NothingMeasuredError, match="throttled") as caught:
        tune(rigged_job({"fault": fault}, refresh=True), store)
    assert caught.value.summary.tasks[0].message == f"no finalist ended well: {fault}"
    assert winner(store) == before


def test_neighbours_on_the_gpu_are_told_and_stored(store: Store, rigged_job: MakeJob) -> None:
    events: list[Event] = []
    tune(rigged_job({"pids": [4711]}), store, events.append)
    told = [event.text for event in events if isinstance(event, Note)]
    assert any("other processes computed on the GPU meanwhile (4711)" in text for text in told)
    evidence = winner(store).evidence
    assert evidence is not None
    assert evidence.other_pids == (4711,)
    assert export_rows(store.database)[0]["other_processes"] == 1


def test_finals_one_by_one_prove_no_ratios(store: Store, make_job: MakeJob) -> None:
    tune(make_job({"finals": "segv"}), store)
    proof = winner(store).proof
    assert proof is not None
    assert proof.rounds == 0
    assert proof.over_default is proof.over_cublas is None
    assert proof.default_us == pytest.approx(true_us(BASE))


# ---- the pure parts -----------------------------------------------------------------------------

OURS = Outcome(Status.OK, time_us=5.0, samples_us=(5.0, 5.0, 7.5))


def test_ratios_need_the_same_rounds() -> None:
    other = replace(OURS, samples_us=(6.0, 6.0, 9.0))
    ratio = ratio_of(other, OURS)
    assert ratio is not None
    assert ratio.median == pytest.approx(1.2)
    assert ratio_of(replace(other, samples_us=(6.0, 6.0)), OURS) is None
    assert ratio_of(replace(other, samples_us=(6.0, 0.0, 9.0)), OURS) is None
    assert ratio_of(Outcome(Status.NOISY, samples_us=(6.0, 6.0, 9.0)), OURS) is None


def test_a_failed_baseline_is_no_part_of_the_proof() -> None:
    failed = Outcome(Status.WRONG, samples_us=(1.0, 1.0, 1.0))
    proof = prove(OURS, default=None, cublas=failed, previous=None, paired=True)
    assert (proof.cublas_us, proof.over_cublas, proof.default_us) == (None, None, None)
