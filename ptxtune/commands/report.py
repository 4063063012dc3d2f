"""ptxtune report: the stored results as an HTML page, Markdown, JSON or rows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import click

from db.export_rows import Row, export_rows
from db.session import Database, open_for_reading
from ptxgen.errors import ConfigError
from ptxgen.output_file import check_outputs, write_file
from ptxtune.models import model_layers
from ptxtune.options import UserPath, db_option, force_option, json_option
from ptxtune.output import note, say, say_json
from ptxtune.pin import checked_pin
from ptxtune.rooflines import rooflines
from ptxtune.selection import layer_names
from ptxtune.target import resolve_target
from reports.collect import collect
from reports.data import ReportData
from reports.document import render_markdown, report_document, sections
from reports.page import render_page
from reports.provenance import pin_text
from reports.rows import write_rows


@click.command("report")
@click.option("--html", "html_file", type=UserPath(), help="Write the page here.")
@click.option("--markdown", "markdown_file", type=UserPath(), help="Markdown file.")
@click.option("--json-file", type=UserPath(), help="JSON file.")
@click.option(
    "--rows",
    "rows_folder",
    type=UserPath(),
    help="Write DIR/<device>/*.jsonl, one line a contender, problem, M and protocol.",
)
@click.option("--model", help="Name the layers after this model, and report no others.")
@click.option("--tp", type=int, default=1, show_default=True, help="Tensor-parallel size.")
@click.option("--gpu", help="Report this GPU alone (default: all that are stored).")
@force_option
@db_option
@json_option
def command(
    *,
    html_file: Path | None,
    markdown_file: Path | None,
    json_file: Path | None,
    rows_folder: Path | None,
    model: str | None,
    tp: int,
    gpu: str | None,
    force: bool,
    db: str | None,
    as_json: bool,
) -> None:
    """Write the stored results as an HTML page, Markdown or JSON.

    Without a file, the summary and the winners are printed. A file that is there already is kept,
    and the command refused, unless --force is given.

    \b
    Example:
      ptxtune report --html report.html
      ptxtune report --model llama-3.1-8b --markdown report.md --rows reports/results
    """
    check_outputs((html_file, markdown_file, json_file), replace=force)
    with open_for_reading(db) as database:
        data = _collected(database, model, tp, gpu)
        files = []
        if html_file is not None:
            files.append(write_file(html_file, render_page(data), replace=force))
        if markdown_file is not None:
            files.append(write_file(markdown_file, render_markdown(data), replace=force))
        if json_file is not None:
            document = json.dumps(report_document(data), indent=2) + "\n"
            files.append(write_file(json_file, document, replace=force))
        if rows_folder is not None:
            files += write_rows(rows_folder, _rows(database, data), replace=force)
    for file in files:
        note(f"wrote {file}")
    if as_json:
        say_json(report_document(data))
    elif not files:
        for name, part in data.gpus().items():
            say(f"{name}\n")
            for title, table in sections(part).items():
                if table.rows and title != "Trials by outcome":
                    say(f"{title}\n{table.to_text()}\n")
        say(f"Pinned config: {pin_text(data)}")
    try:
        checked_pin()
    except ConfigError as error:
        note(f"warning: {error}")


def _collected(database: Database, model: str | None, tp: int, gpu: str | None) -> ReportData:
    device = resolve_target(gpu).device if gpu else None
    names = layer_names(model_layers(model, tp).layers) if model else {}
    data = collect(database, device=device, sizes=tuple(names), layer_names=names)
    return replace(data, rooflines=rooflines(data.winners))


def _rows(database: Database, data: ReportData) -> list[Row]:
    """Rows of what is reported: predicted ones only where nothing was measured."""
    shown = {(w.device.name, w.problem, w.m, w.protocol.value) for w in data.winners if w.predicted}
    rows: list[Row] = []
    for device in dict.fromkeys(winner.device for winner in data.winners):
        for problem in data.problems():
            rows += export_rows(database, device=device, problem=problem)
            rows += [
                row
                for row in export_rows(database, device=device, problem=problem, predicted=True)
                if (row["device"], problem, row["m"], row["protocol"]) in shown
            ]
    return list({tuple(map(str, row.values())): row for row in rows}.values())
