"""Fake kernel family, compiler and evaluator of a soak: they fail as a FaultPlan says, for real.

They run in the tuner's own worker processes. A fault is written to a log before it happens, because
some of them leave no chance to do so afterwards.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from db.records import DeviceRecord
from ptxgen.arch import ArchSpec
from ptxgen.config import KernelConfig, Scalar
from ptxgen.errors import DriverError
from ptxgen.families.mma.config import MmaConfig
from ptxgen.outcome import Outcome, Status
from ptxgen.problem import Problem
from ptxgen.source import KernelSource, LaunchPlan
from search.evaluator import Candidate, Effort, EvaluateRequest, FinalsRequest, config_of
from search.faults import PROCESS_FAULTS, Fault, FaultPlan

DEVICE = DeviceRecord(
    name="soak",
    capability="9.0",
    num_sms=132,
    smem_optin_bytes=227 * 1024,
    l2_bytes=60 << 20,
    uuid="soak",
    read_gbps=4480.0,
    tensor_tflops=634.0,
    launch_us=1.7,
    measured=True,
)
NEVER_S = 600.0
BASELINE_US = 20.0
SLOW_S = 0.15

_SEARCHED: dict[str, tuple[Scalar, ...]] = {
    "block_n": (16, 32, 64, 128, 256),
    "block_k": (128, 256, 512, 1024),
    "num_stages": (2, 3, 4, 5, 6, 8),
    "split_k": (1, 2, 4),
}
_BASE = MmaConfig(8, 8, 64, 32, 512, 4, 4, 1, "weights", True, 1)


class SoakFamily:
    """Configs without real kernels: their text is their key."""

    name = "mma"
    config_type: type[KernelConfig] = MmaConfig
    emitter_version = 1

    def __init__(self, plan: FaultPlan, count: int) -> None:
        self._plan = plan
        knobs = self.knobs()
        points = [dict(zip(knobs, values, strict=True)) for values in product(*knobs.values())]
        random.Random(plan.seed).shuffle(points)  # noqa: S311 (no secret)
        distinct = dict.fromkeys([_BASE, *map(MmaConfig.from_knobs, points)])
        self._offered = list(distinct)[:count]

    def knobs(self) -> dict[str, tuple[Scalar, ...]]:
        own = _BASE.to_dict()
        return {name: _SEARCHED.get(name, (own[name],)) for name in MmaConfig.knob_names()}

    def violations(self, problem: Problem, config: KernelConfig, arch: ArchSpec) -> list[str]:
        return []

    def candidates(self, problem: Problem, arch: ArchSpec, m: int) -> Iterator[KernelConfig]:
        yield from self._offered

    def default_config(
        self, problem: Problem, arch: ArchSpec, m: int, num_sms: int
    ) -> KernelConfig:
        return _BASE

    def summation_key(self, problem: Problem, config: KernelConfig) -> str:
        return "one order"

    def plan(self, problem: Problem, config: KernelConfig, arch: ArchSpec) -> LaunchPlan:
        return LaunchPlan(128, 4096, 8, 64, -(-problem.n // 64), 1, arch.has_pdl)

    def emit(self, problem: Problem, config: KernelConfig, arch: ArchSpec) -> KernelSource:
        """The text tells the fake compiler which fault is its own."""
        fault = self._plan.fault_of(config, problem.key())
        text = json.dumps([problem.key(), config.key(), fault.name if fault else ""])
        return KernelSource(text, arch.name, self.plan(problem, config, arch))


def soak_time_us(config: KernelConfig) -> float:
    """What the fake measures: distinct for distinct configs, so that there is one optimum."""
    knobs = config.to_dict()
    time_us, scale = 5.0, 1.0
    for name, choices in _SEARCHED.items():
        index = choices.index(knobs[name])
        time_us += scale * abs(index - len(choices) / 2.3)
        scale *= 0.37
    return time_us


@dataclass(frozen=True, slots=True)
class FaultLog:
    """Appends a line a fault; a line is one write, so that processes do not mix theirs."""

    path: Path

    def add(self, what: str) -> None:
        """Notes a fault that is about to happen."""
        handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(handle, (what + "\n").encode())
        finally:
            os.close(handle)

    def lines(self) -> list[str]:
        """Everything noted so far."""
        return self.path.read_text().splitlines() if self.path.exists() else []


def make_compiler(options: dict[str, Any]) -> Callable[[dict[str, Any]], Any]:
    """Handler of a compile process; the log lies beside the cache, whose folder it is given."""
    log = FaultLog(Path(options["cache_root"]).parent / "faults.log")

    def handle(message: dict[str, Any]) -> Any:
        name = json.loads(message["text"])[2]
        if name.startswith("compiler") or name == "spills":
            log.add(name)
        if name == "compiler never ends":
            time.sleep(NEVER_S)
        if name == "compiler dies":
            os.kill(os.getpid(), signal.SIGSEGV)
        if name == "compiler raises":
            raise ValueError("injected")
        if name == "compiler refuses":
            return {"compile_error": "error: injected"}
        spilled = 64 if name == "spills" else 0
        resources = {"registers": 96, "spill_bytes": spilled, "smem_bytes": 4096}
        return {"cubin_path": "none", "resources": resources}

    return handle


class SoakEvaluator:
    """See search.evaluator.Evaluator. Options: folder, share, seed."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._folder = Path(options["folder"])
        self._plan = FaultPlan(PROCESS_FAULTS, float(options["share"]), int(options["seed"]))
        self._log = FaultLog(self._folder / "faults.log")
        FaultLog(self._folder / "workers.log").add(str(os.getpid()))

    def device(self) -> DeviceRecord:
        return DEVICE

    def driver_version(self) -> str:
        return "1.0"

    def evaluate(self, request: EvaluateRequest) -> Outcome:
        if not isinstance(request.candidate, Candidate):
            return _ok(BASELINE_US)
        if request.effort is Effort.FULL:  # a finalist: it was measured well before
            return _ok(soak_time_us(request.candidate.config))
        case = request.problem.key()
        fault = self._plan.fault_of(request.candidate.config, case)
        if fault is not None and self._happens(fault, request.candidate, case):
            self._log.add(fault.name)
            return _fail(fault.name, request.candidate)
        return _ok(soak_time_us(request.candidate.config))

    def finals(self, request: FinalsRequest) -> list[Outcome]:
        """Every bucket's first finals kill the worker."""
        marker = self._folder / f"finals-{request.problem.key()}-{request.m}"
        if not marker.exists():
            marker.touch()
            self._log.add("exit in the finals")
            os._exit(3)
        configs = [config_of(item) for item in request.candidates]
        return [_ok(soak_time_us(config) if config else BASELINE_US) for config in configs]

    def _happens(self, fault: Fault, candidate: Candidate, case: str) -> bool:
        if not fault.deadly or not self._plan.is_transient(candidate.config, case):
            return True
        marker = self._folder / f"once-{candidate.source_digest}"
        if marker.exists():
            return False
        marker.touch()
        return True


def create(options: dict[str, Any]) -> SoakEvaluator:
    """Factory for search.worker."""
    return SoakEvaluator(options)


def _ok(time_us: float) -> Outcome:
    samples = (time_us,) * 5
    return Outcome(Status.OK, time_us=time_us, spread=0.0, samples_us=samples, rel_err=1e-4)


def _fail(name: str, candidate: Candidate) -> Outcome:
    """Fails in the way of that name; some ways never return."""
    if name == "segv":
        ctypes.string_at(0)
    if name == "exit":
        os._exit(3)
    if name == "killed for memory":  # as Linux does when memory runs out
        os.kill(os.getpid(), signal.SIGKILL)
    if name == "sticky error":
        raise DriverError("an illegal memory access was encountered", 700, sticky=True)
    if name in ("garbage", "half a reply"):
        text = b"\x80\x04 no json\n" if name == "garbage" else b'{"ok": {"status"'
        os.write(int(sys.argv[1]), text)
        time.sleep(NEVER_S)
    if name == "hang":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(NEVER_S)
    if name == "out of memory":
        raise MemoryError("injected")
    if name == "too many resources":
        raise DriverError("too many resources requested for launch", 701)
    return _bad_reply(name, candidate)


def _bad_reply(name: str, candidate: Candidate) -> Outcome:
    good = _ok(soak_time_us(candidate.config))
    if name == "slow reply":
        time.sleep(SLOW_S)
        return good
    if name == "not an outcome":
        return {"time_us": 1.0}  # type: ignore[return-value]  # on purpose
    if name == "wrong result":
        return Outcome(Status.WRONG, "injected", rel_err=0.5)
    bad = float("nan") if name == "time is NaN" else -1.0
    return Outcome(Status.OK, time_us=bad)
