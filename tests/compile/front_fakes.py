"""A GPU worker's evaluator without a GPU: times follow from the config, so results are known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from db.records import DeviceRecord
from ptxgen.outcome import Outcome, Status
from search.evaluator import Candidate, Contender, EvaluateRequest, FinalsRequest

UUID = "GPU-fake-1"
DEVICE = DeviceRecord(
    "NVIDIA H200", "9.0", 132, 232448, 60 << 20, 141 << 30, UUID, 700, 4400.0, 4000.0, 630.0, 1.6,
    True,
)  # fmt: skip
CUBLAS_US = 40.0
DEQUANTIZED_US = 4.5


def known_time_us(contender: Contender) -> float:
    """Few threads are fast here, cuBLAS is slow, and dequantize + matmul beats them all."""
    if contender is None:
        return CUBLAS_US
    if not isinstance(contender, Candidate):
        return DEQUANTIZED_US
    return 5.0 + contender.plan.threads / 1000


class FakeGpu:
    def __init__(self, options: dict[str, Any]) -> None:
        with Path(options["log"]).open("a") as log:
            log.write(json.dumps(options.get("ceilings")) + "\n")

    def device(self) -> DeviceRecord:
        return DEVICE

    def driver_version(self) -> str:
        return "580.95"

    def evaluate(self, request: EvaluateRequest) -> Outcome:
        time_us = known_time_us(request.candidate)
        resources = request.candidate.resources if request.candidate else None
        return Outcome(
            Status.OK, time_us=time_us, spread=0.01, samples_us=(time_us,), rel_err=3e-4,
            resources=resources, floor_us=1.25, clock_mhz=1900,
        )  # fmt: skip

    def finals(self, request: FinalsRequest) -> list[Outcome]:
        return [
            self.evaluate(EvaluateRequest(request.problem, request.m, request.protocol, candidate))
            for candidate in request.candidates
        ]


def create(options: dict[str, Any]) -> FakeGpu:
    return FakeGpu(options)
