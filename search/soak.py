"""Soak: runs the tuner as a process, kills it and its helpers, locks its database, audits the rest.

Candidates fail by themselves as the fault plan says; this module adds what comes from outside.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from db.session import open_database
from ptxgen.errors import PtxtuneError
from search.fake_parts import FaultLog
from search.soak_audit import Audit, audit
from search.soak_run import FAILED, SoakSpec

CALM_PASSES = 3
"""Runs without a disturbance at the end: what was killed once gets its second chance in them."""

MAX_RUNS = 400
MAX_LOCK_S = 4.0

PARENT_KILL, CHILD_KILL, LOCK = "kill -9 of the tuner", "kill -9 of a child", "locked database"


@dataclass(frozen=True, slots=True)
class Disturbances:
    """How often what comes from outside happens.

    Attributes:
        parent_kills: kill -9 of the tuner.
        child_kills: kill -9 of a worker or compile process of it.
        locks: another connection holds the write lock for up to 4 s.
        pause_s: between two of them, at most.
    """

    parent_kills: int = 0
    child_kills: int = 0
    locks: int = 0
    pause_s: float = 2.5


@dataclass(frozen=True, slots=True)
class SoakReport:
    """What a soak did and found.

    Attributes:
        faults: injected faults by name.
        runs: tuner processes that were started.
        seconds: wall time.
        audit: what is wrong; nothing should be.
        stray: worker processes that outlived their tuner.
    """

    faults: Mapping[str, int]
    runs: int
    seconds: float
    audit: Audit
    stray: tuple[int, ...] = ()

    @property
    def total(self) -> int:
        return sum(self.faults.values())

    @property
    def passed(self) -> bool:
        return self.audit.passed and not self.stray


class SoakError(PtxtuneError):
    """The soak could not go on: its tuner ended in a way that no fault explains."""


def spec_for(folder: Path, faults: int, *, kernels: bool = False, seed: int = 0) -> SoakSpec:
    """A soak of at least about that many faults.

    Args:
        folder: an empty folder for everything of the soak.
        faults: how many, at least.
        kernels: real kernels on the GPU that is here, instead of fakes.
        seed: of every random choice.
    """
    if kernels:
        share = 0.85
        return SoakSpec(
            str(folder), "kernel", seed, 1, max(40, int(faults / share * 1.05)), share, 5000
        )
    configs = min(360, max(20, faults))
    share = 0.6
    cases = max(1, round(faults / (configs * share)))
    return SoakSpec(str(folder), "process", seed, cases, configs, share)


def disturbances_for(faults: int, *, kernels: bool = False) -> Disturbances:
    """How much of a soak comes from outside; on a GPU less, since a restart takes seconds there."""
    if kernels:
        return Disturbances(parent_kills=2, child_kills=2, locks=2, pause_s=8.0)
    return Disturbances(faults // 50, faults // 50, faults // 100)


def soak(
    spec: SoakSpec,
    disturbances: Disturbances,
    say: Callable[[str], None] = lambda text: None,
) -> SoakReport:
    """Runs a soak to its end and audits it.

    Args:
        spec: what is tuned, and how it fails.
        disturbances: what comes from outside.
        say: told about every run.

    Raises:
        SoakError: the tuner fails although nothing disturbs it.
    """
    begin = time.monotonic()
    path = spec.save()
    log = FaultLog(Path(spec.folder) / "faults.log")
    rng = random.Random(spec.seed)  # noqa: S311 (no secret)
    waiting = _shuffled(disturbances, rng)
    runs = calm = 0
    while calm < CALM_PASSES:
        runs += 1
        if runs > MAX_RUNS:
            raise SoakError(f"the soak in {spec.folder} did not end within {MAX_RUNS} runs.")
        with _tuner(path) as process:
            _Disturber(spec.database, rng, log, disturbances.pause_s).disturb(process, waiting)
            code = process.wait()
        calm += code == 0 and not waiting
        if code not in (0, FAILED, -signal.SIGKILL):
            raise SoakError(
                f"the tuner of the soak ended with code {code}: {_printed(spec)}. "
                f"Its folder {spec.folder} is kept."
            )
        say(f"run {runs} ended with {code}; {len(log.lines())} faults so far")
    stray = _stray(Path(spec.folder))
    with open_database(spec.database) as database:
        found = audit(spec, database)
    faults = Counter(log.lines())
    if spec.kind == "kernel":  # a kernel cannot note its own fault; every trial of it is one
        faults.update(found.faulty)
    return SoakReport(faults, runs, time.monotonic() - begin, found, stray)


def _shuffled(disturbances: Disturbances, rng: random.Random) -> list[str]:
    found = [PARENT_KILL] * disturbances.parent_kills
    found += [CHILD_KILL] * disturbances.child_kills
    found += [LOCK] * disturbances.locks
    rng.shuffle(found)
    return found


@contextlib.contextmanager
def _tuner(spec: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The tuner's process; gone at the end of the block."""
    paths = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    with open(spec.parent / "tuner.log", "ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "search.soak_run", str(spec)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, "PYTHONPATH": paths},
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


@dataclass(frozen=True, slots=True)
class _Disturber:
    """Disturbs a running tuner.

    Attributes:
        database: the tuner's.
        rng: of every random choice.
        log: where a disturbance is noted before it happens.
        pause_s: between two of them, at most.
    """

    database: Path
    rng: random.Random
    log: FaultLog
    pause_s: float

    def disturb(self, process: subprocess.Popen[bytes], waiting: list[str]) -> None:
        """Until the tuner is dead or has ended, or nothing is left to do."""
        while waiting:
            try:
                process.wait(self.rng.uniform(0.05, self.pause_s))
                return
            except subprocess.TimeoutExpired:
                what = waiting.pop()
            if what == PARENT_KILL:
                self.log.add(what)
                process.kill()
                return
            done = self._kill_child(process.pid) if what == CHILD_KILL else self._lock()
            if not done:
                waiting.insert(0, what)

    def _kill_child(self, parent: int) -> bool:
        """Kills a child of the tuner; False where there is none yet."""
        children = _children(parent)
        if not children:
            return False
        self.log.add(CHILD_KILL)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.rng.choice(children), signal.SIGKILL)
        return True

    def _lock(self) -> bool:
        """Holds the database's write lock for a while; False where it is not there yet."""
        if not self.database.exists():
            return False
        with contextlib.closing(sqlite3.connect(self.database, timeout=5.0)) as connection:
            connection.isolation_level = None
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return False
            self.log.add(LOCK)
            time.sleep(self.rng.uniform(0.1, MAX_LOCK_S))
            connection.execute("ROLLBACK")
        return True


def _children(parent: int) -> list[int]:
    """Pids of a process's children, of all its threads."""
    found: list[int] = []
    for path in Path(f"/proc/{parent}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, path.read_text().split())
    return sorted(found)


def _stray(folder: Path) -> tuple[int, ...]:
    """Workers of the fakes that still live; each one has noted its pid when it began."""
    pids = {int(line) for line in FaultLog(folder / "workers.log").lines()}
    return tuple(sorted(pid for pid in pids if _is_worker(pid)))


def _is_worker(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return b"search.child_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def _printed(spec: SoakSpec) -> str:
    path = Path(spec.folder) / "tuner.log"
    return path.read_text(errors="replace")[-1000:].strip() if path.exists() else "nothing"
