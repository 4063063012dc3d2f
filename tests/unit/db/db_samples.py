"""Samples for the database tests: records, and a tiny kernel family with text that can change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from db.records import DeviceRecord, ToolchainRecord
from ptxgen.arch import ARCHS, ArchSpec
from ptxgen.config import KernelConfig, Scalar
from ptxgen.evidence import Evidence, GpuLimits, GpuReading
from ptxgen.outcome import Outcome, Resources, Status
from ptxgen.problem import Problem
from ptxgen.source import KernelSource, LaunchPlan

H200 = DeviceRecord(
    "NVIDIA H200",
    "9.0",
    132,
    232448,
    60 << 20,
    memory_bytes=141 << 30,
    uuid="GPU-1",
    power_limit_w=700,
    read_gbps=4480.0,
    copy_gbps=4100.0,
    tensor_tflops=634.0,
    launch_us=1.7,
    measured=True,
)
H100 = DeviceRecord("NVIDIA H100 80GB HBM3", "9.0", 132, 232448, 50 << 20, uuid="GPU-2")
H100_PCIE = DeviceRecord("NVIDIA H100 PCIe", "9.0", 114, 232448, 50 << 20, uuid="GPU-3")
A100 = DeviceRecord("NVIDIA A100-SXM4-80GB", "8.0", 108, 166912, 40 << 20, uuid="GPU-4")
EVIDENCE = Evidence.of(
    GpuReading(1980, 3201, (), 41, 120.5, ()),
    GpuReading(1830, 3201, ("sw_power_cap",), 55, 690.25, (4711,)),
    GpuLimits(1980, 700),
)
TOOLCHAIN = ToolchainRecord("580.1", "13.0.88", "0.1.0", "2.11.0", "abc123")
PROBLEM = Problem(4096, 4096)
SM90A = ARCHS["sm_90a"]


@dataclass(frozen=True, slots=True)
class FakeConfig(KernelConfig):
    """Two knobs; tile KiB of shared memory."""

    family: ClassVar[str] = "fake"

    tile: int
    split: bool


class FakeFamily:
    """A family whose text names everything it depends on."""

    name = "fake"
    config_type = FakeConfig

    def __init__(self) -> None:
        self.emitter_version = 1

    def knobs(self) -> dict[str, tuple[Scalar, ...]]:
        return {"tile": tuple(range(1, 257)), "split": (False, True)}

    def violations(self, problem: Problem, config: KernelConfig, arch: ArchSpec) -> list[str]:
        limit = arch.smem_per_cta // 1024
        return [f"tile {config.tile} > {limit}"] if config.tile > limit else []

    def candidates(self, problem: Problem, arch: ArchSpec, m: int) -> Iterator[KernelConfig]:
        yield FakeConfig(1, False)

    def default_config(
        self, problem: Problem, arch: ArchSpec, m: int, num_sms: int
    ) -> KernelConfig:
        return FakeConfig(1, num_sms > 100)

    def summation_key(self, problem: Problem, config: KernelConfig) -> str:
        return f"split={config.split}"

    def plan(self, problem: Problem, config: KernelConfig, arch: ArchSpec) -> LaunchPlan:
        return LaunchPlan(32, 0, 8, 64, 64, 1, False)

    def emit(self, problem: Problem, config: KernelConfig, arch: ArchSpec) -> KernelSource:
        text = f"v{self.emitter_version} {problem.key()} {config.key()}"
        return KernelSource(text, arch.name, self.plan(problem, config, arch))


def ok(time_us: float, **rest: object) -> Outcome:
    return Outcome(Status.OK, time_us=time_us, **rest)


def full_outcome(status: Status) -> Outcome:
    """An outcome with every field set; a time only where the status has one."""
    timed = status in (Status.OK, Status.PREDICTED)
    return Outcome(
        status,
        message="" if timed else f"why {status.value}: 'quotes', \"more\", ünïcode\nline two",
        time_us=5.25 if timed else None,
        spread=0.0125,
        samples_us=(5.0, 5.25, 5.5),
        rel_err=3.5e-4,
        resources=Resources(64, 0, 98304, 71.5),
        floor_us=2.5,
        clock_mhz=1830,
        evidence=EVIDENCE,
    )
