"""Winners: who replaces whom, and what a winner is read back as."""

from __future__ import annotations

from dataclasses import replace

import pytest
from db_samples import H100_PCIE, H200, PROBLEM, TOOLCHAIN, FakeConfig, full_outcome, ok
from sqlalchemy import update

from db import query
from db.models import Trial
from db.records import PROTOCOL_VERSION, Protocol
from ptxgen.errors import StoreError
from ptxgen.outcome import Outcome, Resources, Status
from ptxgen.problem import Problem

UNWINNABLE = [status for status in Status if status not in (Status.OK, Status.PREDICTED)]


def only_time(database, **filters) -> float:
    (winner,) = query.winners(database, **filters)
    return winner.time_us


def test_a_winner_is_read_back_in_full(writer, store, database):
    config, tie = FakeConfig(16, False), FakeConfig(32, True)
    outcome = full_outcome(Status.OK)
    trial_id = writer.trial(outcome, config=config, m=16, protocol=Protocol.CHAINED)
    assert store.set_winner(trial_id, default_us=6.5, cublas_us=9.25, ties=(config, tie))
    (winner,) = query.winners(database)
    assert (winner.trial_id, winner.device, winner.toolchain) == (trial_id, H200, TOOLCHAIN)
    assert (winner.problem, winner.m, winner.protocol) == (PROBLEM, 16, Protocol.CHAINED)
    assert (winner.config, winner.ties) == (config, (config, tie))
    assert (winner.time_us, winner.spread, winner.rel_err, winner.floor_us, winner.clock_mhz) == (
        outcome.time_us,
        outcome.spread,
        outcome.rel_err,
        outcome.floor_us,
        outcome.clock_mhz,
    )
    assert (winner.default_us, winner.cublas_us, winner.predicted) == (6.5, 9.25, False)
    assert winner.source_digest == query.trial(database, trial_id).source_digest
    assert winner.measured_at == query.trial(database, trial_id).ended_at


@pytest.mark.parametrize(
    "case",
    [
        (4.9, False, True),
        (5.0, False, False),
        (5.1, False, False),
        (4.9, True, True),
        (5.1, True, True),
    ],
    ids=str,
)
def test_only_a_faster_or_a_refreshed_one_replaces(writer, store, database, case):
    time_us, refresh, replaces = case
    assert store.set_winner(writer.trial(ok(5.0)), default_us=7.0)
    trial_id = writer.trial(ok(time_us), config=FakeConfig(8, True))
    assert store.set_winner(trial_id, default_us=6.0, refresh=refresh) is replaces
    (winner,) = query.winners(database)
    assert (winner.time_us, winner.default_us) == ((time_us, 6.0) if replaces else (5.0, 7.0))


def test_a_slower_one_replaces_a_winner_whose_source_changed(writer, store, database):
    store.set_winner(writer.trial(ok(5.0)))
    writer.family.emitter_version = 2
    assert store.set_winner(writer.trial(ok(6.0)))
    assert only_time(database) == 6.0


@pytest.mark.parametrize("column", ["protocol_version", "layout_version"])
def test_a_slower_one_replaces_a_winner_of_another_version(writer, store, database, column):
    trial_id = writer.trial(ok(5.0))
    store.set_winner(trial_id)
    change = update(Trial).where(Trial.id == trial_id).values({column: 99})
    with database.writing() as session:
        session.execute(change)
    assert store.set_winner(writer.trial(ok(6.0)))
    assert only_time(database) == 6.0


def test_predicted_and_measured_winners_stand_side_by_side(writer, store, database):
    predicted = writer.trial(Outcome(Status.PREDICTED, time_us=3.0))
    measured = writer.trial(ok(5.0))
    assert store.set_winner(predicted)
    assert store.set_winner(measured)
    assert not store.set_winner(writer.trial(Outcome(Status.PREDICTED, time_us=4.0)))
    assert only_time(database, predicted=False) == 5.0
    assert only_time(database, predicted=True) == 3.0


@pytest.mark.parametrize("status", UNWINNABLE)
def test_a_trial_that_did_not_succeed_cannot_win(writer, store, database, status):
    trial_id = writer.trial(None if status is Status.STARTED else Outcome(status, "why"))
    with pytest.raises(StoreError, match="cannot be a winner"):
        store.set_winner(trial_id)
    assert query.winners(database) == []


def test_baselines_and_unknown_trials_cannot_win(writer, store, database):
    for trial_id in (writer.baseline(9.0), 12345):
        with pytest.raises(StoreError, match="cannot be a winner"):
            store.set_winner(trial_id)
    assert query.winners(database) == []


def test_every_part_of_the_key_has_its_own_winner(writer, store, database):
    variants = [
        {},
        {"m": 1},
        {"protocol": Protocol.CHAINED},
        {"problem": Problem(64, 64, group_size=32)},
        {"problem": replace(PROBLEM, bias=True)},
        {"device": H100_PCIE},
    ]
    for number, variant in enumerate(variants):
        assert store.set_winner(writer.trial(ok(10.0 + number), **variant))
    assert sorted(winner.time_us for winner in query.winners(database)) == [
        10.0 + number for number in range(len(variants))
    ]
    for number, variant in enumerate(variants[1:], 1):
        assert 10.0 + number in [winner.time_us for winner in query.winners(database, **variant)]
        others = [winner.time_us for winner in query.winners(database) if winner.time_us == 10.0]
        assert others == [10.0]


@pytest.mark.parametrize("spelling", ["H200", "NVIDIA_H200", "nvidia h200", "NVIDIA H200"])
def test_one_model_has_one_winner_however_it_is_spelled(writer, store, database, spelling):
    same = replace(H200, name=spelling, uuid="GPU-77")
    store.set_winner(writer.trial(ok(5.0)))
    assert not store.set_winner(writer.trial(ok(6.0), device=same))
    assert store.set_winner(writer.trial(ok(4.0), device=same))
    assert only_time(database, device=H200) == 4.0


def test_winners_come_by_shape_and_batch(writer, store, database):
    small = Problem(64, 128)
    for problem, m in ((PROBLEM, 16), (small, 8), (PROBLEM, 1), (small, 1)):
        store.set_winner(writer.trial(ok(1.0), problem=problem, m=m))
    assert [(winner.problem, winner.m) for winner in query.winners(database)] == [
        (small, 1),
        (small, 8),
        (PROBLEM, 1),
        (PROBLEM, 16),
    ]


def test_a_winner_carries_the_versions_it_was_measured_under(writer, store, database):
    store.set_winner(writer.trial(ok(1.0)))
    assert query.winners(database)[0].protocol_version == PROTOCOL_VERSION


@pytest.mark.parametrize("resources", [Resources(96, 0, 49152, 71.5), None])
def test_a_winner_has_the_resources_of_its_trial(writer, store, database, resources):
    store.set_winner(writer.trial(ok(5.0, resources=resources)))
    (winner,) = query.winners(database)
    assert winner.resources == resources
