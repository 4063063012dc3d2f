"""What is compared and how it ended: cases, entries and results, as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from db.records import Protocol
from ptxgen.outcome import Outcome
from ptxgen.problem import Problem
from search.bench.registry import Contender


class Verdict(StrEnum):
    """How an entry ended. A closed set; every entry of every case has exactly one."""

    OK = "ok"
    NOT_INSTALLED = "not_installed"
    UNSUPPORTED = "unsupported"  # this problem or batch is not for it
    FAILED = "failed"  # an error that its process outlived
    CRASHED = "crashed"  # a lost CUDA context or a dead process
    HUNG = "hung"  # killed at the timeout
    WRONG = "wrong"  # NaN, or too far from the reference
    NOISY = "noisy"  # no stable time, or faster than physics


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the comparison: all entries of a case are timed in turns in one window.

    Attributes:
        problem: what is computed.
        m: batch size.
        floor_us: what memory and tensor cores sustain, see search.model; 0 where it is not known.
        least_us: no launch is shorter than this; 0 where it is not known.
    """

    problem: Problem
    m: int
    floor_us: float
    least_us: float = 0.0


@dataclass(frozen=True, slots=True)
class Entry:
    """A contender in one protocol.

    Attributes:
        contender: who.
        protocol: plain for everybody, chained for ours alone.
        options: plain data for its adapter; for ours "config", "cache_root" and "chained".
        source: where our config comes from, such as "measured" or "default"; empty for others.
    """

    contender: Contender
    protocol: Protocol = Protocol.PLAIN
    options: dict[str, Any] = field(default_factory=dict)
    source: str = ""

    @property
    def key(self) -> str:
        """Unique within a case."""
        return f"{self.contender.name}-{self.protocol.value}"


@dataclass(frozen=True, slots=True)
class Result:
    """How an entry of a case ended.

    Attributes:
        case: what was computed.
        entry: by whom.
        verdict: how it ended.
        reason: in words; empty where the verdict is OK.
        outcome: times, error and evidence; None where it was not timed.
        variant: the fastest of the ways that its package offers; empty where it chooses itself.
    """

    case: Case
    entry: Entry
    verdict: Verdict
    reason: str = ""
    outcome: Outcome | None = None
    variant: str = ""
