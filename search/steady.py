"""Steady: takes a sample set with readings around it; drops and repeats it where the GPU throttled.

nvbench's rule: samples of a clock below 75 % of the default boost clock are thrown away, waited for
and repeated. A clock that the power limit or the user lowered is no fault: it is the state that the
GPU works in, and it is recorded.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from ptxgen.evidence import POWER_CAP, USER_CLOCKS, Evidence, GpuLimits, GpuReading

SLOWDOWNS = frozenset(
    {
        "hw_slowdown",
        "sw_thermal_slowdown",
        "hw_thermal_slowdown",
        "hw_power_brake_slowdown",
    }
)
"""Reasons that make a sample set worthless: they come and go within a run."""

EXPLAINED = frozenset({POWER_CAP, USER_CLOCKS})
"""Reasons that explain a low clock."""

LOW_CLOCK = 0.75
WAITS_S = (0.25, 0.5, 1.0)
"""Before each repetition; as many as there are repetitions at most."""

T = TypeVar("T")


class Reader(Protocol):
    """Reads a GPU; search.clocks.Clocks, or a fake."""

    def read(self) -> GpuReading:
        """Everything now."""
        ...

    def limits(self) -> GpuLimits:
        """What readings are held against."""
        ...


@dataclass(frozen=True, slots=True)
class SampleSet(Generic[T]):
    """A sample set and its evidence.

    Attributes:
        value: what the sampling gave.
        evidence: of this set.
        fault: why it is worthless; empty where it is good.
    """

    value: T
    evidence: Evidence
    fault: str


def fault_of(before: GpuReading, after: GpuReading, limits: GpuLimits, strict: bool = False) -> str:
    """Why a sample set between two readings is worthless; empty where it is good.

    Args:
        before: may be of an idle GPU, so its clock does not count.
        after: under load.
        limits: of the GPU.
        strict: whether another process on the GPU makes it worthless.
    """
    slow = sorted(SLOWDOWNS & {*(before.throttle or ()), *(after.throttle or ())})
    if slow:
        return f"the GPU was throttled ({', '.join(slow)})"
    if _unexplained_low_clock(after, limits):
        return (
            f"the SM clock was {after.sm_mhz} MHz, below {LOW_CLOCK:.0%} of {limits.max_sm_mhz} MHz"
        )
    others = sorted({*(before.other_pids or ()), *(after.other_pids or ())})
    if strict and others:
        return f"other processes compute on the GPU ({', '.join(map(str, others))}; --strict)"
    return ""


def _unexplained_low_clock(reading: GpuReading, limits: GpuLimits) -> bool:
    if reading.sm_mhz is None or limits.max_sm_mhz is None:
        return False
    low = reading.sm_mhz < LOW_CLOCK * limits.max_sm_mhz
    return low and not EXPLAINED & set(reading.throttle or ())


class Steady:
    """Takes sample sets from one GPU.

    Args:
        reader: of the GPU.
        warm: brings the GPU to its working clock.
        strict: see fault_of.
        sleep: waits so many seconds.
    """

    def __init__(
        self,
        reader: Reader,
        warm: Callable[[], None],
        *,
        strict: bool = False,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._reader, self._warm, self._strict, self._sleep = reader, warm, strict, sleep
        self._limits = reader.limits()

    def take(self, sample: Callable[[], T], keep_busy: Callable[[], None]) -> SampleSet[T]:
        """A sample set, repeated at most three times while it is worthless.

        Args:
            sample: times something, to the end.
            keep_busy: queues more of the same work and returns at once, so that the reading after
                the samples is of a GPU at work.

        Returns:
            The first good set, or the last one with its fault.
        """
        dropped: list[str] = []
        while True:
            before = self._reader.read()
            value = sample()
            keep_busy()
            after = self._reader.read()
            fault = fault_of(before, after, self._limits, self._strict)
            evidence = Evidence.of(before, after, self._limits, dropped)
            if not fault:
                return SampleSet(value, evidence, "")
            if len(dropped) == len(WAITS_S):
                return SampleSet(value, evidence, f"{fault}, {len(dropped) + 1} times in a row")
            self._sleep(WAITS_S[len(dropped)])
            self._warm()
            dropped.append(fault)
