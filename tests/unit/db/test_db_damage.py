"""Damage: one bad row is named and left out; everything else is served, listed and tuned on."""

from __future__ import annotations

import sqlite3
import warnings
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from db_samples import H100, H200, PROBLEM, SM90A, TOOLCHAIN, FakeConfig, ok

from db import query
from db.check import FILE, Finding, check_database
from db.damage import DamagedRowWarning
from db.records import Protocol
from db.session import MAX_WARNINGS, Database, open_database, open_for_reading
from db.store import Store
from ptxgen.problem import Problem

OTHER = Problem(1024, 512)

DAMAGE = [
    ("config", "data", "{", "data is '{'"),
    ("config", "data", "[" * 100_000, "data is"),
    ("config", "data", "[1]", "data is [1]"),
    ("run", "settings", "no JSON", "settings is"),
    ("run", "started_at", "yesterday", "started_at is 'yesterday'"),
    ("trial", "ended_at", "2026-99-99 00:00:00", "ended_at is"),
    ("trial", "evidence", '{"before": 3}', "evidence"),
    ("trial", "samples_us", '["fast"]', "samples_us is"),
    ("trial", "time_us", "fast", "time_us is 'fast'"),
    ("trial", "time_us", -1.0, "status is ok and time_us is -1.0"),
    ("trial", "status", "splendid", "splendid"),
    ("trial", "protocol", "warm", "warm"),
    ("trial", "m", 99_999_999, "99999999"),
    ("trial", "message", b"\xff\xfe", "message is"),
    ("trial", "problem_id", 77, "its problem 77 is missing"),
    ("problem", "n", 7, "multiple of 8"),
    ("problem", "n", 8192, "key is"),
    ("problem", "dtype", "fp8", "fp8"),
    ("device", "capability", "nine", "capability is 'nine'"),
    ("device", "num_sms", "many", "num_sms is 'many'"),
    ("winner", "ties", "{", "ties is"),
    ("winner", "proof", '{"rounds": []}', "proof"),
    ("winner", "default_us", "slow", "default_us is 'slow'"),
    ("winner", "protocol", "warm", "warm"),
]


@pytest.fixture
def tuned(tmp_path: Path, sqlite_template: Path, writer_of: Callable[[Database], None]) -> Path:
    """Rows 1 of every table belong to one winner, rows 2 to another on another GPU."""
    path = tmp_path / "tune.db"
    path.write_bytes(sqlite_template.read_bytes())
    with open_database(path) as database:
        writer_of(database)
    return path


@pytest.fixture
def writer_of(family) -> Callable[[Database], None]:
    def write(database: Database) -> None:
        store = Store(database)
        for device, problem, config in (
            (H200, PROBLEM, FakeConfig(16, False)),
            (H100, OTHER, FakeConfig(32, False)),
        ):
            run = store.start_run(device, TOOLCHAIN, {"budget": "quick"})
            digest = family.emit(problem, config, SM90A).digest()
            trial = store.start_trial(
                run, problem, 8, Protocol.PLAIN, config=config, source_digest=digest
            )
            store.end_trial(trial, ok(5.0, samples_us=(5.0,)))
            store.set_winner(trial, default_us=6.0, ties=(config,))

    return write


def spoil(path: Path, table: str, column: str, value: object) -> None:
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("PRAGMA ignore_check_constraints = ON")
        done = raw.execute(f"UPDATE {table} SET {column} = ? WHERE id = 1", (value,))  # noqa: S608
        assert done.rowcount == 1
        raw.commit()


@pytest.mark.parametrize(
    ("table", "column", "value", "why"),
    DAMAGE,
    ids=[f"{index}-{item[0]}.{item[1]}" for index, item in enumerate(DAMAGE)],
)
@pytest.mark.filterwarnings("always::db.damage.DamagedRowWarning")
def test_a_damaged_row_is_named_and_the_others_are_served(
    tuned: Path, table: str, column: str, value: object, why: str
) -> None:
    spoil(tuned, table, column, value)
    with open_for_reading(tuned) as database:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = query.winners(database)
            query.trials(database)
            query.runs(database)
            query.devices(database)
            best = query.best(
                database, OTHER, 8, H100, Protocol.PLAIN, toolchain=TOOLCHAIN, arch=SM90A
            )
        assert OTHER in [item.problem for item in found]
        assert best.winner is not None
        assert {item.category for item in caught} == {DamagedRowWarning}
        said = [str(item.message) for item in caught]
        assert len(said) == len(set(said))  # each row once
        assert any(f"{tuned}, table {table}, row 1: " in text and why in text for text in said)
        findings = check_database(database)
    assert any(item.table == table and item.row == 1 and why in item.why for item in findings)
    assert {item.row for item in findings if item.row is not None} == {1}


def test_a_whole_database_has_no_findings(tuned: Path) -> None:
    with open_for_reading(tuned) as database:
        assert check_database(database) == []


def test_tuning_goes_on_and_mends_what_it_writes_anyway(
    tuned: Path, writer_of: Callable[[Database], None]
) -> None:
    for table, column, value, _ in DAMAGE:
        if table in ("config", "problem", "winner") and column != "protocol":
            spoil(tuned, table, column, value)
    with open_database(tuned) as database:
        Store(database).recover_orphans()
        with pytest.warns(DamagedRowWarning):
            assert len(query.winners(database)) == 1
        writer_of(database)
        assert len(query.winners(database)) == 2
        assert check_database(database) == []


def test_many_damaged_rows_are_not_many_lines(tuned: Path) -> None:
    with open_database(tuned) as database:
        run = query.runs(database)[0].id
        for _ in range(2 * MAX_WARNINGS):
            Store(database).start_trial(
                run, PROBLEM, 8, Protocol.PLAIN, config=FakeConfig(1, False)
            )
        with database.writing() as session:
            session.connection().exec_driver_sql("UPDATE trial SET started_at = 'never'")
    with open_for_reading(tuned) as database:
        with pytest.warns(DamagedRowWarning) as caught:
            assert query.trials(database) == []
        assert len(caught) == MAX_WARNINGS + 1
        assert "has more damaged rows" in str(caught[-1].message)
        assert len(check_database(database)) == 2 * MAX_WARNINGS + 2


def test_damaged_pages_are_found(tuned: Path) -> None:
    with closing(sqlite3.connect(tuned)) as raw:
        (page,) = raw.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'ix_trial_status'"
        ).fetchone()
        (size,) = raw.execute("PRAGMA page_size").fetchone()
    with open(tuned, "r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)
    with open_for_reading(tuned) as database:
        findings = check_database(database)
    assert findings
    assert {item.table for item in findings} == {FILE}


def test_an_impossible_row_of_a_server_is_left_out_too(database, store, writer_of) -> None:
    writer_of(database)
    with database.writing() as session:
        session.connection().exec_driver_sql("UPDATE problem SET n = 7 WHERE k = 512")
    with pytest.warns(DamagedRowWarning, match=r"n = 7|multiple of 8"):
        (winner,) = query.winners(database)
    assert winner.problem == PROBLEM
    (finding,) = check_database(database)
    assert isinstance(finding, Finding)
    assert finding.table == "problem"
