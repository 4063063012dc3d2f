"""ptxtune list: stored winners, runs or trials."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from db import query
from db.records import RunRecord, TrialRecord
from db.session import Database, open_for_reading
from ptxgen.outcome import Status
from ptxtune.options import db_option, json_option
from ptxtune.output import say, say_json
from reports.data import ReportData
from reports.document import winner_document
from reports.table import Column, Table
from reports.winners import winner_table
from reports.words import config_text, size_text, time_text, variant_text

RUN_COLUMNS = (
    Column("run"),
    Column("began", numeric=False),
    Column("ended", numeric=False),
    Column("device", numeric=False),
    Column("trials"),
    Column("ok"),
    Column("commit", numeric=False),
)
TRIAL_COLUMNS = (
    Column("trial"),
    Column("run"),
    Column("N x K", numeric=False),
    Column("variant", numeric=False),
    Column("M"),
    Column("protocol", numeric=False),
    Column("status", numeric=False),
    Column("time", "us"),
    Column("contender", numeric=False),
    Column("message", numeric=False),
)
MESSAGE_CHARS = 60


@click.command("list")
@click.argument("what", type=click.Choice(("winners", "runs", "trials")), default="winners")
@click.option("--run", "run_id", type=int, help="Trials of this run alone.")
@click.option(
    "--status",
    type=click.Choice([status.value for status in Status]),
    help="Trials that ended so.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    help="The newest this many runs or trials.",
)
@db_option
@json_option
def command(
    *, what: str, run_id: int | None, status: str | None, limit: int, db: str | None, as_json: bool
) -> None:
    """List stored winners, runs or trials.

    \b
    Example:
      ptxtune list
      ptxtune list trials --status wrong --json
    """
    with open_for_reading(db) as database:
        if what == "winners":
            _winners(database, as_json)
        elif what == "runs":
            _runs(database, limit, as_json)
        else:
            statuses = (Status(status),) if status else None
            found = query.trials(database, run_id=run_id, statuses=statuses, limit=limit)
            _trials(found, as_json)


def _winners(database: Database, as_json: bool) -> None:
    found = query.winners(database)
    if as_json:
        say_json({"winners": [winner_document(winner) for winner in found]})
        return
    say(winner_table(ReportData(tuple(found), (), (), datetime.now(UTC))).to_text())


def _runs(database: Database, limit: int, as_json: bool) -> None:
    found = query.runs(database, limit=limit)
    counts = {run.id: query.outcomes_by_status(database, run.id) for run in found}
    if as_json:
        say_json({"runs": [_run_document(run, counts[run.id]) for run in found]})
        return
    rows = (
        (
            str(run.id),
            _moment(run.started_at),
            _moment(run.ended_at),
            run.device.name,
            str(sum(counts[run.id].values())),
            str(counts[run.id].get(Status.OK, 0)),
            run.toolchain.commit,
        )
        for run in found
    )
    say(Table(RUN_COLUMNS, tuple(rows)).to_text())


def _run_document(run: RunRecord, counts: dict[Status, int]) -> dict[str, Any]:
    return {
        "run": run.id,
        "device": run.device.name,
        "driver": run.toolchain.driver,
        "nvrtc": run.toolchain.nvrtc,
        "commit": run.toolchain.commit,
        "started_at": run.started_at.isoformat(),
        "ended_at": run.ended_at.isoformat() if run.ended_at else None,
        "settings": run.settings,
        "trials": {status.value: count for status, count in counts.items()},
    }


def _trials(found: list[TrialRecord], as_json: bool) -> None:
    if as_json:
        say_json({"trials": [_trial_document(trial) for trial in found]})
        return
    say(Table(TRIAL_COLUMNS, tuple(_trial_row(trial) for trial in found)).to_text())


def _trial_row(trial: TrialRecord) -> tuple[str, ...]:
    message = " ".join(trial.outcome.message.split())
    short = message if len(message) <= MESSAGE_CHARS else message[: MESSAGE_CHARS - 3] + "..."
    return (
        str(trial.id),
        str(trial.run_id),
        size_text(trial.problem),
        variant_text(trial.problem),
        str(trial.m),
        trial.protocol.value,
        trial.outcome.status.value,
        time_text(trial.outcome.time_us),
        config_text(trial.config) if trial.config else trial.contender,
        short,
    )


def _trial_document(trial: TrialRecord) -> dict[str, Any]:
    outcome = trial.outcome
    return {
        "trial": trial.id,
        "run": trial.run_id,
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
