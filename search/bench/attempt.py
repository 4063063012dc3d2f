"""A case on its way: who is still in, what was prepared, and how everybody ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from ptxgen.outcome import Outcome, Status
from search.bench.case import Case, Entry, Result, Verdict
from search.rounds import Window
from search.timed import timed_outcome


class Attempt:
    """The state of one case; no process and no device here.

    Args:
        case: what is computed.
        entries: by whom; keys are unique.
    """

    def __init__(self, case: Case, entries: Sequence[Entry]) -> None:
        self.case = case
        self.prepared: dict[str, int] = {}
        """Generation of the process that holds an entry ready, by key."""
        self.preparations: Counter[str] = Counter()
        """How often an entry was prepared, by key."""
        self._entries = list(entries)
        self._ended: dict[str, tuple[Verdict, str]] = {}
        self._rel_err: dict[str, float] = {}
        self._outcomes: dict[str, Outcome] = {}
        self._variants: dict[str, str] = {}

    @property
    def live(self) -> list[Entry]:
        """Entries that have not ended, in order."""
        return [entry for entry in self._entries if entry.key not in self._ended]

    def end(self, key: str, verdict: Verdict, reason: str) -> None:
        """Ends an entry."""
        self._ended[key] = (verdict, reason)

    def note_check(self, key: str, found: dict[str, Any]) -> None:
        """Keeps the error of a check; ends the entry where it was wrong."""
        if found["rel_err"] is not None:
            self._rel_err[key] = float(found["rel_err"])
        if found.get("variant"):
            self._variants[key] = str(found["variant"])
        if found["wrong"]:
            self.end(key, Verdict.WRONG, str(found["wrong"]))

    def take_times(self, keys: Sequence[str], window: Window) -> None:
        """What the window gave for these entries, in its order."""
        floor_us = self.case.floor_us
        for key, timing in zip(keys, window.timings, strict=True):
            checked = Outcome(Status.OK, rel_err=self._rel_err.get(key), floor_us=floor_us)
            least_us = self.case.least_us
            outcome = timed_outcome(checked, timing, window.evidence, window.fault, least_us)
            self._outcomes[key] = outcome
            if outcome.status is not Status.OK and key not in self._ended:
                self.end(key, Verdict.NOISY, outcome.message)

    def results(self) -> list[Result]:
        """One result an entry, in order."""
        return [self._result(entry) for entry in self._entries]

    def _result(self, entry: Entry) -> Result:
        verdict, reason = self._ended.get(entry.key, (Verdict.OK, ""))
        outcome = self._outcomes.get(entry.key)
        if outcome is None and entry.key in self._rel_err:
            outcome = Outcome(Status.WRONG, reason, rel_err=self._rel_err[entry.key])
        variant = self._variants.get(entry.key, "")
        return Result(self.case, entry, verdict, reason, outcome, variant)
