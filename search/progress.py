"""Progress on screen: a bar on a terminal, plain lines elsewhere. Reads events, decides nothing."""

from __future__ import annotations

import time
from collections import Counter
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from db.reproduce import GOOD
from ptxgen.counted import counted
from ptxgen.outcome import Status
from search.events import (
    Event,
    FinalsStarted,
    Note,
    RunStarted,
    TaskEnded,
    TaskStarted,
    TrialEnded,
)

LINE_SECONDS = 10.0
"""Where there is no terminal, a line at most this often within one search."""


class ProgressView:
    """Shows the events of one run; use it as a context manager and pass `on_event` on.

    Args:
        console: where to write; standard error where None, so that standard output stays clean.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._bar: Progress | None = None
        self._row: TaskID | None = None
        self._tasks = 0
        self._done = "measured"
        self._current: TaskStarted | None = None
        self._failures: Counter[Status] = Counter()
        self._last_line = 0.0

    def __enter__(self) -> ProgressView:
        if self._console.is_terminal:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                TextColumn("{task.fields[state]}"),
                TimeElapsedColumn(),
                console=self._console,
            )
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def on_event(self, event: Event) -> None:
        """Shows one event."""
        if isinstance(event, RunStarted):
            self._tasks = event.tasks
            how = "predicting for" if event.predicted else "tuning on"
            self._done = "predicted" if event.predicted else "measured"
            tasks = counted(event.tasks, "search", "searches")
            self._say(f"run {event.run_id}: {how} {event.device.name}, {tasks}")
        elif isinstance(event, TaskStarted):
            self._start(event)
        elif isinstance(event, TrialEnded):
            self._trial(event)
        elif isinstance(event, FinalsStarted):
            self._state(f"finals of {event.contenders}", force=True)
        elif isinstance(event, TaskEnded):
            self._end(event)
        elif isinstance(event, Note):
            self._say(event.text)

    def _start(self, event: TaskStarted) -> None:
        self._current = event
        self._failures.clear()
        self._last_line = time.monotonic()
        title = f"[{event.index + 1}/{self._tasks}] {event.task.title()}"
        known = f", {event.known} known" if event.known else ""
        if self._bar is None:
            self._say(f"{title}: {event.space_size} legal configs{known}")
            return
        total = min(event.budget.trials or event.space_size, event.space_size)
        state = f"{event.space_size} configs{known}"
        self._row = self._bar.add_task(title, total=total, state=state)

    def _trial(self, event: TrialEnded) -> None:
        if event.outcome.status not in GOOD:
            self._failures[event.outcome.status] += 1
        self._state(self._text(event))
        if self._bar is not None and self._row is not None:
            self._bar.update(self._row, completed=event.measured)

    def _text(self, event: TrialEnded) -> str:
        """Trials, best time, share of the floor, failures by class."""
        parts = [f"{event.measured} {self._done}"]
        if event.best_us is not None:
            parts.append(f"best {event.best_us:.2f} us")
            if self._current is not None and self._current.floor_us:
                parts.append(f"{self._current.floor_us / event.best_us:.0%} of the floor")
        parts += [f"{status.value} {count}" for status, count in self._failures.most_common()]
        return ", ".join(parts)

    def _state(self, text: str, force: bool = False) -> None:
        """Updates the bar's text; without a bar a line, but not too often."""
        if self._bar is not None:
            if self._row is not None:
                self._bar.update(self._row, state=text)
            return
        now = time.monotonic()
        if force or now - self._last_line >= LINE_SECONDS:
            self._last_line = now
            self._say(f"  {text}")

    def _end(self, event: TaskEnded) -> None:
        if self._bar is not None and self._row is not None:
            self._bar.remove_task(self._row)
            self._row = None
        if event.config is None or event.time_us is None:
            self._say(f"{event.task.title()}: no winner: {event.message}")
            return
        parts = [f"{event.time_us:.2f} us"]
        if event.floor_us:
            parts.append(f"{event.floor_us / event.time_us:.0%} of the floor")
        if event.default_us:
            parts.append(f"{event.default_us / event.time_us:.2f}x the default")
        if event.cublas_us:
            parts.append(f"{event.cublas_us / event.time_us:.2f}x cuBLAS")
        if event.dequantized_us:
            parts.append(f"{event.dequantized_us / event.time_us:.2f}x dequantize + matmul")
        self._say(f"{event.task.title()}: {', '.join(parts)}; {event.config.key()}")

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)
