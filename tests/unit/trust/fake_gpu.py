"""A GPU without a GPU: its clock follows a script, and so do the times of what runs on it."""

from __future__ import annotations

from collections.abc import Callable

from ptxgen.evidence import GpuLimits, GpuReading

LIMITS = GpuLimits(max_sm_mhz=1980, power_limit_w=700)


def reading(
    sm_mhz: int | None = 1980,
    throttle: tuple[str, ...] | None = (),
    power_w: float | None = 300.0,
    other_pids: tuple[int, ...] | None = (),
) -> GpuReading:
    return GpuReading(sm_mhz, 3201, throttle, 50, power_w, other_pids)


class FakeReader:
    """Gives scripted readings; the last one for ever."""

    def __init__(self, *readings: GpuReading, limits: GpuLimits = LIMITS) -> None:
        self._readings = list(readings)
        self._limits = limits
        self.reads = 0

    def read(self) -> GpuReading:
        self.reads += 1
        return self._readings.pop(0) if len(self._readings) > 1 else self._readings[0]

    def limits(self) -> GpuLimits:
        return self._limits


class FakeGpu:
    """Time passes as work is done; clock_mhz says how fast the GPU is at that time.

    Args:
        clock_mhz: of the time in microseconds since the start.
        throttle: of the same time.
        jitter: factor of the sample with that number, of all samples taken.
    """

    def __init__(
        self,
        clock_mhz: Callable[[float], float],
        throttle: Callable[[float], tuple[str, ...]] = lambda _: (),
        jitter: Callable[[int], float] = lambda _: 1.0,
    ) -> None:
        self._clock_mhz, self._throttle, self._jitter = clock_mhz, throttle, jitter
        self.now_us = 0.0
        self.samples = 0

    def run(self, cycles: float) -> float:
        """Time of one launch."""
        self.samples += 1
        time_us = cycles / self._clock_mhz(self.now_us) * self._jitter(self.samples)
        self.now_us += time_us
        return time_us

    def read(self) -> GpuReading:
        return reading(int(self._clock_mhz(self.now_us)), self._throttle(self.now_us))

    def limits(self) -> GpuLimits:
        return LIMITS

    def sleep(self, seconds: float) -> None:
        self.now_us += seconds * 1e6


class FakeKernel:
    """Takes so many SM cycles, whatever the clock is."""

    def __init__(self, gpu: FakeGpu, cycles: float) -> None:
        self._gpu, self._cycles = gpu, cycles

    def samples_us(self, count: int, warmups: int = 2) -> list[float]:
        for _ in range(warmups):
            self._gpu.run(self._cycles)
        return [self._gpu.run(self._cycles) for _ in range(count)]

    def keep_busy(self) -> None:
        pass
