"""Evaluator: what runs inside the GPU worker process, and the messages that cross its pipe."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol as TypingProtocol

from db.records import DeviceRecord, Protocol
from ptxgen.config import KernelConfig
from ptxgen.dequantize.rule import DEQUANTIZED
from ptxgen.outcome import Outcome, Resources
from ptxgen.problem import Problem
from ptxgen.source import LaunchPlan

PTXTUNE, CUBLAS = "ptxtune", "cublas"
"""Names of contenders in the database; the third one is ptxgen.dequantize.rule.DEQUANTIZED."""


class Effort(StrEnum):
    """How long one candidate is timed."""

    CHECK = "check"  # not at all: an OK has no time, and is no trial
    SCREEN = "screen"  # about 20 ms of GPU time
    FULL = "full"  # about 100 ms


@dataclass(frozen=True, slots=True)
class Candidate:
    """A compiled kernel that is ready to be run.

    cubin_path names the file in the compile cache; the worker loads it itself.
    """

    config: KernelConfig
    plan: LaunchPlan
    entry: str
    cubin_path: str
    resources: Resources
    source_digest: str


@dataclass(frozen=True, slots=True)
class Dequantizer:
    """A problem's compiled dequantize kernel; with torch's matmul it is a contender, no candidate.

    It has no config and never becomes a winner. The attributes are those of a candidate.
    """

    plan: LaunchPlan
    entry: str
    cubin_path: str
    resources: Resources
    source_digest: str


Contender = Candidate | Dequantizer | None
"""Who can be timed: one of ours, dequantize + matmul, or None: the cuBLAS FP16/BF16 baseline."""


def config_of(contender: Contender) -> KernelConfig | None:
    """A candidate's config; None for the baselines."""
    return contender.config if isinstance(contender, Candidate) else None


def name_of(contender: Contender) -> str:
    """What the database calls a contender."""
    if contender is None:
        return CUBLAS
    return PTXTUNE if isinstance(contender, Candidate) else DEQUANTIZED


@dataclass(frozen=True, slots=True)
class EvaluateRequest:
    """Check a contender, then time it."""

    problem: Problem
    m: int
    protocol: Protocol
    candidate: Contender
    effort: Effort = Effort.SCREEN
    stop_above_us: float | None = None
    """Stop early, with what was measured so far, once clearly slower than this."""


@dataclass(frozen=True, slots=True)
class FinalsRequest:
    """Time several checked contenders in turns in one window."""

    problem: Problem
    m: int
    protocol: Protocol
    candidates: tuple[Contender, ...] = field(default=())
    rounds: int = 11


class Evaluator(TypingProtocol):
    """Lives in the worker process. Any exception it raises is sent to the parent as a CRASH
    (sticky DriverError) or LAUNCH_ERROR outcome; it may also hang or die."""

    def device(self) -> DeviceRecord:
        """The device with its ceilings, measured once a worker where they are not passed in."""
        ...

    def driver_version(self) -> str:
        """The CUDA driver's version, such as "580.159.03"."""
        ...

    def evaluate(self, request: EvaluateRequest) -> Outcome:
        """Check, then time one candidate; Effort.CHECK: only check it."""
        ...

    def finals(self, request: FinalsRequest) -> list[Outcome]:
        """Outcomes in the order of request.candidates, timed interleaved."""
        ...
