"""Disturber: what comes from outside while a soak's tuner runs: kills, and a locked database."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from search.fake_parts import FaultLog
from search.soak_plan import CHILD_KILL, PARENT_KILL

MAX_LOCK_S = 4.0
POLL_S = 0.2
"""How soon a stop is noticed."""

AT_WORK = 0.75
"""Share of the disturbances that wait until the run has tried something; the others may hit its
start, which takes most of the time where processes start slowly."""


def ended(process: subprocess.Popen[bytes], seconds: float, stop: Event) -> bool:
    """Waits for a process, at most so long and until a stop. Returns whether it has ended."""
    until = time.monotonic() + seconds
    while True:
        left = until - time.monotonic()
        try:
            process.wait(max(0.0, min(POLL_S, left)))
            return True
        except subprocess.TimeoutExpired:
            if stop.is_set() or left <= 0:
                return False


@dataclass(frozen=True, slots=True)
class Disturber:
    """Disturbs a running tuner.

    Attributes:
        database: the tuner's.
        rng: of every random choice.
        log: where a disturbance is noted before it happens.
        notes: what the tuner writes into with every trial.
        pause_s: between two of them, at most.
    """

    database: Path
    rng: random.Random
    log: FaultLog
    notes: Path
    pause_s: float

    def disturb(self, process: subprocess.Popen[bytes], waiting: list[str], stop: Event) -> None:
        """Until the tuner is dead or has ended, nothing is left to do, or a stop."""
        before = self._noted_bytes()
        while waiting:
            if not self._moment(process, before, stop):
                return
            what = waiting.pop()
            if what == PARENT_KILL:
                self.log.add(what)
                process.kill()
                return
            done = self._kill_child(process.pid) if what == CHILD_KILL else self._lock(what, stop)
            if not done:
                waiting.insert(0, what)

    def _moment(self, process: subprocess.Popen[bytes], before: int, stop: Event) -> bool:
        """Waits for a moment to disturb; False where the tuner ends, or a stop comes, first."""
        if self.rng.random() < AT_WORK:
            while self._noted_bytes() == before:
                if ended(process, POLL_S, stop) or stop.is_set():
                    return False
        pause_s = self.rng.uniform(0.05, self.pause_s)
        return not ended(process, pause_s, stop) and not stop.is_set()

    def _noted_bytes(self) -> int:
        return self.notes.stat().st_size if self.notes.exists() else 0

    def _kill_child(self, parent: int) -> bool:
        """Kills a child of the tuner; False where there is none yet."""
        children = _children(parent)
        if not children:
            return False
        self.log.add(CHILD_KILL)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.rng.choice(children), signal.SIGKILL)
        return True

    def _lock(self, name: str, stop: Event) -> bool:
        """Holds the database's write lock for a while; False where it is not there yet."""
        if not self.database.exists():
            return False
        with contextlib.closing(sqlite3.connect(self.database, timeout=5.0)) as connection:
            connection.isolation_level = None
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return False
            self.log.add(name)
            stop.wait(self.rng.uniform(0.1, MAX_LOCK_S))
            connection.execute("ROLLBACK")
        return True


def _children(parent: int) -> list[int]:
    """Pids of a process's children, of all its threads."""
    found: list[int] = []
    for path in Path(f"/proc/{parent}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, path.read_text().split())
    return sorted(found)
