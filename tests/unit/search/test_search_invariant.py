"""A batch-invariant run searches configs of one order, and leaves ordinary winners alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from search_fakes import PROBLEM, FakeFamily

from db import query
from db.store import Store
from ptxgen.config import Scalar
from ptxgen.errors import ConfigError
from ptxgen.families import FAMILIES
from ptxgen.families.base import Family
from ptxgen.families.invariant import invariant_key, is_invariant
from ptxgen.families.mma import MMA
from search.job import TuneJob
from search.tune import tune

MakeJob = Callable[..., TuneJob]

SEARCHED: dict[str, tuple[Scalar, ...]] = {
    "block_n": (32, 64),
    "warp_n": (32,),
    "block_k": (256, 512),
    "num_stages": (2, 3),
    "split_k": (1, 2),
    "scale_on": ("accumulators", "weights"),
    "weights_first": (False, True),
}


def mixed() -> dict[str, Family]:
    """Kernels of several orders, some of them batch-invariant."""
    return {"mma": FakeFamily(SEARCHED)}


def test_only_the_one_order_is_tried_and_the_winner_is_kept_apart(
    store: Store, make_job: MakeJob
) -> None:
    (ordinary,) = tune(make_job(families=mixed()), store).tasks
    before = query.winners(store.database)
    events: list[Any] = []
    job = make_job(families=mixed(), batch_invariant=True, buckets=(8, 64), refresh=True)
    summary = tune(job, store, events.append)

    tried = query.trials(store.database, run_id=summary.run_id, contender="ptxtune")
    assert {MMA.summation_key(PROBLEM, item.config) for item in tried if item.config} == {
        invariant_key(PROBLEM)
    }
    assert len({item.config.key() for item in tried if item.config}) >= 8
    assert query.winners(store.database) == before
    assert ordinary.config is not None
    found = query.winners(store.database, batch_invariant=True)
    assert [(item.m, item.config) for item in found] == [
        (task.task.m, task.config) for task in summary.tasks
    ]
    assert all(task.task.title().endswith("batch-invariant") for task in summary.tasks)
    assert query.run(store.database, summary.run_id).settings["batch_invariant"] is True


def test_trials_of_an_ordinary_run_are_not_repeated(
    store: Store, make_job: MakeJob, evaluated: Callable[[], list[str]]
) -> None:
    tune(make_job(families=mixed()), store)
    first = {line for line in evaluated() if line.startswith("evaluate screen")}
    tune(make_job(families=mixed(), batch_invariant=True), store)
    lines = [line for line in evaluated() if line.startswith("evaluate screen")]
    assert len(first) > 20
    assert len(lines) == len(set(lines))
    (winner,) = query.winners(store.database, batch_invariant=True)
    assert is_invariant(PROBLEM, winner.config)


def test_a_stored_winner_of_another_order_takes_no_part_in_the_finals(
    store: Store, make_job: MakeJob
) -> None:
    (first,) = tune(make_job(families=mixed()), store).tasks
    other = next(
        item
        for item in query.trials(store.database, contender="ptxtune")
        if item.config is not None and not is_invariant(PROBLEM, item.config)
    )
    assert first.config is not None
    store.set_winner(other.id, batch_invariant=True)
    (task,) = tune(make_job(families=mixed(), batch_invariant=True), store).tasks
    assert task.config is not None
    assert is_invariant(PROBLEM, task.config)
    (winner,) = query.winners(store.database, batch_invariant=True)
    assert winner.config == task.config


def test_without_the_family_of_the_order_there_is_nothing_to_search(make_job: MakeJob) -> None:
    job = make_job(families={"wgmma": FAMILIES["wgmma"]}, batch_invariant=True)
    with pytest.raises(ConfigError, match="leave batch invariance out"):
        job.kernel_families()
