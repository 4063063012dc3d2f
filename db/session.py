"""Session: opens a database (SQLite file or any SQLAlchemy URL) and hands out its transactions.

To write, with open_database, which creates and migrates; or to ask alone, with open_for_reading,
which changes nothing and makes neither file nor folder.
"""

from __future__ import annotations

import sqlite3
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from db.damage import DamagedRowError, DamagedRowWarning
from db.engines import BUSY_TIMEOUT_MS, WRITE, engine_of, memory_engine
from db.faults import ELSEWHERE, translated
from db.migrate import current_revision, known_revisions, upgrade
from db.models import Base
from db.place import Place, place_of
from db.sqlite_file import SqliteReader
from ptxgen.errors import StoreError

MAX_WARNINGS = 5
"""Damaged rows that are named one by one where a query leaves them out."""


class Database:
    """An open database: two kinds of transactions, and how to call it in messages.

    Attributes:
        label: path, or URL without its password.
        engine: SQLAlchemy's engine.
        read_only: whether it was opened for reading.
        missing: whether there is no such database yet; it then reads as an empty one.
        path: of an SQLite file; None for memory and for servers.
    """

    def __init__(
        self,
        engine: Engine,
        label: str,
        *,
        read_only: bool = False,
        missing: bool = False,
        path: Path | None = None,
        check: Callable[[], None] | None = None,
    ) -> None:
        self.engine = engine
        self.label = label
        self.read_only = read_only
        self.missing = missing
        self.path = path
        self._check = check
        self._left_out: set[tuple[str, object]] = set()
        self._write_engine = engine.execution_options(**{WRITE: True})

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """A transaction that only reads; sees one consistent state. Raises StoreError."""
        with translated(self.label), Session(self.engine) as session:
            yield session
            if self._check is not None:
                self._check()

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """A transaction that commits at the end, or rolls back on any error. Raises StoreError.

        On SQLite it takes the write lock at its start: a read that turns into a write later would
        fail at once where another process wrote in between, whatever the busy timeout.
        """
        if self.read_only:
            raise StoreError(f"database {self.label} was opened for reading and is not written.")
        with translated(self.label), Session(self._write_engine) as session, session.begin():
            yield session

    def leave_out(self, damage: DamagedRowError) -> None:
        """Warns of a row that a query leaves out: of each once, and of the first few alone."""
        key = (damage.table, damage.row)
        if key in self._left_out or len(self._left_out) > MAX_WARNINGS:
            return
        self._left_out.add(key)
        text = f"database {self.label}, {damage}. It is left out, like all that depends on it"
        if len(self._left_out) > MAX_WARNINGS:
            text = f"database {self.label} has more damaged rows, which are left out as well"
        text += "; ptxtune db check lists every damaged row."
        warnings.warn(text, DamagedRowWarning, stacklevel=3)

    def close(self) -> None:
        """Returns all connections."""
        self.engine.dispose()

    def __enter__(self) -> Database:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def open_database(
    target: str | Path | None = None, *, busy_timeout_ms: int = BUSY_TIMEOUT_MS
) -> Database:
    """Opens a database; a missing one is created, an older one is migrated.

    Args:
        target: path of an SQLite file, ":memory:", or any SQLAlchemy URL. None: PTXTUNE_DB, else
            a file in the user's data folder.
        busy_timeout_ms: how long a write waits for another process's lock (SQLite).

    Raises:
        StoreError: the database is unwritable, foreign, damaged, locked, unreachable, or of a newer
            ptxtune.
    """
    place = place_of(target)
    if place.read_only:
        raise StoreError(
            f"database {place.label} is to be written, and its URI says that it is only read (mode "
            f"= ro, or immutable). Leave that out, {ELSEWHERE}."
        )
    if place.path is not None and not place.exists() and place.may_be_created:
        _make_folder(place.path)
    engine = engine_of(place, busy_timeout_ms)
    try:
        _prepare(engine, place.label, busy_timeout_ms / 1000)
    except BaseException:
        engine.dispose()
        raise
    return Database(engine, place.label, path=place.path)


def open_for_reading(
    target: str | Path | None = None, *, busy_timeout_ms: int = BUSY_TIMEOUT_MS
) -> Database:
    """Opens a database for queries; changes nothing, and makes neither file nor folder.

    Works on a read-only file, folder or file system. A database of an older schema is migrated in a
    copy in memory. Where PTXTUNE_DB or the user's own names a database that is not there yet, it
    reads as an empty one.

    Args:
        target: as for open_database.
        busy_timeout_ms: as for open_database.

    Raises:
        StoreError: target names a database that is not there; or it is unreadable, foreign,
            damaged, locked, unreachable, or of a newer ptxtune.
    """
    place = place_of(target)
    if place.in_memory or not place.exists():
        if place.named and not place.in_memory:
            raise StoreError(
                f"database {place.shown()} does not exist, so there is nothing to read. Check the "
                f"path, {ELSEWHERE}; ptxtune tune and ptxtune db import make a new one."
            )
        return _empty(place, missing=not place.in_memory)
    reader = None if place.path is None else SqliteReader(place, place.path, busy_timeout_ms)
    engine = engine_of(place, busy_timeout_ms, reader)
    if reader is None:
        engine = engine.execution_options(postgresql_readonly=True)
    try:
        with translated(place.label), engine.connect() as connection:
            revision = current_revision(connection, place.label)
        if revision == known_revisions()[-1]:
            return Database(
                engine,
                place.label,
                read_only=True,
                path=place.path,
                check=reader.check if reader else None,
            )
        if revision is None:
            return _empty(place)
        if reader is None:
            raise StoreError(
                f"database {place.label} has schema {revision}, and this ptxtune reads "
                f"{known_revisions()[-1]}; a query changes nothing. Run ptxtune db upgrade once "
                f"as a user who may write there, {ELSEWHERE}."
            )
        return _migrated_copy(place, reader)
    except BaseException:
        engine.dispose()
        raise


def _empty(place: Place, *, missing: bool = False) -> Database:
    """Our tables without rows, in memory, in place of a database without tables."""
    engine = memory_engine()
    Base.metadata.create_all(engine)
    return Database(engine, place.label, read_only=True, missing=missing, path=place.path)


def _migrated_copy(place: Place, reader: SqliteReader) -> Database:
    """A file of an older schema, copied to memory and migrated there."""
    memory = sqlite3.connect(":memory:", check_same_thread=False)
    with translated(place.label), closing(reader.connect()) as source:
        source.backup(memory)
        reader.check()
    engine = memory_engine(memory)
    writer = engine.execution_options(**{WRITE: True})
    with translated(place.label), writer.begin() as connection:
        upgrade(connection, place.label)
    return Database(engine, place.label, read_only=True, path=place.path)


def _make_folder(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"database {path} cannot be created: its folder {path.parent} is missing and cannot be "
            f"made ({error.strerror}). Make the folder, {ELSEWHERE}."
        ) from error


def _prepare(engine: Engine, label: str, patience_s: float) -> None:
    """Looks first, so that a foreign database is refused before anything is written to it."""
    with translated(label):
        with engine.connect() as connection:
            revision = current_revision(connection, label)
        if engine.dialect.name == "sqlite":
            _use_wal(engine, patience_s)
        if revision != known_revisions()[-1]:
            writer = engine.execution_options(**{WRITE: True})
            with writer.begin() as connection:
                upgrade(connection, label)


def _use_wal(engine: Engine, patience_s: float) -> None:
    """Lets readers and a writer work at once. The mode is kept in the file.

    The switch needs the file for itself and ignores the busy timeout, so processes that open a
    fresh database together take turns here.
    """
    deadline = time.monotonic() + patience_s
    with closing(engine.raw_connection()) as pooled:
        connection: Any = pooled.driver_connection
        while connection.execute("PRAGMA journal_mode").fetchone()[0] not in ("wal", "memory"):
            try:
                connection.execute("PRAGMA journal_mode = WAL").fetchone()
                return
            except sqlite3.OperationalError as error:
                busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
                if not busy or time.monotonic() > deadline:
                    raise
            time.sleep(0.02)
