"""SQLite file: connections that read a file and leave everything beside it as it was.

A database in WAL mode needs its -wal and -shm files, and SQLite makes them even for a connection
that only reads. So each connection looks first: where both are there, a tuning run may be at work,
and the connection joins it; where they are not, nobody writes, and the file is read as one that
does not change, which is checked afterwards. That also works on a read-only disk.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from urllib.parse import quote, urlencode

from db.faults import ELSEWHERE
from db.place import Place
from ptxgen.errors import StoreError

_WAL_VERSION = 2
_VERSION_BYTES = slice(18, 20)
"""Where the header of an SQLite file says whether it is in WAL mode."""


class SqliteReader:
    """Opens connections to one file that never write; stale() says whether it changed meanwhile.

    Args:
        place: of a file that exists.
        busy_timeout_ms: how long to wait for another process's lock.
    """

    def __init__(self, place: Place, path: Path, busy_timeout_ms: int) -> None:
        self._place, self._path = place, path
        self._timeout_s = busy_timeout_ms / 1000
        self._seen: tuple[int, int, int] | None = None

    def connect(self) -> sqlite3.Connection:
        """A new connection. Raises StoreError or sqlite3.Error where the file cannot be read."""
        try:
            return self._connect()
        except OSError as error:
            raise StoreError(
                f"database {self._place.label} cannot be read: {error.strerror or error}. Check "
                f"the permissions of the file and of those beside it, {ELSEWHERE}."
            ) from error

    def _connect(self) -> sqlite3.Connection:
        self._seen = None
        wal, shm = (self._path.with_name(f"{self._path.name}-{end}") for end in ("wal", "shm"))
        if not self._is_wal() or (wal.exists() and shm.exists()):
            return self._open(mode="ro")
        if wal.exists() and wal.stat().st_size:
            return self._recovered(wal)
        self._seen = self._fingerprint()
        return self._open(mode="ro", immutable="1")

    def check(self) -> None:
        """Raises StoreError where a file that nobody seemed to write has changed since connect."""
        if self._seen is not None and self._seen != self._fingerprint():
            raise StoreError(
                f"database {self._place.label} changed while it was read: another process began "
                f"to write. Nothing was lost; run the command again, {ELSEWHERE}."
            )

    def _open(self, **params: str) -> sqlite3.Connection:
        query = urlencode({**self._place.params, **params})
        return sqlite3.connect(
            f"file:{quote(str(self._path))}?{query}",
            uri=True,
            timeout=self._timeout_s,
            check_same_thread=False,
        )

    def _is_wal(self) -> bool:
        with open(self._path, "rb") as file:
            return _WAL_VERSION in file.read(_VERSION_BYTES.stop)[_VERSION_BYTES]

    def _recovered(self, wal: Path) -> sqlite3.Connection:
        """A copy in memory of a file whose writer died, or that was copied together with its WAL.

        SQLite would have to make a -shm file beside it to read the WAL.
        """
        memory = sqlite3.connect(":memory:", check_same_thread=False)
        with tempfile.TemporaryDirectory(prefix="ptxtune-") as folder:
            for file in (self._path, wal):
                shutil.copyfile(file, Path(folder) / file.name)
            with closing(sqlite3.connect(Path(folder) / self._path.name)) as copied:
                copied.backup(memory)
        return memory

    def _fingerprint(self) -> tuple[int, int, int]:
        found = self._path.stat()
        return found.st_ino, found.st_size, found.st_mtime_ns
