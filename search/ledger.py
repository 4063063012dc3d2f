"""The failure ledger: how many candidates failed how, and the worst one of each class."""

from __future__ import annotations

from dataclasses import dataclass, replace

from db.reproduce import GOOD, badness, reproduce_command
from ptxgen.config import KernelConfig
from ptxgen.outcome import Outcome, Status
from search.events import Task


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One failure class.

    Attributes:
        status: the class.
        count: candidates that ended so.
        task: of the worst one.
        config: of the worst one; None for a baseline.
        message: of the worst one.
        reproduce: command line that runs the worst one alone.
    """

    status: Status
    count: int
    task: Task
    config: KernelConfig | None
    message: str
    reproduce: str


class Ledger:
    """Collects failures; entries() gives them in the order of the classes.

    predicted_for names the GPU of a run that predicts: there its failures cannot be run.
    """

    def __init__(self, predicted_for: str = "") -> None:
        self._predicted_for = predicted_for
        self._entries: dict[Status, LedgerEntry] = {}
        self._badness: dict[Status, float] = {}

    def add(self, task: Task, config: KernelConfig | None, outcome: Outcome) -> None:
        """Counts an outcome where it is a failure."""
        if outcome.status in GOOD:
            return
        found = self._entries.get(outcome.status)
        worst = badness(outcome)
        if found is not None and worst <= self._badness[outcome.status]:
            self._entries[outcome.status] = replace(found, count=found.count + 1)
            return
        count = 1 if found is None else found.count + 1
        self._badness[outcome.status] = worst
        command = reproducer(task, config, self._predicted_for)
        self._entries[outcome.status] = LedgerEntry(
            outcome.status, count, task, config, outcome.message, command
        )

    def entries(self) -> tuple[LedgerEntry, ...]:
        """The classes that occurred."""
        return tuple(self._entries[status] for status in Status if status in self._entries)


def reproducer(task: Task, config: KernelConfig | None, predicted_for: str = "") -> str:
    """The command line that runs one candidate alone, quoted for a POSIX shell."""
    return reproduce_command(
        task.problem, task.m, task.protocol, config, predicted_for=predicted_for
    )
