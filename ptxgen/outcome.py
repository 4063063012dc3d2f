"""Status and Outcome: how a candidate ended. A closed set; every attempt has exactly one."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from ptxgen.evidence import Evidence


class Status(StrEnum):
    """Outcome classes of a trial."""

    STARTED = "started"  # journalled, not ended yet (or its process died)
    OK = "ok"
    PREDICTED = "predicted"  # compiled and ranked by the model, never run
    INVALID = "invalid"  # a rule says no; nothing was compiled
    COMPILE_ERROR = "compile_error"
    COMPILE_TIMEOUT = "compile_timeout"
    SPILLED = "spilled"  # uses local memory: rejected before launch
    LOAD_ERROR = "load_error"
    LAUNCH_ERROR = "launch_error"  # resources; the worker lives on
    CRASH = "crash"  # sticky CUDA error or a dead worker
    HANG = "hang"  # killed at the timeout
    WRONG = "wrong"  # value, NaN, guard band or repeatability
    NOISY = "noisy"  # no stable time, or faster than physics


@dataclass(frozen=True, slots=True)
class Resources:
    """What ptxas gave a kernel: registers a thread, spilled bytes, all shared memory of a CTA."""

    registers: int
    spill_bytes: int
    smem_bytes: int
    compile_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """A trial's end.

    Attributes:
        status: outcome class.
        message: reason in words; empty where status is OK.
        time_us: median microseconds per launch (predicted ones where status is PREDICTED).
        spread: (p75 - p25) / median of the samples.
        samples_us: every sample, in measuring order.
        rel_err: ||out - ref|| / ||ref|| of the check.
        resources: of the compiled kernel, where it was compiled.
        floor_us: the physical floor the time is compared with.
        clock_mhz: SM clock right after the samples, under load, where it could be read.
        evidence: what the GPU said before and after the samples; None where nothing was timed.
    """

    status: Status
    message: str = ""
    time_us: float | None = None
    spread: float | None = None
    samples_us: tuple[float, ...] = field(default=())
    rel_err: float | None = None
    resources: Resources | None = None
    floor_us: float | None = None
    clock_mhz: int | None = None
    evidence: Evidence | None = None
