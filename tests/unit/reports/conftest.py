"""Hand-written records: four layers, two protocols, three M, with failures and a predicted set."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import ClassVar

import pytest

from db.records import (
    DeviceRecord,
    Protocol,
    RunRecord,
    ToolchainRecord,
    TrialRecord,
    WinnerRecord,
)
from ptxgen.bootstrap import Interval
from ptxgen.config import KernelConfig
from ptxgen.evidence import Evidence, GpuLimits, GpuReading
from ptxgen.outcome import Outcome, Status
from ptxgen.problem import Problem
from ptxgen.proof import Proof
from reports.data import ReportData

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
DEVICE = DeviceRecord(
    "NVIDIA H200 <test>", "9.0", 132, 232448, 62914560, 150 << 30, "GPU-1234", 700, 4480.0, 4100.0,
    634.0, 1.7, True,
)  # fmt: skip
TOOLCHAIN = ToolchainRecord("580.1", "13.5", "0.1.0", "2.13.0", "abc1234")
EVIDENCE = Evidence.of(
    GpuReading(1980, 3201, ("gpu_idle",), 40, 120.0, ()),
    GpuReading(1485, 3201, ("sw_power_cap",), 64, 690.4, (4711, 815)),
    GpuLimits(1980, 700),
    dropped=("the GPU was throttled (hw_slowdown)",),
)
LAYERS = {(6144, 4096): "qkv", (4096, 4096): "o", (28672, 4096): "gate_up", (4096, 14336): "down"}


@dataclass(frozen=True, slots=True)
class ToyConfig(KernelConfig):
    family: ClassVar[str] = "toy"

    block_m: int
    scale_on: str
    weights_first: bool


def floor_us(problem: Problem, m: int) -> float:
    return problem.bytes_moved(m) / 4.48e6


def winner_of(problem: Problem, m: int, protocol: Protocol, trial_id: int) -> WinnerRecord:
    floor = floor_us(problem, m)
    chained = protocol is Protocol.CHAINED
    return WinnerRecord(
        trial_id=trial_id,
        device=DEVICE,
        toolchain=TOOLCHAIN,
        problem=problem,
        m=m,
        protocol=protocol,
        config=ToyConfig(max(8, m), "accumulators", True),
        source_digest="d" * 64,
        time_us=floor + (0.6 if chained else 2.0),
        spread=0.004,
        rel_err=2.7e-4,
        floor_us=floor,
        default_us=floor + 3.0,
        cublas_us=4 * floor * (1 if m <= 16 else 0.5),
        predicted=False,
        measured_at=START,
        ties=(ToyConfig(max(8, m), "accumulators", True), ToyConfig(8, "weights", False)),
        evidence=EVIDENCE,
        proof=Proof(
            11,
            Interval(floor + 2.0, floor + 1.9, floor + 2.1, 11),
            default_us=floor + 3.0,
            over_default=Interval(1.25, 1.125, 1.375, 11),
            over_cublas=Interval(2.5, 2.4, 2.6, 11),
        ),
    )


def trials_of(winner: WinnerRecord) -> list[TrialRecord]:
    """Seven attempts; the fifth is the winner, one is wrong, one crashes, one has no end."""
    ends = [
        Outcome(Status.COMPILE_ERROR, "ptxas said no"),
        Outcome(Status.OK, time_us=winner.time_us * 1.6),
        Outcome(Status.WRONG, "rel_err 0.9"),
        Outcome(Status.OK, time_us=winner.time_us * 1.2),
        Outcome(Status.OK, time_us=winner.time_us),
        Outcome(Status.CRASH, "illegal address"),
        Outcome(Status.STARTED),
    ]
    base = TrialRecord(
        id=winner.trial_id, run_id=1, problem=winner.problem, m=winner.m, protocol=winner.protocol,
        contender="ptxtune", config=winner.config, source_digest="d", outcome=ends[0],
        started_at=START, ended_at=None,
    )  # fmt: skip
    ours = [replace(base, outcome=end) for end in ends]
    cublas = Outcome(Status.OK, time_us=winner.cublas_us, evidence=EVIDENCE)
    return [*ours, replace(base, contender="cublas", config=None, outcome=cublas)]


@pytest.fixture
def measured() -> ReportData:
    problems = [Problem(n, k, 128, dtype) for dtype in ("fp16", "bf16") for n, k in LAYERS]
    winners = [
        winner_of(problem, m, protocol, index * 10)
        for index, (problem, m, protocol) in enumerate(
            (problem, m, protocol)
            for problem in problems
            for m in (1, 16, 256)
            for protocol in Protocol
        )
    ]
    run = RunRecord(1, DEVICE, TOOLCHAIN, START, START + timedelta(minutes=9), {"budget": "quick"})
    trials = tuple(trial for winner in winners for trial in trials_of(winner))
    return ReportData(tuple(winners), trials, (run,), START, LAYERS)


@pytest.fixture
def predicted(measured: ReportData) -> ReportData:
    winners = tuple(
        replace(
            winner,
            predicted=True,
            cublas_us=None,
            spread=None,
            rel_err=None,
            ties=(),
            evidence=None,
            proof=None,
        )
        for winner in measured.winners
    )
    return replace(measured, winners=winners, trials=())


@pytest.fixture
def empty() -> ReportData:
    return ReportData((), (), (), START)
