"""Disk: a database that cannot grow says so, keeps what it had, and goes on once there is room."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from db_samples import H200, PROBLEM, TOOLCHAIN, FakeConfig, ok

from db import query
from db.records import Protocol
from db.session import Database, open_database
from db.store import Store
from ptxgen.errors import StoreError

PAGE_BYTES = 4096


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB, where the system lets us mount one."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"cannot mount a small tmpfs: {getattr(error, 'stderr', error)}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def fill(database: Database) -> tuple[int, str]:
    """Stores trials until one is refused. Returns how many were kept, and the refusal."""
    store = Store(database)
    run_id = store.start_run(H200, TOOLCHAIN)
    for kept in range(2000):
        try:
            trial_id = store.start_trial(
                run_id, PROBLEM, 8, Protocol.PLAIN, config=FakeConfig(1 + kept, False)
            )
            store.end_trial(trial_id, ok(1.0, samples_us=tuple(map(float, range(500)))))
        except StoreError as error:
            return kept, str(error)
    raise AssertionError("the database never filled up")


def integrity(database: Database) -> str:
    with database.engine.connect() as connection:
        return connection.exec_driver_sql("PRAGMA integrity_check").scalar_one()


def test_a_file_at_its_page_limit_says_so_and_keeps_what_it_had(tmp_path, family):
    with open_database(tmp_path / "tune.db") as database:
        with database.engine.connect() as connection:  # the pool has this one connection only
            connection.exec_driver_sql("PRAGMA max_page_count = 60")
        kept, message = fill(database)
        assert "the disk is full" in message
        assert str(tmp_path / "tune.db") in message
        assert "Free some space" in message
        assert kept > 3
        assert integrity(database) == "ok"
        whole = [record for record in query.trials(database) if record.ended_at is not None]
        assert len(whole) == kept


def test_a_full_disk_says_so_and_the_database_works_again_with_room(small_disk, family):
    with open_database(small_disk / "tune.db") as database:
        ballast = small_disk / "ballast"
        ballast.write_bytes(bytes(400 * 1024))
        kept, message = fill(database)
        assert "the disk is full" in message or "input/output error" in message
        ballast.unlink()
        assert integrity(database) == "ok"
        whole = [record for record in query.trials(database) if record.ended_at is not None]
        assert len(whole) == kept
        assert Store(database).start_run(H200, TOOLCHAIN) > 0


def test_creating_on_a_full_disk_says_so_and_works_later(small_disk):
    ballast = small_disk / "ballast"
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while True:  # to the last byte
            file.write(bytes(PAGE_BYTES))
    with pytest.raises(StoreError, match=r"disk is full|input/output error"):
        open_database(small_disk / "tune.db")
    ballast.unlink()
    with open_database(small_disk / "tune.db") as database:
        assert query.runs(database) == []
