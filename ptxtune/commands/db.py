"""ptxtune db: takes results to another machine, and other machines' results in as seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from db.imported import import_trials
from db.session import Database, open_database, open_for_reading
from db.sharing import shared_trials, shared_winners
from db.trial_file import read_trials, write_trials
from ptxtune.options import db_option, json_option
from ptxtune.output import say, say_json


@click.command("db")
@click.argument("action", type=click.Choice(("export", "import")))
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--all", "all_trials", is_flag=True, help="Export every trial, not the winners only.")
@db_option
@json_option
def command(action: str, file: Path, all_trials: bool, db: str | None, as_json: bool) -> None:
    """Export stored results as JSON lines, or import another machine's.

    Every line carries its problem, config and times; the first one says on which device, driver,
    NVRTC and commit they were measured. Imported configs are seeds: the next tuning run tries them
    first, and no answer calls them measured before that. A name that ends in .gz is compressed.

    \b
    Example:
      ptxtune db export winners.jsonl
      ptxtune db import winners.jsonl
      ptxtune db export trials.jsonl.gz --all
    """
    if all_trials and action == "import":
        raise click.UsageError("--all belongs to export; an import takes the fastest trials.")
    if action == "export":
        with open_for_reading(db) as database:
            document = _export(database, file, all_trials)
    else:
        content = read_trials(file)  # first: a bad file must not even create a database
        with open_database(db) as database:
            done = import_trials(database, content, str(file))
        document = {
            "file": str(file),
            "seeds_added": done.added,
            "seeds_known": done.known,
            "trials_left_out": done.left_out,
            "devices": sorted({item.device.name for item in content.environments}),
        }
    if as_json:
        say_json(document)
    else:
        say(
            "\n".join(
                f"{name.replace('_', ' ')}: {_text(value)}" for name, value in document.items()
            )
        )


def _export(database: Database, file: Path, all_trials: bool) -> dict[str, Any]:
    content = shared_trials(database) if all_trials else shared_winners(database)
    write_trials(file, content)
    return {
        "file": str(file),
        "trials": len(content.trials),
        "winners": sum(trial.won for trial in content.trials),
        "devices": sorted({item.device.name for item in content.environments}),
    }


def _text(value: Any) -> str:
    return ", ".join(value) or "none" if isinstance(value, list) else str(value)
