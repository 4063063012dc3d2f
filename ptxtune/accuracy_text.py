"""How the accuracy table is told, in words and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ptxgen.problem import Problem
from reports.table import Column, Table
from search.accuracy import BATCHES, RATIOS, Accuracy


def accuracy_text(problem: Problem, rows: Sequence[Accuracy], provenance: Mapping[str, str]) -> str:
    """Relative errors by dtype, zero points and spread, a column a batch; then the verdict."""
    columns = (
        Column("dtype", numeric=False),
        Column("zero points", numeric=False),
        Column("spread"),
        *(Column(f"M {m}") for m in BATCHES),
    )
    found = {(row.dtype, row.zero, row.ratio, row.m): row for row in rows}
    kinds = dict.fromkeys((row.dtype, row.zero) for row in rows)
    lines = tuple(
        (*kind, f"{ratio:g}", *(f"{found[(*kind, ratio, m)].rel_err:.1e}" for m in BATCHES))
        for kind in kinds
        for ratio in RATIOS
    )
    head = (
        f"N = {problem.n}, K = {problem.k}, groups of {problem.group_size}, built-in kernels. The "
        "first group of every row has scales that are `spread` times those of the others or half "
        "of that, and activations are 0 there. In the table: ||y - exact|| / ||exact||, in FP64."
    )
    worst = max(rows, key=lambda row: row.of_bound)
    end = (
        f"The largest error of an output is {worst.of_bound:.2f} of its bound (docs/trust.md): "
        f"{worst.dtype}, zero points {worst.zero}, spread {worst.ratio:g}, M = {worst.m}, "
        f"{worst.family}."
    )
    failed = [row for row in rows if not row.passed]
    verdict = f"{len(failed)} of {len(rows)} FAILED." if failed else "All are within it."
    told = ", ".join(f"{name} {value}" for name, value in provenance.items() if value)
    return "\n\n".join((told, head, Table(columns, lines).to_text(), f"{end} {verdict}"))


def accuracy_document(
    problem: Problem, rows: Sequence[Accuracy], provenance: Mapping[str, str]
) -> dict[str, Any]:
    """The same, JSON-friendly, with every launch."""
    return {
        "passed": all(row.passed for row in rows),
        **provenance,
        "n": problem.n,
        "k": problem.k,
        "group": problem.group_size,
        "rows": [{**asdict(row), "passed": row.passed} for row in rows],
    }
