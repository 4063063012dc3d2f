"""Clocks: what NVML says of a GPU while it is measured; None wherever it says nothing."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import pynvml

from ptxgen.evidence import POWER_CAP, USER_CLOCKS, GpuLimits, GpuReading

THROTTLE_BITS: dict[int, str] = {
    0x001: "gpu_idle",
    0x002: USER_CLOCKS,
    0x004: POWER_CAP,
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake_slowdown",
    0x100: "display_clocks",
}
"""Bits of nvmlDeviceGetCurrentClocksEventReasons (nvml.h, nvmlClocksEventReason*)."""

PIDS_SECONDS = 1.0
"""The list of processes is asked for at most this often: it is the slowest of the readings."""


def throttle_names(bits: int) -> tuple[str, ...]:
    """Names of the set bits, lowest first; a bit without a name is shown as its number."""
    set_bits = (1 << place for place in range(bits.bit_length()) if bits >> place & 1)
    return tuple(THROTTLE_BITS.get(bit, f"bit_{bit:#x}") for bit in set_bits)


class Clocks:
    """NVML readings of one GPU.

    Args:
        handle: NVML's handle of the GPU; None where NVML does not work.
        nvml: the NVML binding.
        clock: seconds, for the age of the process list.
    """

    def __init__(
        self, handle: Any, nvml: Any = pynvml, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._handle, self._nvml, self._clock = handle, nvml, clock
        self._own = {os.getpid()}
        self._pids: frozenset[int] | None = None
        self._pids_at = float("-inf")

    @classmethod
    def of_device(cls, uuid: str, nvml: Any = pynvml) -> Clocks:
        """The GPU of this UUID; readings of None where NVML does not know it."""
        try:
            nvml.nvmlInit()
            return cls(nvml.nvmlDeviceGetHandleByUUID(uuid), nvml)
        except nvml.NVMLError:
            return cls(None, nvml)

    def read(self) -> GpuReading:
        """Everything now."""
        nvml = self._nvml
        bits = self._get("nvmlDeviceGetCurrentClocksEventReasons")
        power_mw = self._get("nvmlDeviceGetPowerUsage")
        pids = self._recent_pids()
        return GpuReading(
            sm_mhz=self._get("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
            memory_mhz=self._get("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM),
            throttle=None if bits is None else throttle_names(bits),
            temperature_c=self._get("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
            power_w=None if power_mw is None else power_mw / 1000,
            other_pids=None if pids is None else tuple(sorted(pids - self._own)),
        )

    def limits(self) -> GpuLimits:
        """What readings are held against."""
        return GpuLimits(
            max_sm_mhz=self._get("nvmlDeviceGetMaxClockInfo", self._nvml.NVML_CLOCK_SM),
            power_limit_w=self.power_limit_w() or None,
        )

    def compute_pids(self) -> frozenset[int] | None:
        """Processes that compute on the GPU now, this one included; None where hidden."""
        if self._handle is None:
            return None
        try:
            found = self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle)
        except self._nvml.NVMLError:
            return None
        return frozenset(int(process.pid) for process in found)

    def learn_own(self, before: frozenset[int] | None, pid: int | None = None) -> None:
        """Finds a process of ours in the list by what a CUDA context of its own added to it.

        In a container NVML may name processes as the host does, so that os.getpid() is not among
        them. Where several appeared at once, none is taken for ours.

        Args:
            before: compute_pids() before the context was made.
            pid: of the process; None for this one.
        """
        own = os.getpid() if pid is None else pid
        self._own.add(own)
        now = self.compute_pids()
        if before is None or now is None or own in now:
            return
        appeared = now - before
        if len(appeared) == 1:
            self._own |= appeared

    def power_limit_w(self) -> int:
        """Enforced power limit, watts; 0 where it cannot be read."""
        return (self._get("nvmlDeviceGetEnforcedPowerLimit") or 0) // 1000

    def driver_version(self) -> str:
        """Driver version, such as 580.159.03; empty where it cannot be read."""
        if self._handle is None:
            return ""
        try:
            version = self._nvml.nvmlSystemGetDriverVersion()
        except self._nvml.NVMLError:
            return ""
        return version.decode() if isinstance(version, bytes) else str(version)

    def _recent_pids(self) -> frozenset[int] | None:
        now = self._clock()
        if now - self._pids_at >= PIDS_SECONDS:
            self._pids, self._pids_at = self.compute_pids(), now
        return self._pids

    def _get(self, name: str, *arguments: Any) -> int | None:
        """An NVML call with an integer answer; None where this GPU or driver has none."""
        if self._handle is None:
            return None
        try:
            return int(getattr(self._nvml, name)(self._handle, *arguments))
        except self._nvml.NVMLError:
            return None
