"""Query: filters, resume, counts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from db_samples import A100, H200, PROBLEM, SM90A, TOOLCHAIN, FakeConfig, ok
from sqlalchemy import update

from db import query
from db.models import Trial
from db.records import Level, Protocol
from ptxgen import families
from ptxgen.errors import StoreError
from ptxgen.outcome import Outcome, Status
from ptxgen.problem import Problem

OTHER = Problem(64, 128)
CRASH = Outcome(Status.CRASH, "sticky")


def ids(records) -> list[int]:
    return [record.id for record in records]


def test_each_filter_keeps_what_it_names(writer, database):
    first = writer.trial(ok(1.0))
    variants = {
        "problem": OTHER,
        "m": 16,
        "protocol": Protocol.CHAINED,
        "config": FakeConfig(99, True),
        "device": A100,
    }
    made = {name: writer.trial(ok(1.0), **{name: value}) for name, value in variants.items()}
    crash = writer.trial(CRASH)
    baseline = writer.baseline(2.0)
    for name, value in variants.items():
        assert ids(query.trials(database, **{name: value})) == [made[name]]
    assert ids(query.trials(database, statuses=(Status.CRASH, Status.HANG))) == [crash]
    assert ids(query.trials(database, statuses=())) == []
    assert ids(query.trials(database, contender="cublas")) == [baseline]
    assert ids(query.trials(database, run_id=writer.run(A100))) == [made["device"]]
    assert ids(query.trials(database)) == [first, *made.values(), crash, baseline]


def test_a_limit_keeps_the_newest_in_order(writer, database):
    made = [writer.trial(ok(1.0)) for _ in range(4)]
    assert ids(query.trials(database, limit=2)) == made[2:]


def test_finished_are_the_attempts_a_run_need_not_repeat(writer, database):
    good, crash = writer.trial(ok(1.0)), writer.trial(CRASH, config=FakeConfig(2, True))
    writer.trial(None)
    writer.baseline(2.0)
    for other in ({"m": 1}, {"problem": OTHER}, {"protocol": Protocol.CHAINED}, {"device": A100}):
        writer.trial(ok(1.0), **other)
    predicted = writer.trial(Outcome(Status.PREDICTED, time_us=1.0))
    asked = (PROBLEM, replace(H200, name="H200", uuid=""), 8, Protocol.PLAIN)
    assert ids(query.finished(database, *asked)) == [good, crash]
    assert ids(query.finished(database, *asked, predicted=True)) == [predicted]
    digest = query.trial(database, crash).source_digest
    assert ids(query.finished(database, *asked, source_digests=[digest])) == [crash]
    assert query.finished(database, *asked, source_digests=[]) == []


@pytest.mark.parametrize("field", ["driver", "nvrtc"])
def test_finished_can_ask_for_the_same_toolchain(writer, database, field):
    good = writer.trial(ok(1.0))
    asked = (PROBLEM, H200, 8, Protocol.PLAIN)
    assert ids(query.finished(database, *asked, toolchain=TOOLCHAIN)) == [good]
    changed = replace(TOOLCHAIN, **{field: "1.2.3"})
    assert query.finished(database, *asked, toolchain=changed) == []
    assert ids(query.finished(database, *asked, toolchain=replace(TOOLCHAIN, torch="9"))) == [good]


@pytest.mark.parametrize("column", ["protocol_version", "layout_version"])
def test_finished_leaves_out_other_versions(writer, database, column):
    trial_id = writer.trial(ok(1.0))
    with database.writing() as session:
        session.execute(update(Trial).where(Trial.id == trial_id).values({column: 99}))
    assert query.finished(database, PROBLEM, H200, 8, Protocol.PLAIN) == []


def test_outcomes_are_counted_by_status(writer, database):
    for outcome in (ok(1.0), ok(2.0), CRASH, None):
        writer.trial(outcome)
    writer.trial(CRASH, device=A100)
    counts = {Status.OK: 2, Status.CRASH: 1, Status.STARTED: 1}
    assert query.outcomes_by_status(database, writer.run()) == counts
    assert query.outcomes_by_status(database, 999) == {}


def test_crashes_are_counted_by_source_model_and_driver(writer, database):
    deadly, fine = FakeConfig(1, True), FakeConfig(2, True)
    for outcome in (CRASH, Outcome(Status.HANG, "killed"), Outcome(Status.WRONG, "off"), ok(1.0)):
        digest = query.trial(database, writer.trial(outcome, config=deadly)).source_digest
    writer.trial(CRASH, config=fine)
    writer.trial(CRASH, config=deadly, device=A100)
    assert query.crash_count(database, digest, H200) == 2
    assert query.crash_count(database, digest, H200, driver=TOOLCHAIN.driver) == 2
    assert query.crash_count(database, digest, H200, driver="1.0") == 0
    assert query.crash_count(database, "0" * 64, H200) == 0


def test_runs_come_in_order_and_a_limit_keeps_the_newest(writer, store, database):
    made = [store.start_run(H200, TOOLCHAIN, {"number": number}) for number in range(3)]
    assert ids(query.runs(database)) == made
    assert ids(query.runs(database, limit=1)) == made[2:]


def test_unknown_ids_are_refused_by_name(database):
    with pytest.raises(StoreError, match="no trial 4"):
        query.trial(database, 4)
    with pytest.raises(StoreError, match="no run 5"):
        query.run(database, 5)


def test_configs_of_a_family_that_is_gone_are_never_served(
    writer, store, database, family, monkeypatch
):
    trial_id = writer.trial(ok(1.0))
    store.set_winner(trial_id)
    monkeypatch.delitem(families.FAMILIES, family.name)
    record = query.trial(database, trial_id)
    assert (record.config, record.outcome) == (None, ok(1.0))
    assert query.winners(database) == []
    answer = query.best(database, PROBLEM, 8, H200, Protocol.PLAIN, toolchain=TOOLCHAIN, arch=SM90A)
    assert answer.level is Level.DEFAULT


def test_best_asks_the_stored_winners(writer, store, database):
    measured = writer.trial(ok(5.0), m=8)
    predicted = writer.trial(Outcome(Status.PREDICTED, time_us=1.0), m=1)
    for trial_id in (measured, predicted):
        store.set_winner(trial_id, default_us=7.0, cublas_us=8.0)

    def ask(m: int, **rest: object):
        return query.best(
            database, PROBLEM, m, H200, Protocol.PLAIN, toolchain=TOOLCHAIN, arch=SM90A, **rest
        )

    assert (ask(5).level, ask(5).winner.trial_id) == (Level.EXACT, measured)
    assert (ask(1).level, ask(1).winner.trial_id, ask(1).predicted) == (
        Level.EXACT,
        predicted,
        True,
    )
    strict = ask(1, allow_predicted=False)
    assert (strict.level, strict.winner.trial_id) == (Level.NEAREST_BUCKET, measured)
    assert ask(3, buckets=(3, 8)).level is Level.NEAREST_BUCKET
    assert ask(3).level is Level.NEAREST_BUCKET


def test_best_serves_what_the_real_emitter_would_still_write(store, database):
    config = families.default_config(PROBLEM, SM90A, 8, H200.num_sms)
    digest = families.emit(PROBLEM, config, SM90A).digest()
    run_id = store.start_run(H200, TOOLCHAIN)
    for m, source_digest in ((8, digest), (64, digest[::-1])):
        trial_id = store.start_trial(
            run_id, PROBLEM, m, Protocol.PLAIN, config=config, source_digest=source_digest
        )
        store.end_trial(trial_id, ok(5.0))
        store.set_winner(trial_id)

    def ask(m: int):
        return query.best(
            database, PROBLEM, m, H200, Protocol.PLAIN, toolchain=TOOLCHAIN, arch=SM90A
        )

    assert (ask(6).level, ask(6).config, ask(6).stale) == (Level.EXACT, config, ())
    assert ask(64).level is Level.DEFAULT
    assert "another source" in ask(64).message
    assert "M = 8 on NVIDIA H200 (takes " in ask(64).message
