"""The conditions table: clocks, throttling, state and neighbours while each winner was timed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ptxgen.evidence import Evidence
from reports.data import ReportData
from reports.table import Column, Table
from reports.words import MISSING, SLOT_COLUMNS

CONDITION_COLUMNS = (
    Column("state", numeric=False),
    Column("lowest SM clock", "MHz"),
    Column("memory clock", "MHz"),
    Column("temperature", "C"),
    Column("power", "W"),
    Column("clock limited by", numeric=False),
    Column("other processes", numeric=False),
    Column("sample sets dropped"),
)


def conditions_table(data: ReportData) -> Table:
    """One row a winner that has evidence."""
    rows = (
        (
            *data.slot_cells(winner),
            *condition_cells(winner.evidence),
        )
        for winner in data.ordered_winners()
        if winner.evidence is not None
    )
    return Table((*SLOT_COLUMNS, *CONDITION_COLUMNS), tuple(rows))


def condition_cells(evidence: Evidence) -> tuple[str, ...]:
    """Cells of CONDITION_COLUMNS; clock, temperature and power are of the end, under load."""
    after = evidence.after
    return (
        evidence.state.value if evidence.state else "unknown",
        _number(evidence.lowest_sm_mhz, evidence.limits.max_sm_mhz),
        _number(after.memory_mhz),
        _number(after.temperature_c),
        _number(None if after.power_w is None else round(after.power_w), _limit_w(evidence)),
        _listed(evidence.throttle),
        _listed(evidence.other_pids),
        str(len(evidence.dropped)),
    )


def conditions_text(data: ReportData) -> str:
    """The conditions of all timed trials in one line."""
    found = [trial.outcome.evidence for trial in data.trials if trial.outcome.evidence]
    if not found:
        return "no GPU readings"
    states = Counter(item.state.value if item.state else "unknown" for item in found)
    words = [f"{count} {state}" for state, count in sorted(states.items())]
    reasons = Counter(reason for item in found for reason in item.throttle or ())
    words += [f"{count} with {reason}" for reason, count in reasons.most_common()]
    words.append(f"{sum(len(item.dropped) for item in found)} sample sets dropped and repeated")
    return f"{len(found)} timed trials: {', '.join(words)}; {_neighbours(found)}"


def _neighbours(found: list[Evidence]) -> str:
    if all(item.other_pids is None for item in found):
        return "other compute processes not visible"
    shared = [item for item in found if item.other_pids]
    if not shared:
        return "no other process computed on the GPU"
    pids = sorted({pid for item in shared for pid in item.other_pids or ()})
    return (
        f"other processes computed on the GPU during {len(shared)} of them "
        f"({', '.join(map(str, pids))})"
    )


def _number(value: float | None, limit: float | None = None) -> str:
    if value is None:
        return MISSING
    return f"{value:g} of {limit:g}" if limit else f"{value:g}"


def _limit_w(evidence: Evidence) -> int | None:
    return evidence.limits.power_limit_w


def _listed(values: Iterable[object] | None) -> str:
    if values is None:
        return "not visible"
    return ", ".join(map(str, values)) or "none"
