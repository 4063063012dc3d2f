"""The report as one JSON document and as Markdown: the same data as the page."""

from __future__ import annotations

from typing import Any

from db.records import WinnerRecord
from ptxgen.outcome import Status
from reports.conditions import conditions_table
from reports.data import ReportData, default_gain, floor_share, speedup
from reports.dequantized import dequantized_table
from reports.failures import failure_table, failures
from reports.finals import finals_table
from reports.provenance import device_title, pin_text, provenance_table
from reports.roofline import roofline_table
from reports.seeds import seed_document, seeds_table
from reports.summary import summarize, summary_table
from reports.table import Column, Table
from reports.winners import source_text, winner_table

SCHEMA_VERSION = 1


def winner_document(winner: WinnerRecord) -> dict[str, Any]:
    """A winner with its ratios, JSON-friendly; times in microseconds."""
    return {
        "problem": winner.problem.to_dict(),
        "m": winner.m,
        "protocol": winner.protocol.value,
        "source": source_text(winner),
        "predicted": winner.predicted,
        "batch_invariant": winner.batch_invariant,
        "time_us": winner.time_us,
        "spread": winner.spread,
        "rel_err": winner.rel_err,
        "floor_us": winner.floor_us,
        "floor_share": floor_share(winner),
        "default_us": winner.default_us,
        "over_default": default_gain(winner),
        "cublas_us": winner.cublas_us,
        "over_cublas": speedup(winner),
        "dequantized_us": winner.dequantized_us,
        "dequantize_first": winner.dequantize_first,
        "config": winner.config.to_dict(),
        "ties": [config.to_dict() for config in winner.ties],
        "proof": winner.proof.to_dict() if winner.proof else None,
        "evidence": winner.evidence.to_dict() if winner.evidence else None,
        "source_digest": winner.source_digest,
        "trial_id": winner.trial_id,
        "device": winner.device.name,
        "driver": winner.toolchain.driver,
        "nvrtc": winner.toolchain.nvrtc,
        "commit": winner.toolchain.commit,
        "measured_at": winner.measured_at.isoformat(),
    }


def report_document(data: ReportData) -> dict[str, Any]:
    """The whole report, JSON-friendly."""
    runs = {run.id: run for run in data.runs}
    return {
        "schema_version": SCHEMA_VERSION,
        "generated_at": data.generated_at.isoformat(),
        "provenance": [
            {"what": what, "value": value} for what, value in provenance_table(data).rows
        ],
        "summary": [
            {
                "device": gpu,
                "variant": row.variant,
                "protocol": row.protocol.value,
                "m": row.m,
                "layers": row.layers,
                "over_cublas": row.speedup,
                "lowest": row.lowest,
                "highest": row.highest,
                "floor_share": row.floor_share,
                "predicted": row.predicted,
            }
            for gpu, part in data.gpus().items()
            for row in summarize(part)
        ],
        "winners": [
            {**winner_document(winner), "roofline": _roofline(data, winner)}
            for winner in data.winners
        ],
        "seeds": [seed_document(seed, runs.get(seed.run_id)) for seed in data.seeds],
        "trials": [
            {"device": gpu, **row}
            for gpu, part in data.gpus().items()
            for row in outcome_counts(part)
        ],
        "failures": failures(data),
        "pinned": data.pinned or None,
    }


def _roofline(data: ReportData, winner: WinnerRecord) -> dict[str, Any] | None:
    found = data.rooflines.get(winner.trial_id)
    return None if found is None else found.to_dict()


def outcome_counts(data: ReportData) -> list[dict[str, Any]]:
    """Trials of each problem by outcome class, baselines left out; only classes that occurred."""
    counts: dict[str, dict[str, int]] = {}
    for trial in data.attempts:
        row = counts.setdefault(trial.problem.key(), {})
        status = trial.outcome.status.value
        row[status] = row.get(status, 0) + 1
    return [{"problem": key, "counts": row} for key, row in counts.items()]


def outcome_table(data: ReportData) -> Table:
    """Trials of each problem by outcome class; one column a class that occurred."""
    rows = outcome_counts(data)
    seen = [status.value for status in Status if any(status.value in r["counts"] for r in rows)]
    columns = (Column("problem", numeric=False), *(Column(name) for name in seen))
    cells = ((row["problem"], *(str(row["counts"].get(name, 0)) for name in seen)) for row in rows)
    return Table(columns, tuple(cells))


def trust_tables(data: ReportData) -> dict[str, Table]:
    """What lets a reader trust the winners, or not: tables by title."""
    return {
        "Faster by dequantize + matmul": dequantized_table(data),
        "Finals": finals_table(data),
        "Conditions": conditions_table(data),
        "Failures": failure_table(data),
    }


def render_markdown(data: ReportData) -> str:
    """The report as Markdown; predicted rows are marked in every table."""
    parts = [f"# W4A16 kernels on {device_title(data)}"]
    predicted = sum(winner.predicted for winner in data.winners)
    if predicted:
        parts.append(
            f"**Predicted, not measured:** {predicted} of {len(data.winners)} winners come from "
            f"the roofline model; no GPU ran them."
        )
    if data.pinned:
        parts.append(f"**Pinned:** {pin_text(data)} goes before every winner below.")
    several = len(data.gpus()) > 1
    for gpu, part in data.gpus().items():
        parts += [f"# {gpu}"] if several else []
        for title, table in sections(part).items():
            if table.rows:
                parts += [f"## {title}", table.to_markdown()]
    return "\n\n".join([*parts, "## Provenance", provenance_table(data).to_markdown()]) + "\n"


def sections(data: ReportData) -> dict[str, Table]:
    """All tables of one GPU model by title; the page has them too, with charts between."""
    return {
        "Speed-up over cuBLAS": summary_table(data),
        "Winners": winner_table(data),
        "Roofline": roofline_table(data),
        **trust_tables(data),
        "Imported seeds, not measured here": seeds_table(data),
        "Trials by outcome": outcome_table(data),
    }
