"""How the outcome of a self-check is told, in words and as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from reports.table import Column, Table
from search.gates import Gate
from search.soak import SoakReport

GATE_COLUMNS = (
    Column("what", numeric=False),
    Column("value"),
    Column("limit"),
    Column("verdict", numeric=False),
    Column("of", numeric=False),
)
FAULT_COLUMNS = (Column("fault", numeric=False), Column("injected"))
AUDIT_COLUMNS = (Column("trials", numeric=False), Column("count"), Column("first", numeric=False))


def gates_text(gates: Sequence[Gate]) -> str:
    """A table of the gates, and the verdict."""
    rows = tuple(
        (
            gate.name,
            f"{gate.value:.2%}",
            "-" if gate.limit is None else f"{gate.limit:.0%}",
            _verdict(gate),
            gate.detail,
        )
        for gate in gates
    )
    failed = sum(not gate.passed for gate in gates)
    end = f"{failed} of the limits broken." if failed else "All limits are kept."
    return f"{Table(GATE_COLUMNS, rows).to_text()}\n\n{end if gates else 'Nothing was compared.'}"


def gates_document(gates: Sequence[Gate]) -> dict[str, Any]:
    """The gates, JSON-friendly; an infinite value is null."""
    return {
        "passed": bool(gates) and all(gate.passed for gate in gates),
        "gates": [
            {
                "name": gate.name,
                "value": gate.value if math.isfinite(gate.value) else None,
                "limit": gate.limit,
                "passed": gate.passed,
                "detail": gate.detail,
            }
            for gate in gates
        ],
    }


def soak_text(report: SoakReport, wanted: int) -> str:
    """Tables of the injected faults and of the audit, and the verdict."""
    faults = tuple((name, str(count)) for name, count in _by_count(report))
    audit = tuple(
        (name, str(len(examples)), examples[0] if examples else "")
        for name, examples in _findings(report)
    )
    trials = ", ".join(f"{count} {status.value}" for status, count in _trials(report))
    end = "Nothing is wrong." if report.passed else "The audit FAILED."
    if report.total < wanted:
        end += f" But only {report.total} of {wanted} faults were injected."
    return "\n\n".join(
        [
            Table(FAULT_COLUMNS, faults).to_text(),
            f"{report.total} faults in {report.runs} runs of the tuner, {report.seconds:.0f} s.\n"
            f"Trials: {trials}.",
            Table(AUDIT_COLUMNS, audit).to_text(),
            end,
        ]
    )


def soak_document(report: SoakReport, wanted: int) -> dict[str, Any]:
    """The soak, JSON-friendly."""
    return {
        "passed": report.passed and report.total >= wanted,
        "faults": dict(_by_count(report)),
        "total": report.total,
        "runs": report.runs,
        "seconds": round(report.seconds, 1),
        "trials": {status.value: count for status, count in _trials(report)},
        "audit": {name: len(examples) for name, examples in _findings(report)},
        "examples": {name: examples[:5] for name, examples in _findings(report) if examples},
    }


def _verdict(gate: Gate) -> str:
    if gate.limit is None:
        return ""
    return "ok" if gate.passed else "FAILED"


def _by_count(report: SoakReport) -> list[tuple[str, int]]:
    return sorted(report.faults.items(), key=lambda item: (-item[1], item[0]))


def _trials(report: SoakReport) -> list[tuple[Any, int]]:
    return sorted(report.audit.trials.items(), key=lambda item: -item[1])


def _findings(report: SoakReport) -> list[tuple[str, list[str]]]:
    stray = [f"pid {pid}" for pid in report.stray]
    return [*report.audit.problems.items(), ("stray processes", stray)]
