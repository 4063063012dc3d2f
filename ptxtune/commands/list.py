"""ptxtune list: stored winners, runs, trials or imported seeds."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from db import query
from db.devices import canonical_name
from db.imported import IMPORTED
from db.session import Database, open_for_reading
from ptxgen.arch import gpu_named
from ptxgen.counted import counted
from ptxgen.outcome import Status
from ptxtune.listing import run_document, run_table, trial_document, trial_table
from ptxtune.options import db_option, json_option
from ptxtune.output import note, say, say_json
from reports.data import ReportData
from reports.document import winner_document
from reports.seeds import seed_document, seeds_table
from reports.table import Table
from reports.winners import gpu_winner_table


@click.command("list")
@click.argument(
    "what", type=click.Choice(("winners", "runs", "trials", "seeds")), default="winners"
)
@click.option("--run", "run_id", type=int, help="Trials of this run alone.")
@click.option(
    "--status",
    type=click.Choice([status.value for status in Status]),
    help="Trials that ended so.",
)
@click.option("--gpu", help="What concerns this GPU alone (default: all that are stored).")
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
    *,
    what: str,
    run_id: int | None,
    status: str | None,
    gpu: str | None,
    limit: int,
    db: str | None,
    as_json: bool,
) -> None:
    """List stored winners, runs, trials or seeds.

    Winners are measured or predicted, ordinary or batch-invariant, and say so. Seeds are other
    machines' results that ptxtune db import took in: no answer serves them, a search tries them
    first.

    \b
    Example:
      ptxtune list
      ptxtune list trials --status wrong --gpu h200 --json
    """
    with open_for_reading(db) as database:
        name = None if gpu is None else _stored_name(database, gpu)
        if what == "winners":
            document, table = _winners(database, name)
        elif what == "runs":
            document, table = _runs(database, name, limit)
        elif what == "trials":
            document, table = _trials(database, name, run_id, status, limit)
        else:
            document, table = _seeds(database, name)
        if as_json:
            say_json({what: document})
        elif table.rows:
            say(table.to_text())
        else:
            say(_nothing(database, what, gpu))
        if what == "winners":
            note(_seeds_note(database, name))


def _stored_name(database: Database, gpu: str) -> str:
    """The canonical name of a GPU that is stored, or at least known.

    Raises:
        ArchError: neither; the message lists the known ones.
    """
    name = canonical_name(gpu)
    stored = {canonical_name(device.name) for device in query.devices(database)}
    return name if name in stored else canonical_name(gpu_named(gpu).device_name)


def _winners(database: Database, gpu: str | None) -> tuple[list[dict[str, Any]], Table]:
    found = query.winners(database, gpu=gpu, batch_invariant=None)
    data = ReportData(tuple(found), (), (), datetime.now(UTC))
    return [winner_document(winner) for winner in found], gpu_winner_table(data)


def _runs(database: Database, gpu: str | None, limit: int) -> tuple[list[dict[str, Any]], Table]:
    found = query.runs(database, limit=limit, gpu=gpu)
    counts = {run.id: query.outcomes_by_status(database, run.id) for run in found}
    return [run_document(run, counts[run.id]) for run in found], run_table(found, counts)


def _trials(
    database: Database, gpu: str | None, run_id: int | None, status: str | None, limit: int
) -> tuple[list[dict[str, Any]], Table]:
    if run_id is not None:
        query.run(database, run_id)  # says that there is none
    statuses = (Status(status),) if status else None
    found = query.trials(database, run_id=run_id, statuses=statuses, limit=limit, gpu=gpu)
    runs = {run.id: run for run in query.runs(database)}
    return [trial_document(trial, runs) for trial in found], trial_table(found, runs)


def _seeds(database: Database, gpu: str | None) -> tuple[list[dict[str, Any]], Table]:
    runs = {run.id: run for run in query.runs(database, gpu=gpu)}
    found = query.trials(database, contender=IMPORTED, gpu=gpu)
    data = ReportData((), tuple(found), tuple(runs.values()), datetime.now(UTC))
    return [seed_document(seed, runs.get(seed.run_id)) for seed in found], seeds_table(data)


def _nothing(database: Database, what: str, gpu: str | None) -> str:
    where = f"database {database.label}" + (" (it does not exist yet)" if database.missing else "")
    how = "ptxtune db import takes them in" if what == "seeds" else "ptxtune tune stores them"
    return f"No {what}{f' of {gpu}' if gpu else ''} in {where}; {how}."


def _seeds_note(database: Database, gpu: str | None) -> str:
    seeds = len(query.trials(database, contender=IMPORTED, gpu=gpu))
    if not seeds:
        return ""
    return f"Also {counted(seeds, 'imported seed')}, not measured here: ptxtune list seeds."
