"""Listing: stored runs and trials as tables and JSON; what is stored says what it is."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from db.imported import IMPORTED
from db.records import RunRecord, TrialRecord
from ptxgen.outcome import Status
from reports.table import Column, Table
from reports.winners import GPU
from reports.words import MISSING, config_text, size_text, time_text, variant_text

RUN_COLUMNS = (
    Column("run"),
    Column("began", numeric=False),
    Column("ended", numeric=False),
    Column("kind", numeric=False),
    GPU,
    Column("trials"),
    Column("ok"),
    Column("predicted"),
    Column("failed"),
    Column("commit", numeric=False),
)
TRIAL_COLUMNS = (
    Column("trial"),
    Column("run"),
    GPU,
    Column("N x K", numeric=False),
    Column("variant", numeric=False),
    Column("M"),
    Column("protocol", numeric=False),
    Column("status", numeric=False),
    Column("time", "us"),
    Column("contender", numeric=False),
    Column("config", numeric=False),
    Column("message", numeric=False),
)
MESSAGE_CHARS = 60
GOOD = (Status.OK, Status.PREDICTED, Status.STARTED)


def kind_of(run: RunRecord) -> str:
    """What a run did: measured here, predicted, or imported from another machine."""
    if IMPORTED in run.settings:
        return IMPORTED
    return "predicted" if run.settings.get("predicted") is True else "measured"


def run_table(runs: list[RunRecord], counts: Mapping[int, Mapping[Status, int]]) -> Table:
    """One row a run, with how many of its trials ended how."""
    rows = (
        (
            str(run.id),
            _moment(run.started_at),
            _moment(run.ended_at),
            kind_of(run),
            run.device.name,
            str(sum(counts[run.id].values())),
            str(counts[run.id].get(Status.OK, 0)),
            str(counts[run.id].get(Status.PREDICTED, 0)),
            str(sum(count for status, count in counts[run.id].items() if status not in GOOD)),
            run.toolchain.commit,
        )
        for run in runs
    )
    return Table(RUN_COLUMNS, tuple(rows))


def run_document(run: RunRecord, counts: Mapping[Status, int]) -> dict[str, Any]:
    """A run, JSON-friendly."""
    return {
        "run": run.id,
        "kind": kind_of(run),
        "device": run.device.name,
        "driver": run.toolchain.driver,
        "nvrtc": run.toolchain.nvrtc,
        "commit": run.toolchain.commit,
        "started_at": run.started_at.isoformat(),
        "ended_at": run.ended_at.isoformat() if run.ended_at else None,
        "settings": run.settings,
        "trials": {status.value: count for status, count in counts.items()},
    }


def trial_table(trials: list[TrialRecord], runs: Mapping[int, RunRecord]) -> Table:
    """One row a trial; contender says whose it is: ours, a baseline's, or imported."""
    return Table(TRIAL_COLUMNS, tuple(_trial_row(trial, runs) for trial in trials))


def _trial_row(trial: TrialRecord, runs: Mapping[int, RunRecord]) -> tuple[str, ...]:
    message = " ".join(trial.outcome.message.split())
    short = message if len(message) <= MESSAGE_CHARS else message[: MESSAGE_CHARS - 3] + "..."
    return (
        str(trial.id),
        str(trial.run_id),
        runs[trial.run_id].device.name if trial.run_id in runs else "unknown",
        size_text(trial.problem),
        variant_text(trial.problem),
        str(trial.m),
        trial.protocol.value,
        trial.outcome.status.value,
        time_text(trial.outcome.time_us),
        trial.contender,
        config_text(trial.config) if trial.config else MISSING,
        short,
    )


def trial_document(trial: TrialRecord, runs: Mapping[int, RunRecord]) -> dict[str, Any]:
    """A trial, JSON-friendly; times in microseconds."""
    outcome = trial.outcome
    return {
        "trial": trial.id,
        "run": trial.run_id,
        "device": runs[trial.run_id].device.name if trial.run_id in runs else None,
        "problem": trial.problem.to_dict(),
        "m": trial.m,
        "protocol": trial.protocol.value,
        "contender": trial.contender,
        "config": trial.config.to_dict() if trial.config else None,
        "status": outcome.status.value,
        "message": outcome.message,
        "time_us": outcome.time_us,
        "spread": outcome.spread,
        "rel_err": outcome.rel_err,
        "floor_us": outcome.floor_us,
        "clock_mhz": outcome.clock_mhz,
        "source_digest": trial.source_digest,
        "started_at": trial.started_at.isoformat(),
        "ended_at": trial.ended_at.isoformat() if trial.ended_at else None,
    }


def _moment(value: datetime | None) -> str:
    return value.isoformat(sep=" ", timespec="seconds") if value else "not ended"
