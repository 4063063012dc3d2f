"""Measured rows as JSON-lines files, one a device and variant: the committed form of results."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from db.export_rows import Row, to_json_lines
from ptxgen.output_file import check_outputs, write_file


def write_rows(folder: Path, rows: list[Row], *, replace: bool = False) -> list[Path]:
    """Writes <folder>/<device>/<dtype>-<zero>-g<group>.jsonl, each whole or not at all.

    Predicted rows go to files of their own, whose names begin with "predicted-".

    Args:
        folder: such as reports/results.
        rows: from db.export_rows.
        replace: whether files that are there already are replaced.

    Returns:
        The files, sorted.

    Raises:
        FileError: a file is in the way, or cannot be written; where it was so before, none is.
    """
    files: dict[Path, list[Row]] = defaultdict(list)
    for row in rows:
        files[folder / device_slug(row["device"]) / _file_name(row)].append(row)
    check_outputs(files, replace=replace)
    return [write_file(path, to_json_lines(files[path]), replace=replace) for path in sorted(files)]


def device_slug(name: str) -> str:
    """A folder name, such as nvidia-h200."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "unknown"


def _file_name(row: Row) -> str:
    group = "k" if row["group"] == row["k"] else str(row["group"])
    prefix = "predicted-" if row["predicted"] else ""
    return f"{prefix}{row['dtype']}-{row['zero']}-g{group}.jsonl"
