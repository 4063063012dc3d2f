"""The failure ledger: how many candidates failed how, the worst one, and how to repeat it."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from db.devices import device_key
from db.records import TrialRecord
from db.reproduce import GOOD, badness, reproduce_command
from ptxgen.outcome import Status
from reports.data import ReportData
from reports.table import Column, Table
from reports.words import config_text

COLUMNS = (
    Column("class", numeric=False),
    Column("candidates"),
    Column("worst", numeric=False),
    Column("reason", numeric=False),
    Column("run it alone", numeric=False),
)
REASON_CHARS = 120


def failures(data: ReportData) -> list[dict[str, Any]]:
    """One entry a failure class, JSON-friendly, in the order of the classes.

    A candidate that failed so in several runs counts once.
    """
    devices = {run.id: device_key(run.device) for run in data.runs}
    groups: dict[Status, dict[tuple[Any, ...], TrialRecord]] = defaultdict(dict)
    for trial in data.trials:
        if trial.outcome.status not in GOOD:
            what = trial.config or trial.contender
            slot = (trial.problem, trial.m, trial.protocol, what, trial.source_digest)
            key = (devices.get(trial.run_id, ""), *slot)
            group = groups[trial.outcome.status]
            group[key] = max(group.get(key, trial), trial, key=lambda item: badness(item.outcome))
    predicted = {run.id: run.device.name for run in data.runs if run.settings.get("predicted")}
    return [
        _entry(status, [*groups[status].values()], predicted)
        for status in Status
        if status in groups
    ]


def failure_table(data: ReportData) -> Table:
    """The ledger as a table; long reasons (compiler logs) are cut, the JSON has them whole."""
    rows = tuple(
        (
            entry["status"],
            str(entry["count"]),
            entry["worst"],
            _short(entry["message"]),
            entry["reproduce"],
        )
        for entry in failures(data)
    )
    return Table(COLUMNS, rows)


def _entry(status: Status, trials: list[TrialRecord], predicted: dict[int, str]) -> dict[str, Any]:
    """One class; predicted maps a run that predicted to its GPU."""
    worst = max(trials, key=lambda trial: badness(trial.outcome))
    name = config_text(worst.config) if worst.config else worst.contender
    return {
        "status": status.value,
        "count": len(trials),
        "trial_id": worst.id,
        "worst": f"{name}, {_slot_text(worst)}",
        "message": worst.outcome.message,
        "reproduce": reproduce_command(
            worst.problem,
            worst.m,
            worst.protocol,
            worst.config,
            predicted_for=predicted.get(worst.run_id, ""),
        ),
    }


def _slot_text(trial: TrialRecord) -> str:
    return f"{trial.problem.key()} M={trial.m} {trial.protocol.value}"


def _short(message: str) -> str:
    line = " ".join(message.split())
    return line if len(line) <= REASON_CHARS else line[: REASON_CHARS - 3] + "..."
