"""How the outcome of a soak of random shapes is told, in words and as JSON."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ptxgen.outcome import Status
from reports.table import Column, Table
from search.shape_report import Counts, ShapeFailure, ShapeReport

COLUMNS = (
    Column("family", numeric=False),
    Column("configs"),
    Column("checks"),
    Column("ended as", numeric=False),
    Column("refused by the compiler", numeric=False),
)
SHOWN = 20
"""Failures that are told in words; the JSON document has all."""

MESSAGE_CHARACTERS = 300


def shapes_text(report: ShapeReport) -> str:
    """A table of the families, every failure with its command line, and the verdict."""
    rows = tuple(
        (
            family,
            str(report.configs.get(family, 0)),
            str(sum(_of(report.checks, family).values())),
            _text(_of(report.checks, family)),
            _text(_of(report.refused, family)) or "-",
        )
        for family in _families(report)
    )
    failures = [_failure_text(failure) for failure in report.failures[:SHOWN]]
    if len(report.failures) > SHOWN:
        failures.append(f"and {len(report.failures) - SHOWN} more, which --json prints")
    parts = [Table(COLUMNS, rows).to_text() if rows else "", _rate_text(report), *failures]
    return "\n\n".join([*(part for part in parts if part), _end(report)])


def shapes_document(report: ShapeReport) -> dict[str, Any]:
    """The soak, JSON-friendly."""
    configs = sum(report.configs.values())
    return {
        "passed": report.passed,
        "stopped": report.stopped or None,
        "seed": report.seed,
        "seconds": round(report.seconds, 1),
        "problems": report.problems,
        "configs": configs,
        "checks": report.total,
        "configs_per_s": round(configs / report.seconds, 2),
        "checks_per_s": round(report.total / report.seconds, 2),
        "restarts": report.restarts,
        "families": {
            family: {
                "configs": report.configs.get(family, 0),
                "checks": _by_name(_of(report.checks, family)),
                "refused": _by_name(_of(report.refused, family)),
            }
            for family in _families(report)
        },
        "failures": [_failure_document(failure) for failure in report.failures],
    }


def _failure_text(failure: ShapeFailure) -> str:
    message = " ".join(failure.message.split())[:MESSAGE_CHARACTERS]
    return (
        f"{failure.status.value}: {failure.problem.key()} M={failure.m} {failure.config.key()}\n"
        f"  {message}\n  {failure.reproduce}"
    )


def _failure_document(failure: ShapeFailure) -> dict[str, Any]:
    return {
        "problem": failure.problem.to_dict(),
        "m": failure.m,
        "config": failure.config.to_dict(),
        "status": failure.status.value,
        "message": failure.message,
        "reproduce": failure.reproduce,
    }


def _rate_text(report: ShapeReport) -> str:
    configs = sum(report.configs.values())
    return (
        f"{report.total} checks ({report.total / report.seconds:.1f}/s) of {configs} configs "
        f"({configs / report.seconds:.1f}/s) on {report.problems} problems in "
        f"{report.seconds:.0f} s, seed {report.seed}; the GPU worker was restarted "
        f"{report.restarts} times."
    )


def _end(report: ShapeReport) -> str:
    """The verdict."""
    found = len(report.failures)
    if found:
        verdict = f"{found} FAILED; the command below each runs it alone, on the same data."
    else:
        verdict = "Nothing is wrong." if report.total else "Nothing was checked."
    if report.stopped:
        return f"{verdict} But the soak did not come to its end: {report.stopped}"
    return verdict


def _families(report: ShapeReport) -> list[str]:
    return sorted({*report.configs, *(family for family, _ in [*report.checks, *report.refused])})


def _of(counts: Counts, family: str) -> Counter[Status]:
    return Counter({status: count for (name, status), count in counts.items() if name == family})


def _by_name(counts: Counter[Status]) -> dict[str, int]:
    return {status.value: count for status, count in counts.most_common()}


def _text(counts: Counter[Status]) -> str:
    return ", ".join(f"{count} {name}" for name, count in _by_name(counts).items())
