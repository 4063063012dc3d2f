"""One lane of a soak: runs its tuner as a process until everything was tried, then audits it.

Candidates fail by themselves as the fault plan says; what comes from outside is the Disturber's.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

from db.session import open_database
from search.fake_parts import FaultLog
from search.soak_audit import Audit, audit
from search.soak_disturber import Disturber, ended
from search.soak_plan import Lane, SoakError
from search.soak_run import FAILED, SoakSpec

CALM_PASSES = 3
"""Runs without a disturbance at the end: what was killed once gets its second chance in them."""

MAX_RUNS = 400
MAX_FAILURES = 5
"""Runs that end with an error one after the other although nothing disturbs them any more."""

RUN_S = 3600.0
GONE_S = 15.0
"""A worker that still has a kernel on the GPU needs a while to die."""


@dataclass(frozen=True, slots=True)
class LaneReport:
    """What a lane did and found.

    Attributes:
        faults: injected faults by name.
        runs: tuner processes that were started.
        workers: worker processes that were started.
        audit: what is wrong; nothing should be.
        stray: worker processes that outlived their tuner.
        error: why it gave up; empty where it came to its end or was stopped.
    """

    faults: Mapping[str, int]
    runs: int
    workers: int
    audit: Audit
    stray: tuple[int, ...] = ()
    error: str = ""


@dataclass(slots=True)
class LaneRunner:
    """Runs one lane; others may read how far it is meanwhile.

    Attributes:
        lane: what it does.
        stop: ends it early.
        say: told about runs that ended with an error.
        runs: tuner processes that were started so far.
        calm: undisturbed runs so far.
    """

    lane: Lane
    stop: Event
    say: Callable[[str], None] = lambda text: None
    runs: int = 0
    calm: int = 0
    _failures: int = field(default=0, init=False)

    @property
    def spec(self) -> SoakSpec:
        return self.lane.spec

    @property
    def name(self) -> str:
        return Path(self.spec.folder).name

    def faults(self) -> Counter[str]:
        """Injected faults so far, by name."""
        return Counter(FaultLog(Path(self.spec.folder) / "faults.log").lines())

    def workers(self) -> list[int]:
        """Pids of the workers so far; each one has noted its own when it began."""
        return [int(line) for line in FaultLog(Path(self.spec.folder) / "workers.log").lines()]

    def run(self) -> LaneReport:
        """Runs the lane to its end, or to the stop, and audits what it has left."""
        error = ""
        try:
            self._run_tuners()
        except SoakError as problem:
            error = str(problem)
        stray = _still_there(self.workers())
        over = self.calm == CALM_PASSES
        with open_database(self.spec.database) as database:
            found = audit(self.spec, database, ended=over)
        return LaneReport(self.faults(), self.runs, len(self.workers()), found, stray, error)

    def _run_tuners(self) -> None:
        """Tuner after tuner until the calm passes are over.

        Raises:
            SoakError: the tuner fails although nothing disturbs it.
        """
        path = self.spec.save()
        rng = random.Random(self.spec.seed)  # noqa: S311 (no secret)
        waiting = self.lane.disturbances.names()
        rng.shuffle(waiting)
        disturber = Disturber(
            self.spec.database,
            rng,
            FaultLog(path.parent / "faults.log"),
            path.parent / "notes.log",
            self.lane.disturbances.pause_s,
        )
        while self.calm < CALM_PASSES and not self.stop.is_set():
            self.runs += 1
            if self.runs > MAX_RUNS:
                raise SoakError(f"{self.name} did not end within {MAX_RUNS} runs of its tuner.")
            with _tuner(path) as process:
                disturber.disturb(process, waiting, self.stop)
                if not ended(process, RUN_S, self.stop):
                    if not self.stop.is_set():
                        raise SoakError(f"a run of {self.name} took more than {RUN_S:.0f} s.")
                    return
            self._judge(process.returncode, undisturbed=not waiting)

    def _judge(self, code: int, *, undisturbed: bool) -> None:
        """Counts a run by its exit code. Raises SoakError where no fault explains it."""
        if code == 0:
            self.calm += undisturbed
            self._failures = 0
        elif code == FAILED:
            self._failures += undisturbed
            self.say(f"{self.name}: run {self.runs} ended by an error: {self._last_line()}")
        if code not in (0, FAILED, -signal.SIGKILL) or self._failures == MAX_FAILURES:
            raise SoakError(
                f"the tuner of {self.name} ended with code {code} although nothing disturbed it: "
                f"{self._printed()}. Its folder {self.spec.folder} is kept."
            )

    def _printed(self) -> str:
        path = Path(self.spec.folder) / "tuner.log"
        return path.read_text(errors="replace")[-1000:].strip() if path.exists() else "nothing"

    def _last_line(self) -> str:
        return (self._printed().splitlines() or ["nothing"])[-1][:200]


@contextlib.contextmanager
def _tuner(spec: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The tuner's process; gone at the end of the block. Ctrl-C reaches this process alone."""
    paths = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    with open(spec.parent / "tuner.log", "ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "search.soak_run", str(spec), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": paths},
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def _still_there(pids: list[int]) -> tuple[int, ...]:
    """Which of a dead tuner's workers still live after a while."""
    until = time.monotonic() + GONE_S
    while True:
        found = tuple(sorted({pid for pid in pids if _is_worker(pid)}))
        if not found or time.monotonic() > until:
            return found
        time.sleep(0.1)


def _is_worker(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return b"search.child_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False
