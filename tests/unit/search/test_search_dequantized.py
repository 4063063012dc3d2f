"""Dequantize + matmul as a contender: when it takes part, what is stored, and what it may spoil."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from search_fakes import BASE, PROBLEM, FakeFamily

from db import query
from db.records import WinnerRecord
from db.store import Store
from ptxgen.arch import arch_named
from ptxgen.bootstrap import Interval
from ptxgen.dequantize.emit import emit_dequantize
from ptxgen.dequantize.rule import MIN_M, bytes_moved, serves, takes_part
from ptxgen.outcome import Outcome, Resources, Status
from ptxgen.problem import Problem
from ptxgen.proof import Proof
from search.budget import Budget
from search.evaluator import Candidate, Contender, Dequantizer, name_of
from search.events import Event, Note
from search.job import TuneJob
from search.messages import candidate_from_dict, candidate_to_dict
from search.tune import tune

M = MIN_M
ONE_ORDER = {
    "block_n": (32, 64),
    "warp_n": (32,),
    "block_k": (256, 512),
    "num_stages": (2, 3),
    "split_k": (1, 2),
    "scale_on": ("accumulators", "weights"),
    "weights_first": (False, True),
}
"""Knobs of which some configs are batch-invariant."""
MakeJob = Callable[..., TuneJob]


@pytest.fixture
def rigged(make_job: MakeJob) -> MakeJob:
    def make(options: dict[str, Any] | None = None, **fields: Any) -> TuneJob:
        settings = {"buckets": (M,), "budget": Budget(trials=6), **fields}
        return make_job(options, evaluator="rigged_evaluator:create", **settings)

    return make


def winner(store: Store, m: int = M) -> WinnerRecord:
    (found,) = query.winners(store.database, problem=PROBLEM, m=m)
    return found


def trials(store: Store) -> list[Outcome]:
    found = query.trials(store.database, contender="dequantized")
    assert all(trial.config is None for trial in found)
    return [trial.outcome for trial in found]


def test_it_takes_part_from_64_on() -> None:
    assert [m for m in range(200) if takes_part(m)] == list(range(64, 200))


def test_a_comparison_holds_above_half_its_batch() -> None:
    for m, measured in itertools.product((1, 63, 64, 65, 100, 129, 4096), (64, 128, 200)):
        assert serves(m, measured) == (m >= 64 and m > measured / 2)


def test_it_moves_nine_times_the_packed_bytes() -> None:
    problem = Problem(8192, 8192)
    packed = problem.n * problem.k // 2
    assert bytes_moved(problem, 1) / packed == pytest.approx(9, rel=0.01)


def test_it_is_timed_with_the_finalists_and_stored_beside_the_winner(
    store: Store, rigged: MakeJob
) -> None:
    summary = tune(rigged({"dequantized_us": 30.0, "rounds": [1.0, 1.5, 1.25]}), store)
    found = winner(store)
    assert found.dequantized_us == pytest.approx(37.5)
    assert found.proof is not None
    assert found.proof.dequantized_us == found.dequantized_us
    ratio = found.proof.over_dequantized
    assert ratio is not None
    assert ratio.median == pytest.approx(found.dequantized_us / found.time_us)
    assert not found.dequantize_first
    (task,) = summary.tasks
    assert task.dequantized_us == found.dequantized_us
    alone, final = trials(store)
    assert (alone.status, final.time_us) == (Status.OK, found.dequantized_us)


def test_the_winner_is_ours_even_where_it_is_faster(store: Store, rigged: MakeJob) -> None:
    tune(rigged({"dequantized_us": 0.5}), store)
    found = winner(store)
    assert found.config.family == "mma"
    assert found.dequantize_first


@pytest.mark.parametrize("fields", [{"buckets": (M - 1,)}, {"baseline": False}])
def test_otherwise_it_is_never_run(store: Store, rigged: MakeJob, fields: dict[str, Any]) -> None:
    tune(rigged(**fields), store)
    assert winner(store, fields.get("buckets", (M,))[0]).dequantized_us is None
    assert trials(store) == []


def test_a_batch_invariant_search_is_not_compared_with_it(store: Store, rigged: MakeJob) -> None:
    families = {"mma": FakeFamily(ONE_ORDER)}
    tune(rigged(batch_invariant=True, families=families), store)
    (found,) = query.winners(store.database, problem=PROBLEM, m=M, batch_invariant=True)
    assert found.cublas_us is not None
    assert found.dequantized_us is None
    assert trials(store) == []


def test_one_problem_is_measured_alone_once(store: Store, rigged: MakeJob) -> None:
    tune(rigged(buckets=(M, 2 * M, 4 * M)), store)
    assert len(trials(store)) == 1 + 3


@pytest.mark.parametrize("how", ["segv", "wrong", "resources"])
def test_a_broken_one_is_left_out_and_the_finals_go_on(
    store: Store, rigged: MakeJob, evaluated: Callable[[], list[str]], how: str
) -> None:
    tune(rigged({"behaviour": {"dequantized": how}}, buckets=(M, 2 * M)), store)
    (outcome,) = trials(store)
    assert outcome.status not in (Status.OK, Status.NOISY, Status.STARTED)
    for m in (M, 2 * M):
        assert winner(store, m).dequantized_us is None
        assert winner(store, m).proof is not None
    finals = [line for line in evaluated() if line.startswith("finals ")]
    assert len(finals) == 2
    assert not any("dequantized" in line for line in finals)


def test_one_that_kills_the_worker_twice_is_quarantined(store: Store, rigged: MakeJob) -> None:
    deadly = {"behaviour": {"dequantized": "segv"}}
    for _ in range(4):
        tune(rigged(deadly, refresh=True), store)
    assert [outcome.status for outcome in trials(store)] == [Status.CRASH] * 2


def test_one_that_does_not_compile_is_a_note(store: Store, rigged: MakeJob) -> None:
    events: list[Event] = []
    handler = "search_fakes:make_compiler_without_dequantize"
    tune(rigged(compile_handler=handler), store, events.append)
    notes = [event.text for event in events if isinstance(event, Note)]
    assert notes == ["the dequantize kernel did not compile: error: refused"]
    assert winner(store).proof is not None


def test_a_winner_that_was_never_compared_with_it_is_compared_once(
    store: Store, rigged: MakeJob
) -> None:
    tune(rigged(), store)
    first = winner(store)
    store.set_winner(
        first.trial_id, default_us=first.default_us, cublas_us=first.cublas_us, refresh=True
    )
    assert winner(store).dequantized_us is None
    tune(rigged(), store)
    assert winner(store).dequantized_us == first.dequantized_us
    count = len(trials(store))
    tune(rigged(), store)
    assert len(trials(store)) == count, "now it stands"


@pytest.mark.parametrize(
    ("dequantized_us", "interval", "first"),
    [
        (None, None, False),
        (4.0, None, True),
        (5.0, None, False),
        (6.0, None, False),
        (4.0, (0.8, 0.79, 0.81), True),
        (4.9, (0.98, 0.95, 1.0), False),
        (4.9, (0.98, 0.95, 1.01), False),
        (5.1, (0.99, 0.98, 0.995), False),
    ],
)
def test_it_goes_first_only_where_it_is_faster_beyond_doubt(
    store: Store,
    rigged: MakeJob,
    dequantized_us: float | None,
    interval: tuple[float, float, float] | None,
    first: bool,
) -> None:
    ratio = None if interval is None else Interval(*interval, count=11)
    proof = None if ratio is None else Proof(11, Interval(5, 5, 5, 11), over_dequantized=ratio)
    tune(rigged(), store)
    found = replace(winner(store), time_us=5.0, dequantized_us=dequantized_us, proof=proof)
    assert found.dequantize_first == first
    assert not replace(found, predicted=True).dequantize_first


def test_contenders_cross_the_pipe() -> None:
    source = emit_dequantize(PROBLEM, arch_named("sm_90a"))
    common = (source.plan, source.entry, "/c", Resources(64, 0, 0, 1.5), source.digest())
    contenders: tuple[Contender, ...] = (None, Dequantizer(*common), Candidate(BASE, *common))
    assert [name_of(item) for item in contenders] == ["cublas", "dequantized", "ptxtune"]
    for item in contenders:
        assert candidate_from_dict(candidate_to_dict(item)) == item
