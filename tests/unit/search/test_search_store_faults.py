"""A tuner whose database is locked or out of room: nothing is lost, nothing is measured twice."""

from __future__ import annotations

import sqlite3
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import search_fakes

from db import query
from db.session import open_database
from db.store import Store
from ptxgen.arch import arch_named
from ptxgen.errors import StoreError
from ptxgen.outcome import Status
from search.events import Event, Note, TrialEnded
from search.job import TuneJob
from search.tune import tune

FAMILY = search_fakes.families()["mma"]
LEGAL = list(FAMILY.candidates(search_fakes.PROBLEM, arch_named("sm_90a"), 8))
OPTIMUM = min(LEGAL, key=search_fakes.true_us)


class Locker:
    """Takes the database's write lock after a number of trials, and keeps it until told."""

    def __init__(self, path: Path, after: int, tries: int) -> None:
        self._path, self._after, self._tries = path, after, tries
        self._connection: sqlite3.Connection | None = None
        self.notes: list[str] = []
        self._seen = 0

    def on_event(self, event: Event) -> None:
        """Locks after so many trials; unlocks after so many notes of failed tries."""
        if isinstance(event, TrialEnded):
            self._seen += 1
            if self._seen == self._after:
                self._connection = sqlite3.connect(self._path, check_same_thread=False)
                self._connection.isolation_level = None
                self._connection.execute("BEGIN IMMEDIATE")
        if isinstance(event, Note):
            self.notes.append(event.text)
            if len(self.notes) == self._tries:
                self.release()

    def release(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def measured(evaluated: Callable[[], list[str]]) -> Counter[str]:
    return Counter(
        line.split(" ", 2)[2] for line in evaluated() if line.startswith("evaluate screen")
    )


def test_a_run_outlasts_a_lock_that_is_longer_than_the_busy_timeout(
    tmp_path: Path, make_job: Callable[..., TuneJob], evaluated: Callable[[], list[str]]
) -> None:
    path = tmp_path / "tune.db"
    locker = Locker(path, after=5, tries=2)
    with open_database(path, busy_timeout_ms=200) as database:
        (task,) = tune(make_job(), Store(database), locker.on_event).tasks
        statuses = Counter(trial.outcome.status for trial in query.trials(database))
    assert [text.startswith("trying again: database") for text in locker.notes] == [True, True]
    assert "is locked" in locker.notes[0]
    assert task.config == OPTIMUM
    assert statuses.keys() == {Status.OK}
    assert measured(evaluated) == dict.fromkeys((item.key() for item in LEGAL), 1)


def test_a_lock_without_end_ends_the_run_and_the_next_one_goes_on(
    tmp_path: Path, make_job: Callable[..., TuneJob], evaluated: Callable[[], list[str]]
) -> None:
    path = tmp_path / "tune.db"
    # A write is tried three times, with a note before each further one. The end of the run, which
    # is written as well, gets the lock at its second try.
    locker = Locker(path, after=5, tries=3)
    with open_database(path, busy_timeout_ms=100) as database:
        try:
            with pytest.raises(StoreError, match=r"is locked.*Wait for that process to end"):
                tune(make_job(), Store(database), locker.on_event)
        finally:
            locker.release()
        stored = query.trials(database, statuses=[Status.OK])
        assert len(stored) >= 5
        (task,) = tune(make_job(), Store(database)).tasks
        again = query.trials(database, statuses=[Status.OK])
        assert again[: len(stored)] == stored
    assert task.config == OPTIMUM
    counts = measured(evaluated)
    assert counts.keys() == {item.key() for item in LEGAL}
    assert sum(counts.values()) - len(counts) <= 1  # the one whose outcome was never stored


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB (SQLite's log takes up to 4), where the system lets us mount one."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"cannot mount a small tmpfs: {getattr(error, 'stderr', error)}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_run_on_a_full_disk_ends_in_words_and_goes_on_with_room(
    small_disk: Path, make_job: Callable[..., TuneJob], evaluated: Callable[[], list[str]]
) -> None:
    ballast = small_disk / "ballast"

    def fill(event: Event) -> None:
        if isinstance(event, TrialEnded) and event.measured == 4:
            with ballast.open("wb", buffering=0) as file, suppress(OSError):
                while True:  # to the last byte
                    file.write(bytes(4096))

    with open_database(small_disk / "tune.db") as database:
        with pytest.raises(StoreError, match=r"disk is full|input/output error"):
            tune(make_job(), Store(database), fill)
        ballast.unlink()
        stored = query.trials(database, statuses=[Status.OK])
        assert len(stored) >= 4
        (task,) = tune(make_job(), Store(database)).tasks
        assert query.trials(database, statuses=[Status.OK])[: len(stored)] == stored
        assert query.trials(database, statuses=[Status.STARTED]) == []
    assert task.config == OPTIMUM
    assert measured(evaluated).keys() == {item.key() for item in LEGAL}
