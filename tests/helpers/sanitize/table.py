"""The table of make sanitize, kind x tool, and the findings below it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from reports.table import Column, Table
from sanitize.child import FAILURES
from sanitize.prepare import Job, output_fault
from sanitize.report import ToolReport, read_report
from sanitize.tool import ToolRun

PLAIN = "no tool"

SHOWN = 5
"""Findings of a tool that are printed whole; its log has all."""

VARIANTS = """\
* {tool} ran a variant of these kernels, not what is shipped: each lane of a warp releases a slot of
the ring for itself. As shipped, one lane does after a __syncwarp; {tool} does not follow that step
and calls the other lanes' reads races, so it says nothing about it (ptxtune check --cpu checks it).
The variants' sources are in {folder}."""


@dataclass(frozen=True, slots=True)
class ToolColumn:
    """What one tool said.

    Attributes:
        tool: its name.
        run: how it ended.
        report: its log.
        failures: entry to what the driver said, or to what is wrong with the output.
        elsewhere: findings that name no kernel of ours.
        variants: entries of kernels that it ran a variant of.
        folder: with what it ran.
    """

    tool: str
    run: ToolRun
    report: ToolReport
    failures: dict[str, str]
    elsewhere: tuple[str, ...]
    variants: frozenset[str]
    folder: Path

    @property
    def complaint(self) -> str:
        """Why the column counts for nothing; empty where the tool came to its end."""
        if self.run.ended:
            return f"{self.run.ended}: {self.run.printed or self.run.log[-500:]}"
        if not self.report.complete:
            return f"wrote no summary: {self.run.printed or self.run.log[-500:]}"
        return ""

    @property
    def clean(self) -> bool:
        """It came to its end, found nothing, and all outputs are right."""
        found = self.report.findings or self.report.told or self.failures
        return not found and not self.complaint

    def cell(self, job: Job) -> str:
        """Findings about a kind, whether it was a variant, and whether its output is right."""
        if self.complaint:
            return "-"
        count = f"{len(self.report.about(job.entry))}{'*' if job.entry in self.variants else ''}"
        return f"{count}, failed" if job.entry in self.failures else count

    @property
    def note(self) -> str:
        """What a star at its counts stands for; empty where there is none."""
        if self.complaint or not self.variants:
            return ""
        return VARIANTS.format(tool=self.tool, folder=self.folder)


def column_of(tool: str, run: ToolRun, jobs: Sequence[Job], folder: Path) -> ToolColumn:
    """The column of a tool that has run; reads what the child left in the folder."""
    report = ToolReport((), True, 0) if tool == PLAIN else read_report(run.log)
    path = folder / FAILURES
    lines = path.read_text().splitlines() if path.exists() else []
    failures = {item["entry"]: item["message"] for item in map(json.loads, lines)}
    for job in jobs:
        if job.entry not in failures and (fault := output_fault(job, folder)):
            failures[job.entry] = fault
    entries = tuple(job.entry for job in jobs)
    elsewhere = report.elsewhere(entries)
    variants = frozenset(job.entry for job in jobs if job.variant)
    return ToolColumn(tool, run, report, failures, elsewhere, variants, folder)


def sanitize_table(jobs: Sequence[Job], columns: Sequence[ToolColumn]) -> str:
    """A row a kind with the findings of each tool, what ran as a variant, findings, failures."""
    heads = (Column("kind", numeric=False), *(Column(column.tool) for column in columns))
    rows = [(job.name, *(column.cell(job) for column in columns)) for job in jobs]
    if any(column.elsewhere for column in columns):
        rows.append(("no kernel named", *(str(len(column.elsewhere)) for column in columns)))
    parts = [Table(heads, tuple(rows)).to_text()]
    parts += [column.note for column in columns if column.note]
    names = {job.entry: job.name for job in jobs}
    for column in columns:
        if column.complaint:
            parts.append(f"{column.tool} {column.complaint}")
            continue
        parts += [f"{column.tool}: {text}" for text in column.report.findings[:SHOWN]]
        parts += [f"{column.tool}: {names[key]}: {text}" for key, text in column.failures.items()]
    clean = all(column.clean for column in columns)
    return "\n\n".join([*parts, "All are clean." if clean else "NOT clean."])
