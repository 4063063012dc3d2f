"""How the end of a tuning run is told: the winners, then what failed and how to repeat it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ptxgen import env
from reports.conditions import CONDITION_COLUMNS, condition_cells
from reports.finals import FINALS_COLUMNS, finals_cells
from reports.table import Column, Table
from reports.words import (
    MISSING,
    SLOT_COLUMNS,
    config_text,
    ratio_text,
    share_text,
    size_text,
    slot_cells,
    time_text,
)
from search.events import Task, TaskEnded
from search.job import TuneSummary

COLUMNS = (
    *SLOT_COLUMNS,
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
    parts += [table.to_text() for table in _trust_tables(summary, layer_names) if table.rows]
    parts += [
        f"{entry.count} {entry.status.value}, such as: {entry.message}\n  {entry.reproduce}"
        for entry in summary.ledger
    ]
    pinned = env.pinned_config()
    if pinned:
        parts.append(f"Pinned by {env.PIN.name}, and served before these winners: {pinned}")
    if summary.predicted:
        parts.append(
            f"Predicted for {summary.device.name} by the roofline model; no GPU ran these kernels."
        )
    if any(item.task.batch_invariant for item in summary.tasks):
        parts.append(
            "Batch-invariant: a row's result is the same bits for every M. These winners are kept "
            "beside the ordinary ones; best and export serve them with --batch-invariant."
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
        "pinned": env.pinned_config() or None,
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
        "batch_invariant": ended.task.batch_invariant,
        "config": ended.config.to_dict() if ended.config else None,
        "time_us": ended.time_us,
        "default_us": ended.default_us,
        "cublas_us": ended.cublas_us,
        "dequantized_us": ended.dequantized_us,
        "floor_us": ended.floor_us or None,
        "message": ended.message,
        "ties": [config.to_dict() for config in ended.ties],
        "proof": ended.proof.to_dict() if ended.proof else None,
        "evidence": ended.evidence.to_dict() if ended.evidence else None,
    }


def _row(
    ended: TaskEnded, source: str, layer_names: Mapping[tuple[int, int], str]
) -> tuple[str, ...]:
    return (
        *_slot(ended.task, layer_names),
        time_text(ended.time_us),
        time_text(ended.default_us),
        time_text(ended.cublas_us),
        ratio_text(_over(ended.cublas_us, ended.time_us)),
        share_text(_over(ended.floor_us or None, ended.time_us)),
        source if ended.config else MISSING,
        config_text(ended.config) if ended.config else ended.message,
    )


def _slot(task: Task, layer_names: Mapping[tuple[int, int], str]) -> tuple[str, ...]:
    problem = task.problem
    name = layer_names.get((problem.n, problem.k))
    layer = f"{name}, {size_text(problem)}" if name else size_text(problem)
    return slot_cells(layer, problem, task.m, task.protocol)


def _trust_tables(
    summary: TuneSummary, layer_names: Mapping[tuple[int, int], str]
) -> tuple[Table, Table]:
    """Intervals, ratios and ties of the winners; clocks, throttling and neighbours meanwhile."""
    finals = tuple(
        (*_slot(item.task, layer_names), *finals_cells(item.proof, item.ties, item.config))
        for item in summary.tasks
        if item.proof is not None and item.config is not None
    )
    conditions = tuple(
        (*_slot(item.task, layer_names), *condition_cells(item.evidence))
        for item in summary.tasks
        if item.evidence is not None
    )
    return (
        Table((*SLOT_COLUMNS, *FINALS_COLUMNS), finals),
        Table((*SLOT_COLUMNS, *CONDITION_COLUMNS), conditions),
    )


def _over(value: float | None, time_us: float | None) -> float | None:
    return value / time_us if value and time_us else None
