"""Measured rows as JSON-lines files, one a device and variant: the committed form of results."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from db.export_rows import Row, to_json_lines
from reports.write import write_text


def write_rows(folder: Path, rows: list[Row]) -> list[Path]:
    """Writes <folder>/<device>/<dtype>-<zero>-g<group>.jsonl, each whole or not at all.

    Predicted rows go to files of their own, whose names begin with "predicted-".

    Args:
        folder: such as reports/results.
        rows: from db.export_rows.

    Returns:
        The files, sorted.

    Raises:
        ReportError: a file cannot be written.
    """
    files: dict[Path, list[Row]] = defaultdict(list)
    for row in rows:
        files[folder / device_slug(row["device"]) / _file_name(row)].append(row)
    return [write_text(path, to_json_lines(files[path])) for path in sorted(files)]


def device_slug(name: str) -> str:
    """A folder name, such as nvidia-h200."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "unknown"


def _file_name(row: Row) -> str:
    group = "k" if row["group"] == row["k"] else str(row["group"])
    prefix = "predicted-" if row["predicted"] else ""
    return f"{prefix}{row['dtype']}-{row['zero']}-g{group}.jsonl"
