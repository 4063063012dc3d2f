"""Soak: lanes of tuners at once, whose progress is told, whose end is in time, and whose audits
are one.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from threading import Event
from types import FrameType

from search.soak_audit import Audit
from search.soak_lane import LaneReport, LaneRunner
from search.soak_plan import Lane

PROGRESS_S = 5.0
LOOK_S = 0.25


@dataclass(frozen=True, slots=True)
class SoakReport:
    """What a soak did and found.

    Attributes:
        wanted: faults that were asked for.
        faults: injected faults by name.
        lanes: tuners that ran at once.
        runs: tuner processes that were started.
        workers: worker processes that were started.
        seconds: wall time.
        audit: what is wrong in any lane; nothing should be.
        stray: worker processes that outlived their tuner.
        stopped: why it ended before its end; empty where it did not.
        errors: of lanes that gave up.
    """

    wanted: int
    faults: Mapping[str, int]
    lanes: int
    runs: int
    workers: int
    seconds: float
    audit: Audit
    stray: tuple[int, ...] = ()
    stopped: str = ""
    errors: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        return sum(self.faults.values())

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong with what was done, be it all or not."""
        return self.audit.passed and not self.stray and not self.errors

    @property
    def passed(self) -> bool:
        return self.clean and not self.stopped and self.total >= self.wanted


def soak(
    lanes: Sequence[Lane],
    wanted: int,
    say: Callable[[str], None] = lambda text: None,
    seconds: float | None = None,
    begin: float | None = None,
) -> SoakReport:
    """Runs all lanes at once to their end, and audits them.

    Args:
        lanes: what is done (soak_plan.plan_soak).
        wanted: faults, at least.
        say: told about the progress every few seconds.
        seconds: time limit; None: none. What was done until then is still audited.
        begin: time.monotonic() from which the time counts; now where None.

    Returns:
        The report; of what was done so far where the limit was reached, or where SIGINT or SIGTERM
        arrived (noticed in the main thread alone).
    """
    begin = time.monotonic() if begin is None else begin
    stop = Event()
    runners = [LaneRunner(lane, stop, say) for lane in lanes]
    watch = _Watch(runners, wanted, say, begin, seconds)
    with noticed(stop) as signals, ThreadPoolExecutor(len(runners)) as threads:
        futures = [threads.submit(runner.run) for runner in runners]
        try:
            stopped = watch.until_all_end(futures, stop)
        finally:
            stop.set()  # an error of this thread ends the lanes, too
        stopped = f"it was stopped by {signals[0]}" if signals else stopped
    reports = {runner.name: each.result() for runner, each in zip(runners, futures, strict=True)}
    return _merged(reports, wanted, time.monotonic() - begin, stopped)


@dataclass(frozen=True, slots=True)
class _Watch:
    """Watches the lanes of a soak: tells how far they are, and ends them at the time limit."""

    runners: Sequence[LaneRunner]
    wanted: int
    say: Callable[[str], None]
    begin: float
    seconds: float | None

    def until_all_end(self, futures: Sequence[Future[LaneReport]], stop: Event) -> str:
        """Returns why the lanes were stopped; empty where they came to their end."""
        stopped, told = "", self.begin
        running = set(futures)
        while running:
            running = wait(running, timeout=LOOK_S).not_done
            now = time.monotonic()
            if now - told >= PROGRESS_S:
                told = now
                self.say(self._progress(len(running), now - self.begin))
            if running and self._is_late(now) and not stop.is_set():
                stopped = f"its limit of {self.seconds:.0f} s was reached"
                stop.set()
        return stopped

    def _is_late(self, now: float) -> bool:
        return self.seconds is not None and now - self.begin > self.seconds

    def _progress(self, running: int, seconds: float) -> str:
        faults = sum(runner.faults().total() for runner in self.runners)
        runs = sum(runner.runs for runner in self.runners)
        workers = sum(len(runner.workers()) for runner in self.runners)
        return (
            f"{seconds:4.0f} s: {faults} of {self.wanted} faults, {running} of "
            f"{len(self.runners)} lanes at work, {runs} runs and {workers} workers started"
        )


@contextlib.contextmanager
def noticed(stop: Event) -> Iterator[list[str]]:
    """Within the block SIGINT and SIGTERM set the stop; their names are in the list."""
    names: list[str] = []
    if threading.current_thread() is not threading.main_thread():  # it may not set handlers
        yield names
        return

    def handle(number: int, _frame: FrameType | None) -> None:
        names.append(signal.Signals(number).name)
        stop.set()

    before = {each: signal.signal(each, handle) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield names
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _merged(
    reports: Mapping[str, LaneReport], wanted: int, seconds: float, stopped: str
) -> SoakReport:
    faults: Counter[str] = Counter()
    for report in reports.values():
        faults.update(report.faults)
    return SoakReport(
        wanted=wanted,
        faults=faults,
        lanes=len(reports),
        runs=sum(report.runs for report in reports.values()),
        workers=sum(report.workers for report in reports.values()),
        seconds=seconds,
        audit=Audit.merged({name: report.audit for name, report in reports.items()}),
        stray=tuple(pid for report in reports.values() for pid in report.stray),
        stopped=stopped,
        errors=tuple(report.error for report in reports.values() if report.error),
    )
