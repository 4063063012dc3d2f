"""Check: looks at every row of a database, and asks SQLite about the file itself; reads only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from db.damage import DamagedRowError
from db.models import ConfigRow, Device, ProblemRow, Run, Toolchain, Trial, Winner
from db.rows import (
    config_record,
    device_record,
    problem_record,
    run_record,
    toolchain_record,
    trial_record,
    winner_record,
)
from db.session import Database
from ptxgen.errors import StoreError

FILE = "(file)"
"""Table of a finding that is about the file, not about a row."""

_CONVERT: dict[Any, Callable[[Any], object]] = {
    Device: device_record,
    Toolchain: toolchain_record,
    ProblemRow: problem_record,
    ConfigRow: config_record,
    Run: run_record,
    Trial: trial_record,
    Winner: winner_record,
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault: where it is, and what is wrong. row is None where it is of no single row."""

    table: str
    row: int | None
    why: str


def check_database(database: Database) -> list[Finding]:
    """Every damaged row, each once, by table; then what SQLite finds wrong with its file.

    A row that is itself whole but depends on a damaged one is not listed: mending that one mends
    both.
    """
    found: dict[Finding, None] = {}
    for table in _CONVERT:
        try:
            with database.reading() as session:
                found.update(dict.fromkeys(_damaged(session, table)))
        except StoreError as error:  # the pages of this table are damaged
            found[Finding(table.__tablename__, None, str(error))] = None
    if database.engine.dialect.name == "sqlite":
        try:
            with database.reading() as session:
                found.update(dict.fromkeys(_of_sqlite(session)))
        except StoreError as error:
            found[Finding(FILE, None, str(error))] = None
    return list(found)


def _damaged(session: Session, table: Any) -> Iterator[Finding]:
    for row in session.scalars(select(table).order_by(table.id)):
        try:
            _CONVERT[table](row)
        except DamagedRowError as damage:
            if damage.table == table.__tablename__:
                yield Finding(damage.table, row.id, damage.why)


def _of_sqlite(session: Session) -> Iterator[Finding]:
    connection = session.connection()
    for (text,) in connection.exec_driver_sql("PRAGMA integrity_check"):
        if text != "ok":
            yield Finding(FILE, None, str(text))
    for table, row, parent, _ in connection.exec_driver_sql("PRAGMA foreign_key_check"):
        yield Finding(str(table), row, f"it refers to a row of {parent} that is missing")
