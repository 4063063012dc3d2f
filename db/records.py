"""Plain records that cross the database's border: frozen, typed, never ORM rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from ptxgen.arch import ArchSpec, arch_of_capability
from ptxgen.config import KernelConfig
from ptxgen.dequantize.rule import serves
from ptxgen.evidence import Evidence
from ptxgen.outcome import Outcome, Resources
from ptxgen.problem import Problem
from ptxgen.proof import Proof
from ptxgen.weights.layout import LAYOUT_VERSION


@dataclass(frozen=True, slots=True)
class DeviceRecord:
    """A GPU model, and its ceilings where they were measured.

    Attributes:
        name: as the driver reports it.
        capability: compute capability, such as "9.0".
        num_sms: multiprocessors.
        smem_optin_bytes: most shared memory a CTA may opt in to.
        l2_bytes: L2 cache.
        memory_bytes: device memory.
        uuid: of the card that was measured; recorded, not matched. Empty where none was measured.
        power_limit_w: recorded, not matched.
        read_gbps: streaming read ceiling, GB/s.
        copy_gbps: copy ceiling, read + write, GB/s.
        tensor_tflops: mma.sync ceiling, TFLOP/s.
        launch_us: cost of one graph launch.
        measured: whether the ceilings were measured on the device (else: a table's).
    """

    name: str
    capability: str
    num_sms: int
    smem_optin_bytes: int
    l2_bytes: int
    memory_bytes: int = 0
    uuid: str = ""
    power_limit_w: int = 0
    read_gbps: float = 0.0
    copy_gbps: float = 0.0
    tensor_tflops: float = 0.0
    launch_us: float = 0.0
    measured: bool = False

    @property
    def arch(self) -> ArchSpec:
        """The best arch for it. Raises ArchError for a capability that has none."""
        major, minor = (int(part) for part in self.capability.split("."))
        return arch_of_capability(major, minor)


@dataclass(frozen=True, slots=True)
class ToolchainRecord:
    """What a result depends on besides the device."""

    driver: str  # "" where no driver was involved (predictions)
    nvrtc: str
    ptxtune: str
    torch: str
    commit: str = ""


class Protocol(StrEnum):
    """How launches follow each other while they are timed."""

    PLAIN = "plain"  # ordinary graph edges
    CHAINED = "chained"  # programmatic dependent launch between our kernels


PROTOCOL_VERSION = 2
"""Raised whenever a change of the measuring makes times incomparable."""


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """One attempt: a candidate and how it ended. Config is None for a baseline such as cuBLAS."""

    id: int
    run_id: int
    problem: Problem
    m: int
    protocol: Protocol
    contender: str  # "ptxtune", or a baseline: "cublas", "dequantized"
    config: KernelConfig | None
    source_digest: str
    outcome: Outcome
    started_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One tuning session over problems and buckets."""

    id: int
    device: DeviceRecord
    toolchain: ToolchainRecord
    started_at: datetime
    ended_at: datetime | None
    settings: dict[str, Any]


@dataclass(frozen=True, slots=True)
class WinnerRecord:
    """The best ok trial of a problem x bucket x device x protocol, with what it was compared with.

    default_us, cublas_us and dequantized_us (dequantize + matmul) were measured in the same run;
    None where they were not measured.
    predicted is True where no GPU ran the kernel and time_us comes from the model. proof is what
    the finals showed, evidence what the GPU said meanwhile; None where there was neither.
    batch_invariant: it is the best of those whose sums have one order for every M. resources are
    what the compiler gave it; None where that was not stored.
    """

    trial_id: int
    device: DeviceRecord
    toolchain: ToolchainRecord
    problem: Problem
    m: int
    protocol: Protocol
    config: KernelConfig
    source_digest: str
    time_us: float
    spread: float | None
    rel_err: float | None
    floor_us: float | None
    default_us: float | None
    cublas_us: float | None
    predicted: bool
    measured_at: datetime
    ties: tuple[KernelConfig, ...] = ()
    clock_mhz: int | None = None
    evidence: Evidence | None = None
    proof: Proof | None = None
    protocol_version: int = PROTOCOL_VERSION
    layout_version: int = LAYOUT_VERSION
    batch_invariant: bool = False
    resources: Resources | None = None
    dequantized_us: float | None = None

    @property
    def dequantize_first(self) -> bool:
        """Whether dequantize + matmul is the faster way at this M, beyond doubt.

        By the ratios of the same rounds, whose interval must lie below 1, where there are any.
        """
        if self.predicted or self.dequantized_us is None:
            return False
        ratio = self.proof.over_dequantized if self.proof else None
        return self.dequantized_us < self.time_us and (ratio is None or ratio.high < 1)


class Level(StrEnum):
    """How an answer relates to the question, best first."""

    PINNED = "pinned"  # forced by the user; the database was not asked
    EXACT = "exact"  # this device, problem, bucket and protocol
    OTHER_PROTOCOL = "other_protocol"  # this device, problem and bucket, in other launches
    NEAREST_BUCKET = "nearest_bucket"  # this device and problem, another M
    SAME_FAMILY = "same_family"  # another device of the same compute capability
    DEFAULT = "default"  # nothing stored: the built-in default


@dataclass(frozen=True, slots=True)
class Answer:
    """What a query returns; always says how good it is.

    stale lists why the measurement may no longer hold (driver, NVRTC minor, version of the
    measuring protocol); a hard mismatch (source, compute capability, NVRTC major, layout) is never
    served. differs lists in what the winner was measured for another question (M, plain or chained
    launches, device); it is served all the same because it beats the default here.
    """

    level: Level
    problem: Problem
    m: int
    config: KernelConfig
    winner: WinnerRecord | None
    predicted: bool
    stale: tuple[str, ...] = field(default=())
    message: str = ""
    differs: tuple[str, ...] = field(default=())

    @property
    def time_us(self) -> float | None:
        """Of the very M, launches and device asked for, measured or predicted; None elsewhere."""
        return None if self.winner is None or self.differs else self.winner.time_us

    @property
    def dequantize_first(self) -> bool:
        """Whether dequantize + matmul is the faster way at this M: measured here, near this M."""
        here = self.level in (Level.EXACT, Level.OTHER_PROTOCOL, Level.NEAREST_BUCKET)
        winner = self.winner
        return here and winner is not None and winner.dequantize_first and serves(self.m, winner.m)
