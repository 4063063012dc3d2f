"""Engines: SQLAlchemy's engines for our places, with transactions that begin when ours do."""

from __future__ import annotations

import sqlite3
from typing import Any

from sqlalchemy import Connection, Engine, NullPool, StaticPool, create_engine, event
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from db.damage import tolerant_json, tolerant_text
from db.faults import ELSEWHERE
from db.place import Place
from db.sqlite_file import SqliteReader
from ptxgen.errors import StoreError

BUSY_TIMEOUT_MS = 30_000
WRITE = "ptxtune_write"
"""Execution option of connections whose transactions write."""


def engine_of(place: Place, busy_timeout_ms: int, reader: SqliteReader | None = None) -> Engine:
    """The engine of a place; of an SQLite file with a reader, one whose connections only read."""
    options: dict[str, Any] = {"pool_pre_ping": not place.is_sqlite}
    if place.is_sqlite:
        options["json_deserializer"] = tolerant_json
    if place.in_memory:
        options |= {"poolclass": StaticPool, "connect_args": {"check_same_thread": False}}
    elif reader is not None:
        options |= {"poolclass": NullPool, "creator": reader.connect}
    try:
        engine = create_engine(place.url, **options)
    except (NoSuchModuleError, ModuleNotFoundError) as error:
        raise StoreError(
            f"database {place.label} needs a driver that is not installed ({error}). For "
            f"PostgreSQL: pip install 'ptxtune[postgresql]'. Install it, {ELSEWHERE}."
        ) from error
    except (ArgumentError, TypeError, ValueError) as error:
        raise StoreError(
            f"database {place.label} cannot be opened: {' '.join(str(error).split())}. Check the "
            f"URL and its parameters, "
            f"{ELSEWHERE}."
        ) from error
    if place.is_sqlite:
        _own_sqlite_transactions(engine, busy_timeout_ms)
    return engine


def _own_sqlite_transactions(engine: Engine, busy_timeout_ms: int) -> None:
    """Takes BEGIN away from the sqlite3 module, which would leave DDL outside of transactions."""

    @event.listens_for(engine, "connect")
    def on_connect(connection: Any, _record: Any) -> None:
        connection.isolation_level = None
        for pragma in (
            f"busy_timeout = {busy_timeout_ms}",
            "foreign_keys = ON",
            "synchronous = NORMAL",
        ):
            connection.execute(f"PRAGMA {pragma}").close()
        connection.text_factory = tolerant_text

    @event.listens_for(engine, "begin")
    def on_begin(connection: Connection) -> None:
        write = connection.get_execution_options().get(WRITE, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def memory_engine(connection: sqlite3.Connection | None = None) -> Engine:
    """An SQLite database in memory: an empty one, or the given connection's."""
    options: dict[str, Any] = {"connect_args": {"check_same_thread": False}}
    if connection is not None:
        options = {"creator": lambda: connection}
    engine = create_engine(
        "sqlite://", poolclass=StaticPool, json_deserializer=tolerant_json, **options
    )
    _own_sqlite_transactions(engine, BUSY_TIMEOUT_MS)
    return engine
