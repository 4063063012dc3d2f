"""Heats: who takes part, who goes on to the finals, and what happens where they fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from search_fakes import BASE, PROBLEM, SMALL, families

from db import query
from db.store import Store
from ptxgen.arch import arch_named
from ptxgen.outcome import Status
from search.budget import Budget
from search.events import Event, Note
from search.finals import FINALISTS
from search.heats import ENTRANTS
from search.job import TuneJob
from search.tune import tune

LEGAL = list(families(SMALL)["mma"].candidates(PROBLEM, arch_named("sm_90a"), 8))
SCREENED = [BASE, *(config for config in LEGAL if config != BASE)]
CLOSE = {config.key(): 10.0 + 0.015 * place for place, config in enumerate(SCREENED)}
"""What screening says of all of them: the first is the default, the last within 6 % of it."""

FAST = SCREENED[20]
SUSTAINED = {
    config.key(): 9.0 if config == FAST else 12.0 - 0.1 * place
    for place, config in enumerate(SCREENED)
}
"""In turns the order is the other way round, and one of the middle wins."""

MakeJob = Callable[..., TuneJob]


@pytest.fixture
def close_job(make_job: MakeJob) -> MakeJob:
    def make(**options: Any) -> TuneJob:
        told = {"screen_us": CLOSE, "final_us": SUSTAINED, **options}
        budget = Budget(trials=len(LEGAL))
        return make_job(told, evaluator="rigged_evaluator:create", budget=budget)

    return make


@pytest.fixture
def windows(evaluated: Callable[[], list[str]]) -> Callable[[], list[tuple[str, list[str]]]]:
    """Kind and contenders of every window of turns so far."""

    def read() -> list[tuple[str, list[str]]]:
        lines = [line for line in evaluated() if line.startswith(("heats ", "finals "))]
        kinds = [line.partition(" ")[::2] for line in lines]
        return [(kind, keys.split(" | ")) for kind, keys in kinds]

    return read


def keys(first: int, end: int) -> list[str]:
    return [config.key() for config in SCREENED[first:end]]


def test_the_space_is_large_enough_to_say_something() -> None:
    assert len(LEGAL) > ENTRANTS > 20 > FINALISTS
    assert CLOSE[SCREENED[-1].key()] <= 1.06 * CLOSE[BASE.key()]


def test_one_that_screening_put_far_behind_wins(
    store: Store, close_job: MakeJob, windows: Callable[[], list[tuple[str, list[str]]]]
) -> None:
    tune(close_job(), store)
    (heats, entrants), (finals, contenders) = windows()
    assert (heats, finals) == ("heats", "finals")
    assert sorted(entrants) == sorted(keys(0, ENTRANTS))
    by_time = sorted(entrants, key=SUSTAINED.__getitem__)
    assert contenders == [*by_time[:FINALISTS], BASE.key(), "cublas"]
    (winner,) = query.winners(store.database, problem=PROBLEM)
    assert winner.config == FAST
    assert winner.time_us == 9.0


def test_where_few_are_near_there_are_no_heats(
    store: Store, close_job: MakeJob, windows: Callable[[], list[tuple[str, list[str]]]]
) -> None:
    apart = {
        key: time_us if place < FINALISTS else 11.0 + place
        for place, (key, time_us) in enumerate(CLOSE.items())
    }
    tune(close_job(screen_us=apart), store)
    ((kind, contenders),) = windows()
    assert (kind, contenders) == ("finals", [*keys(0, FINALISTS), "cublas"])


@pytest.mark.parametrize("how", ["segv", "sticky", "garbage"])
def test_heats_that_kill_the_worker_leave_the_choice_to_the_screening(
    store: Store,
    close_job: MakeJob,
    windows: Callable[[], list[tuple[str, list[str]]]],
    how: str,
) -> None:
    events: list[Event] = []
    tune(close_job(heats=how), store, events.append)
    assert [kind for kind, _ in windows()] == ["heats", "finals"]
    assert windows()[-1][1] == [*keys(0, FINALISTS), "cublas"]
    told = [event.text for event in events if isinstance(event, Note)]
    assert any(text.startswith("the heats failed (") for text in told)
    (winner,) = query.winners(store.database, problem=PROBLEM)
    assert winner.config == SCREENED[FINALISTS - 1]


def test_so_do_heats_of_a_throttled_gpu(
    store: Store, close_job: MakeJob, windows: Callable[[], list[tuple[str, list[str]]]]
) -> None:
    tune(close_job(heats_fault="the GPU was throttled"), store)
    assert windows()[-1] == ("finals", [*keys(0, FINALISTS), "cublas"])


@pytest.mark.parametrize("fault", ["", "the GPU was throttled"])
@pytest.mark.parametrize("culprit", [FAST, BASE], ids=["fastest", "default"])
def test_who_is_wrong_in_the_heats_is_stored_so_and_goes_no_further(
    store: Store,
    close_job: MakeJob,
    windows: Callable[[], list[tuple[str, list[str]]]],
    culprit: Any,
    fault: str,
) -> None:
    tune(close_job(wrong_later=[culprit.key()], heats_fault=fault), store)
    assert culprit.key() in windows()[0][1]
    assert culprit.key() not in windows()[1][1]
    found = query.trials(store.database, problem=PROBLEM, config=culprit)
    assert [item.outcome.status for item in found] == [Status.OK, Status.WRONG]
    (winner,) = query.winners(store.database, problem=PROBLEM)
    assert winner.config != culprit
