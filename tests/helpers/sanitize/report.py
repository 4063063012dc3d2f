"""What compute-sanitizer's text says: findings, each with the kernels that it names."""

from __future__ import annotations

import re
from dataclasses import dataclass

PREFIX = "========="
_NOT_A_FINDING = re.compile(
    r"COMPUTE-SANITIZER|(ERROR|RACECHECK|LEAK) SUMMARY|(Error: )?(process|target application) ",
    re.IGNORECASE,
)
_SUMMARY = re.compile(r"(ERROR|RACECHECK) SUMMARY: (\d+)")


@dataclass(frozen=True, slots=True)
class ToolReport:
    """One tool's log.

    Attributes:
        findings: each a paragraph of lines without the prefix.
        complete: the tool came to its summary.
        told: how many findings the summary counts.
    """

    findings: tuple[str, ...]
    complete: bool
    told: int

    def about(self, entry: str) -> tuple[str, ...]:
        """The findings that name a kernel."""
        return tuple(text for text in self.findings if entry in text)

    def elsewhere(self, entries: tuple[str, ...]) -> tuple[str, ...]:
        """The findings that name none of the kernels."""
        return tuple(text for text in self.findings if not any(name in text for name in entries))


def read_report(log: str) -> ToolReport:
    """Reads a log: a finding starts unindented, and its details are indented below."""
    findings: list[list[str]] = []
    told, complete = 0, False
    for line in log.splitlines():
        if not line.startswith(PREFIX):
            continue
        text = line[len(PREFIX) :].removeprefix(" ").rstrip()
        if found := _SUMMARY.match(text):
            told, complete = told + int(found[2]), True
        if not text or _NOT_A_FINDING.match(text):
            continue
        # Racecheck goes on unindented: "and Read access at ..." belongs to the line before.
        if findings and (text[0].isspace() or text.startswith("and ")):
            findings[-1].append(text)
        else:
            findings.append([text])
    return ToolReport(tuple("\n".join(lines) for lines in findings), complete, told)
