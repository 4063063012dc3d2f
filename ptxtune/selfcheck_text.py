"""How the outcome of a self-check is told, in words and as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ptxgen.outcome import Status
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
FAULT_COLUMNS = (
    Column("fault", numeric=False),
    Column("injected"),
    Column("trials stored as", numeric=False),
)
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


def soak_text(report: SoakReport) -> str:
    """Tables of the injected faults and of the audit, and the verdict."""
    faults = tuple((name, str(count), _stored(report, name)) for name, count in _by_count(report))
    audit = tuple(
        (name, str(len(examples)), examples[0] if examples else "")
        for name, examples in _findings(report)
    )
    return "\n\n".join(
        [
            Table(FAULT_COLUMNS, faults).to_text(),
            f"{report.total} faults in {report.seconds:.0f} s: {report.lanes} lanes, "
            f"{report.runs} runs of the tuner, {report.workers} workers.\n"
            f"Trials: {_counts(report.audit.trials)}.",
            Table(AUDIT_COLUMNS, audit).to_text(),
            _end(report),
        ]
    )


def soak_document(report: SoakReport) -> dict[str, Any]:
    """The soak, JSON-friendly."""
    stored = report.audit.stored
    return {
        "passed": report.passed,
        "wanted": report.wanted,
        "total": report.total,
        "stopped": report.stopped or None,
        "faults": dict(_by_count(report)),
        "stored": {name: _by_status(stored[name]) for name in sorted(stored)},
        "lanes": report.lanes,
        "runs": report.runs,
        "workers": report.workers,
        "seconds": round(report.seconds, 1),
        "trials": _by_status(report.audit.trials),
        "audit": {name: len(examples) for name, examples in _findings(report)},
        "examples": {name: examples[:5] for name, examples in _findings(report) if examples},
    }


def _end(report: SoakReport) -> str:
    """The verdict."""
    lines = ["Nothing is wrong." if report.clean else "The audit FAILED."]
    if report.stopped:
        lines.append(f"But the soak did not come to its end: {report.stopped}.")
    if report.total < report.wanted:
        lines.append(f"But only {report.total} of {report.wanted} faults were injected.")
    return " ".join(lines)


def _verdict(gate: Gate) -> str:
    if gate.limit is None:
        return ""
    return "ok" if gate.passed else "FAILED"


def _by_count(report: SoakReport) -> list[tuple[str, int]]:
    return sorted(report.faults.items(), key=lambda item: (-item[1], item[0]))


def _stored(report: SoakReport, name: str) -> str:
    """How the trials of a fault's configs ended; empty for what comes from outside."""
    return _counts(report.audit.stored.get(name, {}))


def _counts(counts: Mapping[Status, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in _by_status(counts).items())


def _by_status(counts: Mapping[Status, int]) -> dict[str, int]:
    """By name of the status, most of them first."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0].value))
    return {status.value: count for status, count in ordered}


def _findings(report: SoakReport) -> list[tuple[str, list[str]]]:
    stray = [f"pid {pid}" for pid in report.stray]
    found = [*report.audit.problems.items(), ("stray processes", stray)]
    return [*found, ("lanes that gave up", list(report.errors))] if report.errors else found
