"""Runs cases: every entry is prepared and checked, then all take turns in one window.

Each group of contenders has a process of its own, one of which is at work at a time: the turns are
passed by the parent, which never touches CUDA. An entry that fails costs its process and itself;
the others are prepared again, and the window starts anew without it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from search.bench.attempt import Attempt
from search.bench.case import Case, Entry, Result, Verdict
from search.bench.process import GPU_KIT, BenchLimits, BenchProcess, EntryFailedError, PidWatch
from search.bench.turns import RemoteTimed, Turns
from search.gpu_lock import GpuLock
from search.rounds import time_in_turns
from search.steady import Reader, Steady

ROUNDS = 11
MAX_CRASHES = 3
"""An entry that crashed or hung as often as this is not tried again: each costs a new process."""

MAX_PREPARATIONS = 8
"""Within a case: more mean that its process ends by itself after every answer."""

COSTLY = frozenset({Verdict.CRASHED, Verdict.HUNG})


class GpuWatch(Reader, PidWatch, Protocol):
    """What the parent reads of the GPU; search.clocks.Clocks, or a fake."""


class BenchRunner:
    """Compares contenders on one GPU.

    Args:
        watch: readings of the GPU.
        lock: of the GPU; held for a case at a time.
        options: plain data for the processes: "index", "seed", "gpu_uuid" where they see only
            that GPU, and "kit" where it is a fake.
        limits: timeouts.
        on_wait: called while another process holds the lock.
        strict: whether a neighbour on the GPU makes every time NOISY.
    """

    def __init__(
        self,
        watch: GpuWatch,
        lock: GpuLock,
        options: dict[str, Any] | None = None,
        *,
        limits: BenchLimits | None = None,
        on_wait: Callable[[], None] | None = None,
        strict: bool = False,
    ) -> None:
        self._watch, self._lock, self._on_wait = watch, lock, on_wait
        self._options = {"kit": GPU_KIT, **(options or {})}
        self._limits = limits or BenchLimits()
        self._processes: dict[str, BenchProcess] = {}
        self._crashes: dict[str, int] = {}
        self._steady = Steady(watch, self._burn_in, strict=strict)

    def run(self, case: Case, entries: Sequence[Entry], rounds: int = ROUNDS) -> list[Result]:
        """Results in the order of the entries; none is left out, and no contender's fault raises.

        Args:
            case: what is computed.
            entries: by whom; at most one a contender and protocol.
            rounds: turns of every contender.
        """
        attempt = Attempt(case, entries)
        for entry in entries:
            self._exclude(attempt, entry)
        if attempt.live:
            with self._lock.held(self._on_wait):
                self._time(attempt, rounds)
                self._verify(attempt)
                self._release()
        return attempt.results()

    def close(self) -> None:
        """Ends all processes. Safe to call again."""
        for process in self._processes.values():
            process.kill()

    def __enter__(self) -> BenchRunner:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # ---- one case -------------------------------------------------------------------------------

    def _exclude(self, attempt: Attempt, entry: Entry) -> None:
        """Ends an entry that need not be tried."""
        if missing := entry.contender.missing():
            attempt.end(entry.key, Verdict.NOT_INSTALLED, missing)
        elif self._crashes.get(entry.key, 0) >= MAX_CRASHES:
            reason = f"not tried again after {MAX_CRASHES} crashes in this run"
            attempt.end(entry.key, Verdict.CRASHED, reason)

    def _time(self, attempt: Attempt, rounds: int) -> None:
        """Prepares whoever is left and times them; again without those who fail meanwhile."""
        while True:
            self._prepare(attempt)
            if not attempt.live:
                return
            keys, turns = [entry.key for entry in attempt.live], Turns()
            timed = [
                RemoteTimed(turns, self._process(entry), entry.key, self._limits.sample_s)
                for entry in attempt.live
            ]
            self._burn_in()
            try:
                window = time_in_turns(timed, rounds, self._steady)
                turns.settle()
            except EntryFailedError as error:
                self._failed(attempt, error)
                continue
            attempt.take_times(keys, window)
            return

    def _prepare(self, attempt: Attempt) -> None:
        """Prepares whoever is not, or not any more: a process that ended took its group along."""
        while True:
            stale = [entry for entry in attempt.live if not self._is_prepared(attempt, entry)]
            if not stale:
                return
            for entry in stale:
                self._prepare_one(attempt, entry)

    def _is_prepared(self, attempt: Attempt, entry: Entry) -> bool:
        process = self._process(entry)
        return attempt.prepared.get(entry.key) == process.generation and process.alive()

    def _prepare_one(self, attempt: Attempt, entry: Entry) -> None:
        process, case = self._process(entry), attempt.case
        attempt.preparations[entry.key] += 1
        if attempt.preparations[entry.key] > MAX_PREPARATIONS:
            attempt.end(entry.key, Verdict.CRASHED, "its process ended by itself, again and again")
            return
        message = {
            "kind": "prepare",
            "factory": entry.contender.factory,
            "problem": case.problem.to_dict(),
            "m": case.m,
            "options": entry.options,
            "floor_us": case.floor_us,
        }
        try:
            found = process.ask(entry.key, message, self._limits.prepare_s)
        except EntryFailedError as error:
            self._failed(attempt, error)
            return
        attempt.note_check(entry.key, found)
        attempt.prepared[entry.key] = process.generation

    def _verify(self, attempt: Attempt) -> None:
        """Checks what the timed launches themselves left behind."""
        for entry in attempt.live:
            if not self._is_prepared(attempt, entry):
                continue  # its process went down with another entry's check
            try:
                found = self._process(entry).ask(
                    entry.key, {"kind": "verify"}, self._limits.sample_s
                )
            except EntryFailedError as error:
                self._failed(attempt, error)
                continue
            attempt.note_check(entry.key, found)

    def _failed(self, attempt: Attempt, error: EntryFailedError) -> None:
        if error.verdict in COSTLY:
            self._crashes[error.key] = self._crashes.get(error.key, 0) + 1
        attempt.end(error.key, error.verdict, str(error))

    # ---- processes ------------------------------------------------------------------------------

    def _process(self, entry: Entry) -> BenchProcess:
        group = entry.contender.group
        if group not in self._processes:
            self._processes[group] = BenchProcess(self._options, self._limits, self._watch)
        return self._processes[group]

    def _burn_in(self) -> None:
        """Brings the GPU to its working clock; any process can."""
        for process in self._processes.values():
            if process.alive():
                self._tell(process, "burn_in")
                return

    def _release(self) -> None:
        for process in self._processes.values():
            if process.alive():
                self._tell(process, "release")

    def _tell(self, process: BenchProcess, kind: str) -> None:
        """A request of no entry; where it fails the process is gone, as the next request finds."""
        try:
            process.ask("", {"kind": kind}, self._limits.sample_s)
        except EntryFailedError:
            return
