"""A family, compilers and evaluators of known behaviour; they run in real worker processes."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from db.records import DeviceRecord, ToolchainRecord
from ptxgen.arch import ArchSpec
from ptxgen.config import KernelConfig, Scalar
from ptxgen.errors import ConfigError, DriverError
from ptxgen.families.mma import MMA
from ptxgen.families.mma.config import MmaConfig
from ptxgen.outcome import Outcome, Status
from ptxgen.problem import Problem
from ptxgen.source import KernelSource, LaunchPlan
from search.evaluator import (
    Contender,
    EvaluateRequest,
    FinalsRequest,
    config_of,
    name_of,
)
from search.worker import Limits

PROBLEM = Problem(4096, 4096)
DEVICE = DeviceRecord(
    name="NVIDIA H200",
    capability="9.0",
    num_sms=132,
    smem_optin_bytes=227 * 1024,
    l2_bytes=60 << 20,
    uuid="GPU-fake",
    read_gbps=4480.0,
    tensor_tflops=634.0,
    launch_us=1.7,
    measured=True,
)
TOOLCHAIN = ToolchainRecord(driver="580.1", nvrtc="13.5", ptxtune="0.1.0", torch="2.11")

PATIENT = Limits(start_s=250, measure_s=250, shrunk_min_s=250, final_s=250)
"""For tests in which nothing hangs: no machine is too slow for them."""
FAST = Limits(start_s=250, measure_s=250, shrunk_min_s=2, shrunk_factor=50, final_s=250)
"""For tests of a hang behind a good result: it is given up after 2 s."""

BASE = MmaConfig(8, 8, 64, 32, 512, 4, 4, 1, "weights", True, 1)
SMALL: dict[str, tuple[Scalar, ...]] = {
    "block_n": (32, 64, 128),
    "num_stages": (2, 3, 4, 6),
    "split_k": (1, 2, 4),
}
LARGE: dict[str, tuple[Scalar, ...]] = {
    "block_n": (16, 32, 64, 128, 256),
    "block_k": (128, 256, 512, 1024),
    "num_stages": (2, 3, 4, 5, 6, 8),
    "split_k": (1, 2, 3, 4, 6, 8),
    "min_ctas": (1, 2, 3, 4),
}


class FakeFamily:
    """The mma family's configs over few knobs; the others keep BASE's values.

    Legal is what keeps block_n * num_stages <= 512.
    """

    name = "mma"
    config_type: type[KernelConfig] = MmaConfig
    emitter_version = 1

    def __init__(self, searched: Mapping[str, tuple[Scalar, ...]], mark: str = "") -> None:
        self._searched = dict(searched)
        self._mark = mark

    def knobs(self) -> dict[str, tuple[Scalar, ...]]:
        own = BASE.to_dict()
        names = MmaConfig.knob_names()
        return {name: self._searched.get(name, (own[name],)) for name in names}

    def violations(self, problem: Problem, config: KernelConfig, arch: ArchSpec) -> list[str]:
        used = _int(config, "block_n") * _int(config, "num_stages")
        return [f"block_n * num_stages = {used} is more than 512"] if used > 512 else []

    def candidates(self, problem: Problem, arch: ArchSpec, m: int) -> Iterator[KernelConfig]:
        knobs = self.knobs()
        for values in product(*knobs.values()):
            config = MmaConfig.from_knobs(dict(zip(knobs, values, strict=True)))
            if not self.violations(problem, config, arch):
                yield config

    def default_config(
        self, problem: Problem, arch: ArchSpec, m: int, num_sms: int
    ) -> KernelConfig:
        return BASE

    def summation_key(self, problem: Problem, config: KernelConfig) -> str:
        return MMA.summation_key(problem, config)

    def plan(self, problem: Problem, config: KernelConfig, arch: ArchSpec) -> LaunchPlan:
        block_n = _int(config, "block_n")
        smem = 64 * block_n * _int(config, "num_stages")
        split = _int(config, "split_k")
        return LaunchPlan(128, smem, 8, block_n, -(-problem.n // block_n), split, arch.has_pdl)

    def emit(self, problem: Problem, config: KernelConfig, arch: ArchSpec) -> KernelSource:
        found = self.violations(problem, config, arch)
        if found:
            raise ConfigError("; ".join(found))
        text = f"{self._mark} {problem.key()} {config.key()}"
        return KernelSource(text, arch.name, self.plan(problem, config, arch))


def families(
    searched: Mapping[str, tuple[Scalar, ...]] = SMALL, mark: str = ""
) -> dict[str, FakeFamily]:
    return {"mma": FakeFamily(searched, mark)}


def true_us(config: KernelConfig) -> float:
    """The time that the fake evaluator reports: a valley with one optimum, known by brute force."""
    time_us = 5.0
    for name, best, slope in (
        ("block_n", 5, 0.9),
        ("block_k", 9, 0.5),
        ("num_stages", 4, 0.35),
        ("split_k", 2, 0.25),
        ("min_ctas", 2, 0.4),
    ):
        value = _int(config, name)
        distance = abs(value - best) if name not in ("block_n", "block_k") else 0
        if name in ("block_n", "block_k"):
            distance = abs(value.bit_length() - 1 - best)
        time_us += slope * distance**1.3
    return time_us


def _int(config: KernelConfig, name: str) -> int:
    return int(config.to_dict()[name])


# ---- a compiler ---------------------------------------------------------------------------------


def make_compiler(options: dict[str, Any]) -> Callable[[dict[str, Any]], Any]:
    """Handler of a compile process: what the text says decides what happens."""

    def handle(message: dict[str, Any]) -> Any:
        text = str(message["text"])
        if "never-ends" in text:
            time.sleep(600)
        if "refused" in text:
            return {"compile_error": "error: refused"}
        if "dies" in text:
            os.kill(os.getpid(), signal.SIGSEGV)
        if "raises" in text:
            raise ValueError("no such option")
        spills = 64 if "spills" in text else 0
        resources = {"registers": 96, "spill_bytes": spills, "smem_bytes": 4096}
        return {"cubin_path": str(Path(options["cache_root"]) / "k.cubin"), "resources": resources}

    return handle


def make_compiler_without_dequantize(options: dict[str, Any]) -> Callable[[dict[str, Any]], Any]:
    """The same, but the dequantize kernel does not compile."""
    handle = make_compiler(options)

    def refuse(message: dict[str, Any]) -> Any:
        if "ptxtune_dequantize" in message["text"]:
            return {"compile_error": "error: refused"}
        return handle(message)

    return refuse


# ---- evaluators ---------------------------------------------------------------------------------


class FakeEvaluator:
    """Reports true_us, except where a config's behaviour says otherwise.

    Options: behaviour: config key -> one of the methods of _Misbehaviour; log: a file that gets one
    line an evaluated candidate; seconds: how long each one takes; hold_after, release: after so
    many the next one ends once the file named `release` is there; finals: a behaviour; cublas_us
    and dequantized_us: times of the baselines, whose behaviour goes by their names.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        self._behaviour: dict[str, str] = options.get("behaviour", {})
        self._log = options.get("log")
        self._seconds = float(options.get("seconds", 0.0))
        self._free: int | None = options.get("hold_after")
        self._release = Path(options.get("release", "/"))
        self._finals = options.get("finals", "")
        self._baselines_us = {
            "cublas": float(options.get("cublas_us", 20.0)),
            "dequantized": float(options.get("dequantized_us", 25.0)),
        }

    def device(self) -> DeviceRecord:
        return DEVICE

    def driver_version(self) -> str:
        return "580.1"

    def evaluate(self, request: EvaluateRequest) -> Outcome:
        key = key_of(request.candidate)
        self._write(f"evaluate {request.effort.value} {key}")
        time.sleep(self._seconds)
        self._hold()
        behaviour = self._behaviour.get(key, "")
        if behaviour:
            return misbehave(behaviour)
        return self._ok(request.candidate)

    def finals(self, request: FinalsRequest) -> list[Outcome]:
        self._write("finals")
        if self._finals:
            return [misbehave(self._finals)]
        return [self._ok(item) for item in request.candidates]

    def _hold(self) -> None:
        if self._free is not None:
            self._free -= 1
            while self._free < 0 and not self._release.exists():
                time.sleep(0.01)

    def _ok(self, contender: Contender) -> Outcome:
        config = config_of(contender)
        time_us = self._baselines_us[key_of(contender)] if config is None else true_us(config)
        return Outcome(Status.OK, time_us=time_us, spread=0.01, samples_us=(time_us,) * 3)

    def _write(self, line: str) -> None:
        if self._log:
            with Path(self._log).open("a") as file:
                file.write(line + "\n")


def key_of(contender: Contender) -> str:
    """A candidate's config key, or a baseline's name."""
    config = config_of(contender)
    return name_of(contender) if config is None else config.key()


def misbehave(how: str) -> Outcome:
    """Crashes, hangs and lies, by name."""
    if how == "segv":
        ctypes.string_at(0)
    if how == "exit":
        sys.stderr.write("the driver said goodbye\n")
        sys.stderr.flush()
        os._exit(3)
    if how == "hang":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
    if how in ("garbage", "half"):
        text = b"\x80\x04 not json\n" if how == "garbage" else b'{"ok": {"status"'
        os.write(int(sys.argv[1]), text)
        time.sleep(600)
    if how == "sticky":
        raise DriverError("an illegal memory access was encountered", 700, sticky=True)
    if how == "unknown":
        raise RuntimeError("something that nobody has classified")
    if how == "resources":
        raise DriverError("too many resources requested for launch", 701)
    if how == "not-an-outcome":
        return {"time_us": 1.0}  # type: ignore[return-value]
    if how == "nan":
        return Outcome(Status.OK, time_us=float("nan"))
    if how == "wrong":
        return Outcome(Status.WRONG, "relative error 0.5", rel_err=0.5)
    raise AssertionError(how)


def create(options: dict[str, Any]) -> FakeEvaluator:
    """The evaluator's factory."""
    return FakeEvaluator(options)


def no_gpu(options: dict[str, Any]) -> FakeEvaluator:
    """A factory on a machine without a GPU."""
    raise DriverError("no CUDA device was found (cuInit: CUDA_ERROR_NO_DEVICE)", 100)


class OneDeadDevice(FakeEvaluator):
    """Works in the first process only: a GPU that falls off the bus. Counts starts in a file."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(options)
        starts = Path(options["starts"])
        with starts.open("a") as file:
            file.write("x")
        self._dead = len(starts.read_text()) > 1

    def evaluate(self, request: EvaluateRequest) -> Outcome:
        if self._dead:
            raise DriverError("the GPU has fallen off the bus", 999, sticky=True)
        return super().evaluate(request)


def create_dying(options: dict[str, Any]) -> OneDeadDevice:
    """The factory of OneDeadDevice."""
    return OneDeadDevice(options)


class NoisyFinals(FakeEvaluator):
    """A fake whose outcomes have no spread, for exact comparisons."""

    def _ok(self, contender: Contender) -> Outcome:
        return replace(super()._ok(contender), spread=0.0)


def create_exact(options: dict[str, Any]) -> NoisyFinals:
    """The factory of NoisyFinals."""
    return NoisyFinals(options)


class Moody(NoisyFinals):
    """Honest in its first process; then slow is fast, except in a window of over 20 rounds."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(options)
        starts = Path(options["starts"])
        with starts.open("a") as file:
            file.write("x")
        self._first = self._honest = len(starts.read_text()) == 1

    def evaluate(self, request: EvaluateRequest) -> Outcome:
        self._honest = self._first
        return super().evaluate(request)

    def finals(self, request: FinalsRequest) -> list[Outcome]:
        self._honest = self._first or request.rounds > 20
        return super().finals(request)

    def _ok(self, contender: Contender) -> Outcome:
        truth = super()._ok(contender)
        if self._honest or truth.time_us is None:
            return truth
        lie = 100.0 - truth.time_us
        return replace(truth, time_us=lie, samples_us=(lie,) * 3)


def create_moody(options: dict[str, Any]) -> Moody:
    """The factory of Moody."""
    return Moody(options)
