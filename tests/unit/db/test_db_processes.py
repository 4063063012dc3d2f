"""Processes: several at once, and ones that die, on SQLite and on PostgreSQL."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from db_samples import H200, PROBLEM, TOOLCHAIN, FakeConfig, ok
from sqlalchemy import func, select, update

from db import query
from db.models import Trial, Winner
from db.orphans import ORPHAN_AGE_S, ORPHAN_MESSAGE
from db.records import Protocol
from db.session import open_database
from db.store import Store
from ptxgen.outcome import Outcome, Status

HERE = Path(__file__).parent
ROOT = HERE.parents[2]

PRELUDE = """
import sys, time
from db_samples import *
from db.session import open_database
from db.store import Store
from db.records import Protocol
target, name = sys.argv[1:3]
database = open_database(target)
store = Store(database)
"""

WRITER = (
    PRELUDE
    + """
for number in range(15):
    run = store.start_run(H200, TOOLCHAIN)
    config = FakeConfig(1 + number, False)  # the same ones in every process
    trial = store.start_trial(run, PROBLEM, 8, Protocol.PLAIN, config=config)
    store.end_trial(trial, ok(1.0 + int(name) + number))
    store.set_winner(trial, refresh=True)
"""
)

VICTIM = (
    PRELUDE
    + """
run = store.start_run(H200, TOOLCHAIN)
trial = store.start_trial(run, PROBLEM, 8, Protocol.PLAIN, config=FakeConfig(1, False))
print(trial, flush=True)
time.sleep(120)
"""
)


def spawn(script: str, target: str, name: str = "0") -> subprocess.Popen[str]:
    env = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{HERE}"}
    command = [sys.executable, "-c", script, target, name]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=env, text=True, stdout=pipe, stderr=pipe)


def finish(children: list[subprocess.Popen[str]]) -> None:
    for child in children:
        _, errors = child.communicate(timeout=120)
        assert child.returncode == 0, errors


def test_processes_that_open_a_fresh_database_at_once_share_it_and_lose_nothing(fresh_target):
    finish([spawn(WRITER, fresh_target, name) for name in ("0", "1", "2")])
    with open_database(fresh_target) as database:
        records = query.trials(database, statuses=(Status.OK,))
        assert len(records) == 45
        assert sorted(record.outcome.time_us for record in records) == sorted(
            1.0 + name + number for name in range(3) for number in range(15)
        )
        assert len(query.runs(database)) == 45
        assert len(query.devices(database)) == 1
        with database.reading() as session:
            assert session.scalar(select(func.count()).select_from(Winner)) == 1


@pytest.fixture
def killed_trial(target) -> int:
    """A trial whose process was killed between start and end."""
    child = spawn(VICTIM, target)
    trial_id = int(child.stdout.readline())
    child.send_signal(signal.SIGKILL)
    child.communicate()
    return trial_id


def test_a_killed_process_leaves_a_started_trial_that_becomes_a_crash(
    killed_trial, store, database
):
    assert query.trial(database, killed_trial).outcome.status is Status.STARTED
    assert store.recover_orphans() == 1
    record = query.trial(database, killed_trial)
    assert record.outcome == Outcome(Status.CRASH, ORPHAN_MESSAGE)
    assert record.ended_at is not None
    assert store.recover_orphans() == 0


def test_the_trial_of_a_living_process_is_left_alone(target, store, database):
    child = spawn(VICTIM, target)
    try:
        trial_id = int(child.stdout.readline())
        assert store.recover_orphans(max_age_s=0) == 0
        assert query.trial(database, trial_id).outcome.status is Status.STARTED
    finally:
        child.kill()
        child.communicate()
    assert store.recover_orphans() == 1


def test_a_trial_of_another_host_is_an_orphan_only_once_it_is_old(writer, store, database):
    trial_id = writer.trial(None)
    with database.writing() as session:
        session.execute(update(Trial).values(owner="elsewhere/12345678/pid:[1]|1|1"))
    assert store.recover_orphans() == 0
    assert store.recover_orphans(max_age_s=0) == 1
    assert query.trial(database, trial_id).outcome.status is Status.CRASH
    assert ORPHAN_AGE_S >= 600


def test_a_reader_sees_one_state_while_another_connection_writes(target, database, family):
    store = Store(database)
    run_id = store.start_run(H200, TOOLCHAIN)
    config = FakeConfig(1, False)
    with open_database(target, busy_timeout_ms=0) as other, other.reading() as session:
        count = select(func.count()).select_from(Trial)
        assert session.scalar(count) == 0
        trial_id = store.start_trial(run_id, PROBLEM, 8, Protocol.PLAIN, config=config)
        store.end_trial(trial_id, ok(1.0))
        if database.engine.dialect.name == "sqlite":  # a snapshot; PostgreSQL reads committed rows
            assert session.scalar(count) == 0
        with open_database(target) as third:
            assert query.trial(third, trial_id).outcome == ok(1.0)


def test_a_reader_works_while_a_write_is_under_way(target, writer, database):
    trial_id = writer.trial(ok(1.0))
    with database.writing() as session:
        session.execute(update(Trial).values(message="half done"))
        session.flush()
        with open_database(target, busy_timeout_ms=0) as other:
            assert query.trial(other, trial_id).outcome.message == ""
        session.rollback()
