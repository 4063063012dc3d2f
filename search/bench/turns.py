"""Turns between processes: contenders as search.rounds sees them, one process at work at a time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

from search.bench.process import BenchProcess


@dataclass(slots=True)
class Turns:
    """Who was left with queued work: another process must not be timed beside it.

    Attributes:
        busy: the process and entry that keep the GPU busy; None where nothing is queued.
    """

    busy: tuple[BenchProcess, str, float] | None = field(default=None)

    def settle(self) -> None:
        """Waits until the queued work is done."""
        if self.busy is not None:
            process, key, limit_s = self.busy
            self.busy = None
            process.ask(key, {"kind": "finish"}, limit_s)


class RemoteTimed:
    """An entry prepared in its process; see search.rounds.Timed.

    Args:
        turns: shared by all contenders of a window.
        process: holds the captured launches.
        key: of the entry.
        limit_s: for one request.
    """

    def __init__(self, turns: Turns, process: BenchProcess, key: str, limit_s: float) -> None:
        self._turns, self._process, self._key, self._limit_s = turns, process, key, limit_s

    def samples_us(self, count: int, warmups: int = 2) -> list[float]:
        """Samples after warm-ups. Raises EntryFailedError where the process cannot give them."""
        self._turns.settle()
        message = {"kind": "samples", "count": count, "warmups": warmups}
        return cast(list[float], self._process.ask(self._key, message, self._limit_s))

    def keep_busy(self) -> None:
        """Queues a few milliseconds of the same work. Raises EntryFailedError."""
        self._process.ask(self._key, {"kind": "keep_busy"}, self._limit_s)
        self._turns.busy = (self._process, self._key, self._limit_s)
