"""The audit of a soak: what the database holds against what was accepted and what was injected."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from db import query
from db.orphans import ORPHAN_MESSAGE
from db.records import TrialRecord
from db.session import Database
from ptxgen.outcome import Status
from search.context import MAX_KILLS
from search.fake_parts import FaultLog, soak_time_us
from search.faults import Fault
from search.history import DEADLY
from search.soak_run import SoakSpec, offered

DEFINITE = frozenset(Status) - DEADLY - {Status.NOISY, Status.STARTED, Status.PREDICTED}
"""Outcomes after which a config is not tried again."""


@dataclass(frozen=True, slots=True)
class Audit:
    """Counts that must all be 0, each with its first examples.

    Attributes:
        problems: what is wrong -> examples.
        trials: rows of the database by status.
        stored: rows of the configs of each fault, by status.
    """

    problems: Mapping[str, list[str]]
    trials: Mapping[Status, int] = field(default_factory=dict)
    stored: Mapping[str, Mapping[Status, int]] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        return not any(self.problems.values())

    @classmethod
    def merged(cls, audits: Mapping[str, Audit]) -> Audit:
        """One audit of several lanes; every example begins with its lane's name."""
        problems: dict[str, list[str]] = {}
        trials: Counter[Status] = Counter()
        stored: dict[str, Counter[Status]] = defaultdict(Counter)
        for name, each in audits.items():
            for what, examples in each.problems.items():
                problems.setdefault(what, []).extend(f"{name}: {text}" for text in examples)
            trials.update(each.trials)
            for fault, counts in each.stored.items():
                stored[fault].update(counts)
        return cls(problems, trials, stored)


def audit(spec: SoakSpec, database: Database, *, ended: bool = True) -> Audit:
    """Compares the database with the notes of the killed runs and with the fault plan.

    Args:
        spec: of the soak.
        database: of its tuner.
        ended: False where the soak was stopped: what only its end can show is left out.
    """
    rows = {row.id: row for row in query.trials(database)}
    notes = FaultLog(Path(spec.folder) / "notes.log").lines()
    screened = [row for row in rows.values() if row.id not in _finalists(rows, notes)]
    found: dict[str, list[str]] = {
        "lost": list(_lost(rows, notes)),
        "duplicated": list(_duplicated(screened)),
        "undetected": list(_misjudged(spec, screened, faulty=True)),
        "slandered": list(_misjudged(spec, screened, faulty=False)),
    }
    if ended:  # a soak that was stopped has left work undone
        running = (str(row.id) for row in rows.values() if row.outcome.status is Status.STARTED)
        found["never finished"] = list(running)
        found["forgotten"] = list(_forgotten(spec, screened))
        found["wrong winner"] = list(_wrong_winners(spec, database, screened))
    trials = Counter(row.outcome.status for row in rows.values())
    return Audit(found, trials, _stored(spec, screened))


def _stored(spec: SoakSpec, screened: Iterable[TrialRecord]) -> dict[str, Counter[Status]]:
    """How the trials of the configs of each fault ended."""
    found: dict[str, Counter[Status]] = defaultdict(Counter)
    for row in screened:
        fault = row.config and spec.plan.fault_of(row.config, row.problem.key())
        if fault:
            found[fault.name][row.outcome.status] += 1
    return dict(found)


def _finalists(rows: Mapping[int, TrialRecord], notes: Iterable[str]) -> set[int]:
    """Ids of rows that were written by finals: begun after the note that says so."""
    newest, begun = 0, dict[tuple[int, str], int]()
    for note in notes:
        words = note.split()
        if words[0] == "started":
            newest = max(newest, int(words[1]))
        elif words[0] == "finals":
            begun[int(words[1]), words[2]] = newest
    return {
        row.id
        for row in rows.values()
        if row.id > begun.get((row.run_id, row.problem.key()), row.id)
    }


def _lost(rows: Mapping[int, TrialRecord], notes: Iterable[str]) -> Iterable[str]:
    """Trials that the database had accepted, and that are gone or different now."""
    for note in notes:
        what, number, *rest = note.split()
        if what == "finals":
            continue
        row = rows.get(int(number))
        if row is None or (what == "ended" and row.outcome.status.value != rest[0]):
            state = "gone" if row is None else row.outcome.status.value
            yield f"{note}, now {state}"


def _duplicated(screened: Iterable[TrialRecord]) -> Iterable[str]:
    """Configs with several definite outcomes: they were measured again for nothing."""
    counts = Counter(_key(row) for row in screened if row.outcome.status in DEFINITE)
    return (f"{count} x {key}" for key, count in counts.items() if count > 1)


def _forgotten(spec: SoakSpec, screened: Iterable[TrialRecord]) -> Iterable[str]:
    """Offered configs without a definite outcome that are neither quarantined nor noisy."""
    seen: dict[tuple[str, str], Counter[Status]] = defaultdict(Counter)
    kills: Counter[str] = Counter()
    for row in screened:
        seen[_key(row)][row.outcome.status] += 1
        if row.outcome.status in DEADLY:
            kills[_key(row)[1]] += 1
    for problem in spec.problems():
        for config in offered(spec, problem):
            key = (problem.key(), config.key())
            settled = DEFINITE & seen[key].keys() or seen[key][Status.NOISY]
            deaths = seen[key][Status.CRASH] + seen[key][Status.HANG]
            if not settled and deaths < MAX_KILLS:
                yield f"{key}: {dict(seen[key])}"


def _misjudged(spec: SoakSpec, screened: Iterable[TrialRecord], *, faulty: bool) -> Iterable[str]:
    """Faulty configs that passed, or good ones with a verdict against them.

    A crash alone is no verdict: a killed worker takes an innocent candidate with it, which is why
    one crash is forgiven.
    """
    for row in screened:
        if row.config is None or row.outcome.message == ORPHAN_MESSAGE:
            continue
        fault = spec.plan.fault_of(row.config, row.problem.key())
        if (fault is not None) is faulty and _is_misjudged(spec, row, fault):
            status = row.outcome.status.value
            yield f"trial {row.id}: {fault.name if fault else 'no fault'} stored as {status}"


def _is_misjudged(spec: SoakSpec, row: TrialRecord, fault: Fault | None) -> bool:
    """Whether a final verdict is wrong. Real kernels may also spill or ask for too much."""
    status = row.outcome.status
    if status not in DEFINITE:
        return False
    if spec.kind == "kernel":
        return status is Status.OK if fault else status in (Status.WRONG, Status.COMPILE_ERROR)
    if fault is None:
        return status is not Status.OK
    case = row.problem.key()
    once = fault.deadly and row.config is not None and spec.plan.is_transient(row.config, case)
    return status not in fault.expected and not (once and status is Status.OK)


def _wrong_winners(
    spec: SoakSpec, database: Database, screened: Iterable[TrialRecord]
) -> Iterable[str]:
    """Problems whose winner has a fault, is missing, or is not the fastest good config (fakes)."""
    good: dict[str, list[TrialRecord]] = defaultdict(list)
    for row in screened:
        if row.outcome.status is Status.OK and row.config is not None:
            good[row.problem.key()].append(row)
    for problem in spec.problems():
        case = problem.key()
        winners = query.winners(database, problem=problem)
        if bool(winners) != bool(good[case]):
            yield f"{case}: {len(winners)} winners, {len(good[case])} good configs"
        for winner in winners:
            fault = spec.plan.fault_of(winner.config, case)
            if fault is not None and Status.OK not in fault.expected and spec.kind == "kernel":
                yield f"{case}: the winner has the fault {fault.name}"
            if spec.kind == "process":
                times = (soak_time_us(row.config) for row in good[case] if row.config)
                best = min(times, default=float("inf"))
                if winner.time_us != best:
                    yield f"{case}: {winner.time_us} us, and the best good config takes {best} us"


def _key(row: TrialRecord) -> tuple[str, str]:
    return (row.problem.key(), row.config.key() if row.config else row.contender)
