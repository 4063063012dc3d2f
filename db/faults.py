"""Faults: turns what SQLAlchemy, SQLite and PostgreSQL raise into StoreErrors of one paragraph."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from ptxgen.errors import StoreError

ELSEWHERE = "or name another database with --db or PTXTUNE_DB"

_SQLITE = {
    sqlite3.SQLITE_BUSY: (
        "is locked: another process kept it busy longer than the busy timeout. Wait for that "
        f"process to end, {ELSEWHERE}."
    ),
    sqlite3.SQLITE_LOCKED: f"is locked by another connection. Close that one, {ELSEWHERE}.",
    sqlite3.SQLITE_FULL: (
        "cannot grow: the disk is full, or the file reached its page limit. Nothing of this write "
        f"was kept; everything before it is safe. Free some space, {ELSEWHERE}."
    ),
    sqlite3.SQLITE_READONLY: (
        "is not writable: the file, its folder or its file system is read-only. Change the "
        f"permissions, {ELSEWHERE}."
    ),
    sqlite3.SQLITE_CANTOPEN: (
        "cannot be opened or created: its folder is missing or not writable, or the path is not a "
        f"file. Change the permissions, {ELSEWHERE}."
    ),
    sqlite3.SQLITE_NOTADB: f"is not an SQLite database. Check the path, {ELSEWHERE}.",
    sqlite3.SQLITE_CORRUPT: (
        f"is damaged. Move it away (and its -wal and -shm files) to start a new one, {ELSEWHERE}."
    ),
    sqlite3.SQLITE_IOERR: (
        "could not be read or written: the file system reported an input/output error. It must be "
        f"a local disk with working locks, not a network share. Check the disk, {ELSEWHERE}."
    ),
}

_POSTGRESQL = {
    "53100": f"cannot grow: the server's disk is full. Free some space on the server, {ELSEWHERE}.",
    "55P03": f"is locked by another connection. Wait for it to end, {ELSEWHERE}.",
    "42501": f"is not writable for this user. Grant CREATE and write rights, {ELSEWHERE}.",
    "25006": f"is read-only. Connect to the primary server, {ELSEWHERE}.",
}

_UNREACHABLE = f"cannot be reached. Check the URL and that the server runs, {ELSEWHERE}."


@contextmanager
def translated(label: str) -> Iterator[None]:
    """Raises StoreError, naming the database, in place of any SQLAlchemy error in its body."""
    try:
        yield
    except DBAPIError as error:
        raise StoreError(explain(label, error.orig or error)) from error
    except sqlite3.Error as error:
        raise StoreError(explain(label, error)) from error
    except OverflowError as error:  # of the driver, before the database sees the number
        raise StoreError(
            f"database {label} cannot hold a number of that size ({_first_line(error)}). Give one "
            f"below 2^63, {ELSEWHERE}."
        ) from error
    except SQLAlchemyError as error:
        raise StoreError(f"database {label} failed: {_first_line(error)}") from error


def explain(label: str, cause: BaseException) -> str:
    """One paragraph for a driver's error: which database, what is wrong, the way out."""
    return f"database {label} {_reason(cause)} (reported: {_first_line(cause)})"


def _reason(cause: BaseException) -> str:
    code = getattr(cause, "sqlite_errorcode", None)
    if isinstance(code, int):
        # The low byte is the primary code; the rest tells variants apart.
        return _SQLITE.get(code & 0xFF, f"refused the statement. Check it, {ELSEWHERE}.")
    state = getattr(cause, "sqlstate", None)
    if isinstance(state, str):
        default = _UNREACHABLE if state.startswith("08") else f"refused the statement, {ELSEWHERE}."
        return _POSTGRESQL.get(state, default)
    return _UNREACHABLE


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
