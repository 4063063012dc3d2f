"""How the end of a tuning run is told: the winners, then what failed and how to repeat it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reports.table import Column, Table
from reports.words import (
    MISSING,
    config_text,
    ratio_text,
    share_text,
    size_text,
    time_text,
    variant_text,
)
from search.events import TaskEnded
from search.job import TuneSummary

COLUMNS = (
    Column("layer", "N x K", numeric=False),
    Column("variant", numeric=False),
    Column("M"),
    Column("protocol", numeric=False),
    Column("time", "us"),
    Column("default", "us"),
    Column("cuBLAS", "us"),
    Column("over cuBLAS"),
    Column("of floor"),
    Column("source", numeric=False),
    Column("config", numeric=False),
)


def summary_text(summary: TuneSummary, layer_names: Mapping[tuple[int, int], str]) -> str:
    """The winner table and the failures, for the console."""
    source = "predicted" if summary.predicted else "measured"
    rows = tuple(_row(task, source, layer_names) for task in summary.tasks)
    parts = [Table(COLUMNS, rows).to_text()] if rows else ["No search was finished."]
    parts += [
        f"{entry.count} {entry.status.value}, such as: {entry.message}\n  {entry.reproduce}"
        for entry in summary.ledger
    ]
    if summary.predicted:
        parts.append(
            f"Predicted for {summary.device.name} by the roofline model; no GPU ran these kernels."
        )
    if summary.interrupted:
        parts.append("Interrupted; all results are kept, and the same command goes on from here.")
    return "\n\n".join(parts)


def summary_document(summary: TuneSummary) -> dict[str, Any]:
    """The run, JSON-friendly; times in microseconds."""
    return {
        "run": summary.run_id,
        "device": summary.device.name,
        "predicted": summary.predicted,
        "interrupted": summary.interrupted,
        "restarts": summary.restarts,
        "results": [_result(task) for task in summary.tasks],
        "failures": [
            {
                "status": entry.status.value,
                "count": entry.count,
                "message": entry.message,
                "reproduce": entry.reproduce,
            }
            for entry in summary.ledger
        ],
    }


def _result(ended: TaskEnded) -> dict[str, Any]:
    return {
        "problem": ended.task.problem.to_dict(),
        "m": ended.task.m,
        "protocol": ended.task.protocol.value,
        "config": ended.config.to_dict() if ended.config else None,
        "time_us": ended.time_us,
        "default_us": ended.default_us,
        "cublas_us": ended.cublas_us,
        "floor_us": ended.floor_us or None,
        "message": ended.message,
    }


def _row(
    ended: TaskEnded, source: str, layer_names: Mapping[tuple[int, int], str]
) -> tuple[str, ...]:
    problem = ended.task.problem
    name = layer_names.get((problem.n, problem.k))
    return (
        f"{name}, {size_text(problem)}" if name else size_text(problem),
        variant_text(problem),
        str(ended.task.m),
        ended.task.protocol.value,
        time_text(ended.time_us),
        time_text(ended.default_us),
        time_text(ended.cublas_us),
        ratio_text(_over(ended.cublas_us, ended.time_us)),
        share_text(_over(ended.floor_us or None, ended.time_us)),
        source if ended.config else MISSING,
        config_text(ended.config) if ended.config else ended.message,
    )


def _over(value: float | None, time_us: float | None) -> float | None:
    return value / time_us if value and time_us else None
