"""Place: what a user names as the database, taken apart: an SQLite file, memory, or a server.

Nothing is opened or created here.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from db.faults import ELSEWHERE
from ptxgen import env
from ptxgen.arguments import path as as_path
from ptxgen.errors import StoreError

MEMORY = (None, "", ":memory:")
"""SQLite's names for a database in memory."""

_OF_THE_MODULE = frozenset(
    {"uri", "timeout", "isolation_level", "detect_types", "check_same_thread", "cached_statements"}
)
"""Parameters of a URL that are the sqlite3 module's; the others are those of an SQLite URI."""

_PASSWORD = re.compile(r"(://[^:/@]*):.*@")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a database is.

    Attributes:
        url: SQLAlchemy's URL of it.
        label: how it is called in messages: its path, or its URL without the password.
        path: of the SQLite file; None for memory and for servers.
        params: of an SQLite URI, such as mode = ro.
        named: the caller named it (else: PTXTUNE_DB, or the user's own).
    """

    url: URL
    label: str
    path: Path | None = None
    params: Mapping[str, str] = field(default_factory=dict)
    named: bool = True

    @property
    def is_sqlite(self) -> bool:
        return self.url.drivername.startswith("sqlite")

    @property
    def in_memory(self) -> bool:
        return self.is_sqlite and self.path is None

    @property
    def read_only(self) -> bool:
        """Whether the URI itself forbids writing."""
        return self.params.get("mode") == "ro" or self.params.get("immutable", "0") != "0"

    @property
    def may_be_created(self) -> bool:
        """Whether a missing file may be made: any path, and a URI unless its mode forbids it."""
        return not self.read_only and self.params.get("mode", "rwc") == "rwc"

    def exists(self) -> bool:
        """Whether the file is there.

        Raises:
            StoreError: it is a folder, or the system does not let us look.
        """
        if self.path is None:
            return True
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            return False
        except (OSError, ValueError) as error:  # ValueError: a NUL in the name
            raise StoreError(
                f"database {self.shown()} cannot be opened: {_reason(error)}. Check the path and "
                f"the permissions of its folders, {ELSEWHERE}."
            ) from error
        if stat.S_ISDIR(found.st_mode):
            raise StoreError(
                f"database {self.label} is a folder. Name a file inside it, {ELSEWHERE}."
            )
        return True

    def shown(self) -> str:
        """The label, cut where it is absurdly long."""
        return self.label if len(self.label) <= 200 else f"{self.label[:197]}..."


def place_of(target: str | Path | None) -> Place:
    """Takes a path, ":memory:" or an SQLAlchemy URL apart. None: PTXTUNE_DB, else the user's own.

    Raises:
        StoreError: it can be read as none of them.
    """
    text = str(env.database() if target is None else target)
    named = target is not None
    if "://" not in text:
        return _of_path(text, named)
    url = _url_of(text)
    if not url.drivername.startswith("sqlite"):
        # psycopg 3 is the driver that the postgresql extra installs.
        if url.drivername in ("postgresql", "postgres"):
            url = url.set(drivername="postgresql+psycopg")
        return Place(url, url.render_as_string(hide_password=True), named=named)
    return _of_sqlite_url(url, named)


def _of_path(text: str, named: bool) -> Place:
    if text == ":memory:":
        return Place(URL.create("sqlite", database=text), text, named=named)
    try:
        path = as_path(text, "database", error=StoreError).absolute()
    except OSError as error:  # a relative path where the working folder is gone
        why = str(error).rstrip(".")
        raise StoreError(
            f"database {text!r} cannot be found: {why}. Write the path in full, {ELSEWHERE}."
        ) from error
    return Place(URL.create("sqlite", database=str(path)), str(path), path, named=named)


def _url_of(text: str) -> URL:
    try:
        return make_url(text)
    except (ArgumentError, ValueError) as error:  # ValueError: a port that is no number
        shown = _PASSWORD.sub(r"\1:***@", text)
        raise StoreError(
            f"database URL {shown!r} cannot be read. Write it as "
            f"dialect://user:password@host:port/name with a number as port (such as "
            f"postgresql://localhost/ptxtune), or give a path to an SQLite file."
        ) from error


def _of_sqlite_url(url: URL, named: bool) -> Place:
    if url.host or url.username:
        raise StoreError(
            f"database URL {url.render_as_string()!r} cannot be opened: it names a host. Write an "
            f"SQLite file with three slashes, sqlite:///x.db, or give a path."
        )
    query = {
        name: value if isinstance(value, str) else value[-1] for name, value in url.query.items()
    }
    params = {name: value for name, value in query.items() if name not in _OF_THE_MODULE}
    is_uri = query.get("uri", "").lower() in ("true", "1", "yes", "on")
    if params and not is_uri:
        raise StoreError(
            f"database URL {url.render_as_string()!r} has the parameter {min(params)!r}, which "
            f"counts only in an SQLite URI. Write sqlite:///file:PATH?mode=ro&uri=true, or give a "
            f"path."
        )
    database = url.database
    if is_uri and database and database.startswith("file:"):
        database = unquote(database.removeprefix("file:"))
        if database.startswith("//"):  # file://[host]/path
            database = "/" + database[2:].partition("/")[2]
    if database in MEMORY or params.get("mode") == "memory":
        return Place(url, url.render_as_string(), params=params, named=named)
    path = Path(str(database)).absolute()
    return Place(url, str(database), path, params, named)


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
