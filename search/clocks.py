"""What NVML says of a GPU while it is measured: clock, driver, power limit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pynvml


@dataclass(frozen=True, slots=True)
class Clocks:
    """NVML readings of one GPU; zeros and empty text where NVML does not work."""

    handle: Any

    @classmethod
    def of_device(cls, uuid: str) -> Clocks:
        try:
            pynvml.nvmlInit()
            return cls(pynvml.nvmlDeviceGetHandleByUUID(uuid))
        except pynvml.NVMLError:
            return cls(None)

    def sm_mhz(self) -> int | None:
        """SM clock now, MHz; None where it cannot be read."""
        if self.handle is None:
            return None
        try:
            return int(pynvml.nvmlDeviceGetClockInfo(self.handle, pynvml.NVML_CLOCK_SM))
        except pynvml.NVMLError:
            return None

    def power_limit_w(self) -> int:
        """Enforced power limit, watts; 0 where it cannot be read."""
        if self.handle is None:
            return 0
        try:
            return int(pynvml.nvmlDeviceGetEnforcedPowerLimit(self.handle)) // 1000
        except pynvml.NVMLError:
            return 0

    def driver_version(self) -> str:
        """Driver version, such as 580.159.03; empty where it cannot be read."""
        if self.handle is None:
            return ""
        try:
            version = pynvml.nvmlSystemGetDriverVersion()
        except pynvml.NVMLError:
            return ""
        return version.decode() if isinstance(version, bytes) else str(version)
