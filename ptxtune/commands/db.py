"""ptxtune db: takes results out and in, and checks what is stored."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from db.check import check_database
from db.imported import import_trials
from db.migrate import known_revisions
from db.session import Database, open_database, open_for_reading
from db.sharing import shared_trials, shared_winners, unshared
from db.trial_file import read_trials, write_trials
from ptxgen.counted import counted
from ptxgen.errors import StoreError
from ptxgen.output_file import check_outputs
from ptxtune.options import UserPath, db_option, force_option, json_option
from ptxtune.output import note, say, say_json
from reports.table import Column, Table
from reports.words import MISSING

TAKES_FILE = ("export", "import")
FINDINGS = (Column("table", numeric=False), Column("row"), Column("what", numeric=False))


@click.command("db")
@click.argument("action", type=click.Choice((*TAKES_FILE, "check", "upgrade")))
@click.argument("file", type=UserPath(dir_okay=False), required=False)
@click.option("--all", "all_trials", is_flag=True, help="Export every trial, not the winners only.")
@force_option
@db_option
@json_option
@click.pass_context
def command(
    context: click.Context,
    /,
    *,
    action: str,
    file: Path | None,
    all_trials: bool,
    force: bool,
    db: str | None,
    as_json: bool,
) -> None:
    """Export, import, check or upgrade what is stored.

    export and import take FILE, JSON lines: every line carries its problem, config and times; the
    first one says on which device, driver, NVRTC and commit they were measured. Imported configs
    are seeds: the next tuning run tries them first, and no answer calls them measured before that.
    A name that ends in .gz is compressed. An export to a file that
    is there already is refused, unless --force is given.

    check looks at every row, and at an SQLite file as a whole; it changes nothing, and the exit
    code is 1 where something is damaged. Queries leave damaged rows out with a warning. upgrade
    brings a database of an older ptxtune up to date.

    \b
    Example:
      ptxtune db export winners.jsonl
      ptxtune db import winners.jsonl
      ptxtune db export trials.jsonl.gz --all
      ptxtune db check
    """
    if all_trials and action != "export":
        raise click.UsageError("--all belongs to export; an import takes the fastest trials.")
    if force and action != "export":
        raise click.UsageError("--force belongs to export; nothing else replaces a file.")
    if (file is None) is (action in TAKES_FILE):
        says = "needs a FILE" if file is None else f"takes no FILE (got {file}); name it with --db"
        raise click.UsageError(f"ptxtune db {action} {says}.")
    if action == "check":
        context.exit(_check(db, as_json))
    document = _done(action, file, all_trials, force, db)
    if as_json:
        say_json(document)
    else:
        say(
            "\n".join(
                f"{name.replace('_', ' ')}: {_text(value)}" for name, value in document.items()
            )
        )


def _done(
    action: str, file: Path | None, all_trials: bool, force: bool, db: str | None
) -> dict[str, Any]:
    if file is None:
        return _upgrade(db)
    if action == "export":
        check_outputs([file], replace=force)
        with open_for_reading(db) as database:
            return _export(database, file, all_trials, force)
    content = read_trials(file)  # first: a bad file must not even create a database
    with open_database(db) as database:
        done = import_trials(database, content, str(file))
    return {
        "file": str(file),
        "seeds_added": done.added,
        "seeds_known": done.known,
        "trials_left_out": done.left_out,
        "devices": sorted({item.device.name for item in content.environments}),
    }


def _upgrade(db: str | None) -> dict[str, Any]:
    with open_for_reading(db) as database:  # refuses a name with nothing behind it
        if database.missing:
            raise StoreError(
                f"database {database.label} does not exist yet, so there is nothing to upgrade; "
                f"ptxtune tune and ptxtune db import make a new one."
            )
    with open_database(db) as database:
        return {"database": database.label, "schema": known_revisions()[-1]}


def _check(db: str | None, as_json: bool) -> int:
    """Prints every finding; the exit code."""
    with open_for_reading(db) as database:
        found = check_database(database)
        label = database.label
    if as_json:
        say_json({"database": label, "ok": not found, "findings": [asdict(item) for item in found]})
    elif found:
        rows = (
            (item.table, MISSING if item.row is None else str(item.row), item.why) for item in found
        )
        say(Table(FINDINGS, tuple(rows)).to_text())
        note(f"{counted(len(found), 'fault')} in database {label}.")
    else:
        say(f"database {label}: every row can be read.")
    return 1 if found else 0


def _export(database: Database, file: Path, all_trials: bool, force: bool) -> dict[str, Any]:
    content = shared_trials(database) if all_trials else shared_winners(database)
    left_out = {kind: count for kind, count in unshared(database).items() if count}
    if not content.trials:
        what = ", ".join(f"{count} {kind}" for kind, count in left_out.items()) or "nothing"
        raise StoreError(
            f"database {database.label} holds nothing measured to export, only {what}; {file} was "
            f"not written. Run ptxtune tune where the GPU is: predictions can be made anywhere."
        )
    write_trials(file, content, replace=force)
    return {
        "file": str(file),
        "trials": len(content.trials),
        "winners": sum(trial.won for trial in content.trials),
        "devices": sorted({item.device.name for item in content.environments}),
        "left_out": left_out,
    }


def _text(value: Any) -> str:
    if isinstance(value, dict):
        value = [f"{count} {kind}" for kind, count in value.items()]
    return ", ".join(value) or "none" if isinstance(value, list) else str(value)
