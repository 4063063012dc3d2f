"""An evaluator that behaves as real faulty kernels do on a GPU, for a soak where there is none."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from db.records import DeviceRecord
from ptxgen.errors import DriverError
from ptxgen.outcome import Outcome, Status
from search.evaluator import EvaluateRequest, FinalsRequest
from search.fake_parts import FaultLog
from search.faults import KERNEL_FAULTS, FaultPlan
from search.soak_plan import KERNEL_SHARE


class Rehearsal:
    """See search.evaluator.Evaluator."""

    def __init__(self, options: dict[str, Any]) -> None:
        FaultLog(Path(options["folder"]) / "workers.log").add(str(os.getpid()))
        self._plan = FaultPlan(KERNEL_FAULTS, KERNEL_SHARE, options["seed"])
        self._device = DeviceRecord(**options["ceilings"])

    def device(self) -> DeviceRecord:
        return self._device

    def driver_version(self) -> str:
        return "1.0"

    def evaluate(self, request: EvaluateRequest) -> Outcome:
        candidate = request.candidate
        assert candidate is not None
        assert Path(candidate.cubin_path).read_bytes().startswith(b"\x7fELF")
        fault = self._plan.fault_of(candidate.config, request.problem.key())
        if fault is None:
            return good()
        if fault.name == "endless loop":
            time.sleep(600)
        if fault.deadly:
            raise DriverError(f"{fault.name}, injected", 700, sticky=True)
        return Outcome(Status.WRONG, "injected", rel_err=0.5)

    def finals(self, request: FinalsRequest) -> list[Outcome]:
        return [good() for _ in request.candidates]


def good() -> Outcome:
    return Outcome(Status.OK, time_us=9.0, spread=0.0, samples_us=(9.0,) * 5, rel_err=1e-4)


def create(options: dict[str, Any]) -> Rehearsal:
    return Rehearsal(options)
