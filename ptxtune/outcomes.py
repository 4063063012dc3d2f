"""How the outcome of one trial is told, in words and as JSON."""

from __future__ import annotations

from typing import Any

from ptxgen.config import KernelConfig
from ptxgen.outcome import Outcome
from ptxgen.problem import Problem
from reports.conditions import CONDITION_COLUMNS, condition_cells
from reports.words import share_text, time_text


def outcome_text(outcome: Outcome) -> str:
    """Status and reason, time, error and resources, a line each."""
    lines = [outcome.status.value + (f": {outcome.message}" if outcome.message else "")]
    if outcome.time_us is not None:
        floor = outcome.floor_us or None
        share = share_text(floor / outcome.time_us if floor else None)
        spread = "-" if outcome.spread is None else f"{outcome.spread:.1%}"
        lines.append(f"time {time_text(outcome.time_us)} us, spread {spread}, {share} of the floor")
    if outcome.evidence is not None:
        titles = (column.title for column in CONDITION_COLUMNS)
        cells = condition_cells(outcome.evidence)
        lines.append(", ".join(f"{name} {cell}" for name, cell in zip(titles, cells, strict=True)))
    if outcome.rel_err is not None:
        lines.append(f"relative error {outcome.rel_err:.2e}")
    if outcome.resources is not None:
        found = outcome.resources
        lines.append(
            f"{found.registers} registers, {found.spill_bytes} bytes spilled, "
            f"{found.smem_bytes} bytes of shared memory"
        )
    return "\n".join(lines)


def outcome_document(
    problem: Problem, m: int, protocol: str, config: KernelConfig | None, outcome: Outcome
) -> dict[str, Any]:
    """An outcome, JSON-friendly; config None is the built-in default."""
    found = outcome.resources
    return {
        "problem": problem.to_dict(),
        "m": m,
        "protocol": protocol,
        "config": config.to_dict() if config else None,
        "status": outcome.status.value,
        "message": outcome.message,
        "time_us": outcome.time_us,
        "spread": outcome.spread,
        "rel_err": outcome.rel_err,
        "floor_us": outcome.floor_us,
        "clock_mhz": outcome.clock_mhz,
        "evidence": outcome.evidence.to_dict() if outcome.evidence else None,
        "registers": found.registers if found else None,
        "spill_bytes": found.spill_bytes if found else None,
        "smem_bytes": found.smem_bytes if found else None,
    }
