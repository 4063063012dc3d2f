"""How checks without a GPU are told, in words and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ptxgen.cpucheck.inspect import Inspection
from ptxgen.cpucheck.prove import Verdict
from reports.table import Column, Table

COLUMNS = (
    Column("problem", numeric=False),
    Column("M"),
    Column("arch", numeric=False),
    Column("family", numeric=False),
    Column("schedules"),
    Column("instructions"),
    Column("relative error"),
    Column("SASS", numeric=False),
    Column("proof", numeric=False),
    Column("verdict", numeric=False),
)


def check_table(found: Sequence[Inspection]) -> str:
    """A row for each check, and the count of those that failed."""
    failed = sum(not item.ok for item in found)
    seconds = sum(item.result.seconds for item in found)
    ending = f"{len(found)} checked in {seconds:.1f} s, {failed} failed"
    return f"{Table(COLUMNS, tuple(map(_cells, found))).to_text()}\n\n{ending}"


def failure_text(item: Inspection) -> str:
    """Every failure of one check, a line each."""
    lines = [str(failure) for failure in item.result.failures]
    lines += [] if item.sass is None else list(item.sass.failures)
    lines += [f"bank conflicts: {report}" for report in item.conflicts]
    if item.proof is not None and item.proof.verdict is not Verdict.PROVED:
        lines.append(f"proof: {item.proof.verdict}: {item.proof.message}")
    return "\n".join(f"  {line}" for line in lines)


def check_document(found: Sequence[Inspection]) -> dict[str, Any]:
    """All checks, JSON-friendly."""
    return {
        "ok": all(item.ok for item in found),
        "checks": [
            {
                **item.result.to_dict(),
                "ok": item.ok,
                "registers": item.registers,
                "spills": item.spills,
                "sass": item.sass.to_dict() if item.sass else None,
                "bank_conflicts": [str(report) for report in item.conflicts],
                "proof": asdict(item.proof) if item.proof else None,
                "note": item.note,
            }
            for item in found
        ],
    }


def _cells(item: Inspection) -> tuple[str, ...]:
    case, result = item.result.case, item.result
    gated = "-" if item.sass is None else "ok" if item.sass.ok and not item.conflicts else "failed"
    sass = "spills" if item.spills else gated
    return (
        case.problem.key(),
        str(case.m),
        case.arch.name,
        case.config.family,
        str(len(result.schedules)),
        str(result.steps),
        f"{result.rel_err:.2e}",
        sass,
        item.proof.verdict.value if item.proof else "-",
        "ok" if item.ok else "FAILED",
    )
