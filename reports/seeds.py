"""The seeds table: what other machines measured, which a search here tries first."""

from __future__ import annotations

from typing import Any

from db.records import RunRecord, TrialRecord
from reports.data import ReportData
from reports.table import Column, Table
from reports.words import SLOT_COLUMNS, config_text, slot_cells, time_text

COLUMNS = (
    Column("GPU", numeric=False),
    *SLOT_COLUMNS,
    Column("time there", "us"),
    Column("imported from", numeric=False),
    Column("config", numeric=False),
)


def seeds_table(data: ReportData) -> Table:
    """One row an imported trial; its time is another machine's, and no answer serves it."""
    origins = {run.id: origin_text(run) for run in data.runs}
    names = {run.id: run.device.name for run in data.runs}
    rows = (
        (
            names.get(seed.run_id, "unknown"),
            *slot_cells(data.layer(seed.problem), seed.problem, seed.m, seed.protocol),
            time_text(seed.outcome.time_us),
            origins.get(seed.run_id, ""),
            config_text(seed.config) if seed.config else "of another version",
        )
        for seed in data.seeds
    )
    return Table(COLUMNS, tuple(rows))


def origin_text(run: RunRecord) -> str:
    """The file that a run's seeds came from."""
    source: Any = run.settings.get("imported")
    return str(source.get("origin", "")) if isinstance(source, dict) else ""


def seed_document(seed: TrialRecord, run: RunRecord | None) -> dict[str, Any]:
    """A seed, JSON-friendly; its time was measured on the machine that it comes from."""
    return {
        "trial": seed.id,
        "run": seed.run_id,
        "device": run.device.name if run else None,
        "origin": origin_text(run) if run else None,
        "problem": seed.problem.to_dict(),
        "m": seed.m,
        "protocol": seed.protocol.value,
        "time_us": seed.outcome.time_us,
        "config": seed.config.to_dict() if seed.config else None,
    }
