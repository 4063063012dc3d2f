"""Store: what is written is what is read, once, on SQLite and on PostgreSQL alike."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from db_samples import H200, PROBLEM, TOOLCHAIN, FakeConfig, full_outcome, ok
from sqlalchemy import func, select, text

from db import query
from db.models import ConfigRow, Device, ProblemRow, Toolchain, Trial
from db.records import Protocol
from db.session import open_database
from ptxgen.errors import StoreError
from ptxgen.outcome import Outcome, Status
from ptxgen.problem import Problem

ENDS = [status for status in Status if status is not Status.STARTED]
PROBLEMS = [
    Problem(4096, 4096),
    Problem(64, 256, group_size=256, dtype="bf16", zero="int", bias=True),
    Problem(28672, 8192, group_size=32, zero="int"),
]


@pytest.mark.parametrize("status", ENDS)
def test_every_outcome_is_read_back_as_it_was(writer, database, status):
    trial_id = writer.trial(full_outcome(status))
    assert query.trial(database, trial_id).outcome == full_outcome(status)


def test_an_outcome_of_status_alone_is_read_back(writer, database):
    trial_id = writer.trial(Outcome(Status.CRASH, "gone"))
    assert query.trial(database, trial_id).outcome == Outcome(Status.CRASH, "gone")


@pytest.mark.parametrize("problem", PROBLEMS, ids=Problem.key)
@pytest.mark.parametrize("protocol", list(Protocol))
def test_a_trial_is_read_back_with_what_it_tried(writer, database, problem, protocol):
    before = datetime.now(UTC)
    config = FakeConfig(7, True)
    trial_id = writer.trial(ok(3.5), m=24, problem=problem, protocol=protocol, config=config)
    record = query.trial(database, trial_id)
    assert (record.problem, record.m, record.protocol) == (problem, 24, protocol)
    assert (record.contender, record.config) == ("ptxtune", config)
    assert len(record.source_digest) == 64
    assert before <= record.started_at <= record.ended_at <= datetime.now(UTC)


def test_a_started_trial_is_committed_before_it_ends(writer, target):
    trial_id = writer.trial(None)
    with open_database(target) as other:
        record = query.trial(other, trial_id)
    assert record.outcome == Outcome(Status.STARTED)
    assert record.ended_at is None


def test_a_second_end_is_refused_and_the_first_one_kept(writer, store, database):
    trial_id = writer.trial(ok(3.5))
    with pytest.raises(StoreError, match="already ended as ok"):
        store.end_trial(trial_id, Outcome(Status.CRASH, "late"))
    assert query.trial(database, trial_id).outcome == ok(3.5)


def test_an_unknown_trial_cannot_end(store):
    with pytest.raises(StoreError, match="trial 99 is unknown"):
        store.end_trial(99, ok(1.0))


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(Status.STARTED),
        Outcome(Status.OK),
        ok(0.0),
        ok(-1.0),
        ok(math.nan),
        ok(math.inf),
        Outcome(Status.PREDICTED),
        ok(1.0, samples_us=(1.0, math.nan)),
        ok(1.0, rel_err=math.inf),
    ],
    ids=str,
)
def test_an_outcome_that_cannot_be_true_is_refused(writer, store, database, outcome):
    trial_id = writer.trial(None)
    with pytest.raises(StoreError, match="cannot be stored"):
        store.end_trial(trial_id, outcome)
    assert query.trial(database, trial_id).outcome.status is Status.STARTED


def test_a_failed_trial_has_no_time_and_no_infinite_numbers(writer, database):
    wrong = Outcome(Status.WRONG, "NaN in row 3", time_us=4.0, rel_err=math.nan, spread=math.inf)
    stored = query.trial(database, writer.trial(wrong)).outcome
    assert stored == Outcome(Status.WRONG, "NaN in row 3")


def test_a_baseline_needs_no_config_and_ours_does(writer, store, database):
    baseline = query.trial(database, writer.baseline(9.0))
    assert (baseline.contender, baseline.config, baseline.outcome.time_us) == ("cublas", None, 9.0)
    with pytest.raises(StoreError, match="has no config"):
        store.start_trial(writer.run(), PROBLEM, 8, Protocol.PLAIN)
    assert len(query.trials(database)) == 1


def test_an_unknown_run_is_refused_and_nothing_is_left(store, database, family):
    with pytest.raises(StoreError, match="run 5 is unknown"):
        store.start_trial(5, PROBLEM, 8, Protocol.PLAIN, config=FakeConfig(1, False))
    with pytest.raises(StoreError, match="run 5 is unknown"):
        store.end_run(5)
    assert query.trials(database) == []
    assert _count(database, ProblemRow) == 0


def test_what_has_a_natural_key_is_stored_once(writer, store, database):
    for _ in range(3):
        run_id = store.start_run(H200, TOOLCHAIN)
        store.start_trial(run_id, PROBLEM, 1, Protocol.PLAIN, config=FakeConfig(2, True))
    assert [_count(database, table) for table in (Device, Toolchain, ProblemRow, ConfigRow)] == [
        1,
        1,
        1,
        1,
    ]
    assert _count(database, Trial) == 3


def test_a_run_is_read_back_and_ends(store, database):
    settings = {"budget": "quick", "m": [1, 8], "limits": {"seconds": 1.5}, "seed": None}
    run_id = store.start_run(H200, TOOLCHAIN, settings)
    record = query.run(database, run_id)
    assert (record.device, record.toolchain, record.settings) == (H200, TOOLCHAIN, settings)
    assert record.ended_at is None
    store.end_run(run_id)
    assert query.run(database, run_id).ended_at >= record.started_at


@pytest.mark.parametrize(
    "value", [object(), math.nan, math.inf, b"bytes"], ids=lambda value: type(value).__name__
)
def test_settings_that_json_cannot_hold_are_refused(store, database, value):
    with pytest.raises(StoreError, match=r"settings cannot be stored: .*JSON"):
        store.start_run(H200, TOOLCHAIN, {"value": value})
    assert query.runs(database) == []


def test_measured_ceilings_replace_a_tables_and_are_not_replaced_by_them(store, database):
    table = replace(H200, measured=False, read_gbps=4000.0, power_limit_w=0)
    for device, stored in ((table, table), (H200, H200), (table, H200)):
        store.start_run(device, TOOLCHAIN)
        assert query.devices(database) == [stored]
    newer = replace(H200, read_gbps=4490.0)
    store.start_run(newer, TOOLCHAIN)
    assert query.devices(database, name_like=H200) == [newer]


def test_two_cards_of_one_model_keep_their_own_ceilings(store, database):
    other = replace(H200, uuid="GPU-9", read_gbps=4400.0)
    store.start_run(H200, TOOLCHAIN)
    store.start_run(other, TOOLCHAIN)
    assert query.devices(database, name_like=replace(H200, name="h200")) == [H200, other]


def test_a_prediction_is_stored_ended(writer, store, database):
    predicted = full_outcome(Status.PREDICTED)
    trial_id = store.add_predicted(
        writer.run(),
        PROBLEM,
        8,
        Protocol.CHAINED,
        config=FakeConfig(3, True),
        source_digest="d" * 64,
        outcome=predicted,
    )
    record = query.trial(database, trial_id)
    assert (record.outcome, record.source_digest) == (predicted, "d" * 64)
    assert record.ended_at == record.started_at
    with pytest.raises(StoreError, match="needs a positive time"):
        store.add_predicted(
            writer.run(),
            PROBLEM,
            8,
            Protocol.CHAINED,
            config=FakeConfig(4, True),
            source_digest="",
            outcome=Outcome(Status.PREDICTED),
        )
    assert len(query.trials(database)) == 1


@pytest.mark.parametrize(
    "change",
    [
        "status = 'fast'",
        "time_us = NULL",
        "status = 'crash'",
        "ended_at = NULL",
        "protocol = 'sometimes'",
        "config_id = NULL",
        "run_id = 77",
    ],
)
def test_the_schema_itself_refuses_an_impossible_trial(writer, store, database, change):
    writer.trial(ok(2.0))
    with pytest.raises(StoreError, match="refused the statement"), database.writing() as session:
        session.execute(text(f"UPDATE trial SET {change}"))  # noqa: S608 (a constant)
    assert query.trials(database)[0].outcome == ok(2.0)


def _count(database, table) -> int:
    with database.reading() as session:
        return session.scalar(select(func.count()).select_from(table))


def test_a_store_says_which_database_refused(store, database):
    with pytest.raises(StoreError) as caught:
        store.end_run(3)
    assert database.label in str(caught.value)
