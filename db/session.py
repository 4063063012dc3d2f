"""Session: opens a database (SQLite file or any SQLAlchemy URL) and hands out its transactions."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from sqlalchemy import URL, Connection, Engine, StaticPool, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError
from sqlalchemy.orm import Session

from db.faults import ELSEWHERE, translated
from db.migrate import current_revision, known_revisions, upgrade
from ptxgen import env
from ptxgen.errors import StoreError

BUSY_TIMEOUT_MS = 30_000
_WRITE = "ptxtune_write"
_MEMORY = (None, "", ":memory:")


class Database:
    """An open database: two kinds of transactions, and how to call it in messages.

    Attributes:
        label: path, or URL without its password.
        engine: SQLAlchemy's engine.
    """

    def __init__(self, engine: Engine, label: str) -> None:
        self.engine = engine
        self.label = label
        self._write_engine = engine.execution_options(**{_WRITE: True})

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """A transaction that only reads; sees one consistent state. Raises StoreError."""
        with translated(self.label), Session(self.engine) as session:
            yield session

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """A transaction that commits at the end, or rolls back on any error. Raises StoreError.

        On SQLite it takes the write lock at its start: a read that turns into a write later would
        fail at once where another process wrote in between, whatever the busy timeout.
        """
        with translated(self.label), Session(self._write_engine) as session, session.begin():
            yield session

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
    url = _url_of(env.database() if target is None else target)
    is_file = url.drivername.startswith("sqlite") and url.database not in _MEMORY
    label = str(url.database) if is_file else url.render_as_string(hide_password=True)
    if is_file:
        _make_folder(Path(str(url.database)))
    engine = _engine_of(url, label, busy_timeout_ms)
    try:
        _prepare(engine, label, busy_timeout_ms / 1000)
    except BaseException:
        engine.dispose()
        raise
    return Database(engine, label)


def _url_of(target: str | Path) -> URL:
    text = str(target)
    if "://" not in text:
        path = text if text == ":memory:" else str(Path(text).expanduser().absolute())
        return URL.create("sqlite", database=path)
    try:
        url = make_url(text)
    except ArgumentError as error:
        raise StoreError(
            f"database URL {text!r} cannot be read. Write it as dialect://user:password@host/name "
            f"(such as postgresql://localhost/ptxtune), or give a path to an SQLite file."
        ) from error
    # psycopg 3 is the driver that the postgresql extra installs.
    plain = url.drivername in ("postgresql", "postgres")
    return url.set(drivername="postgresql+psycopg") if plain else url


def _make_folder(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"database {path} cannot be created: its folder {path.parent} is missing and cannot be "
            f"made ({error.strerror}). Make the folder, {ELSEWHERE}."
        ) from error
    if path.is_dir():
        raise StoreError(f"database {path} is a folder. Name a file inside it, {ELSEWHERE}.")


def _engine_of(url: URL, label: str, busy_timeout_ms: int) -> Engine:
    sqlite = url.drivername.startswith("sqlite")
    options: dict[str, Any] = {"pool_pre_ping": not sqlite}
    if sqlite and url.database in _MEMORY:
        options |= {"poolclass": StaticPool, "connect_args": {"check_same_thread": False}}
    try:
        engine = create_engine(url, **options)
    except (NoSuchModuleError, ModuleNotFoundError) as error:
        raise StoreError(
            f"database {label} needs a driver that is not installed ({error}). For PostgreSQL: "
            f"pip install 'ptxtune[postgresql]'. Install it, {ELSEWHERE}."
        ) from error
    if sqlite:
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

    @event.listens_for(engine, "begin")
    def on_begin(connection: Connection) -> None:
        write = connection.get_execution_options().get(_WRITE, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def _prepare(engine: Engine, label: str, patience_s: float) -> None:
    """Looks first, so that a foreign database is refused before anything is written to it."""
    with translated(label):
        with engine.connect() as connection:
            revision = current_revision(connection, label)
        if engine.dialect.name == "sqlite":
            _use_wal(engine, patience_s)
        if revision != known_revisions()[-1]:
            writer = engine.execution_options(**{_WRITE: True})
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
