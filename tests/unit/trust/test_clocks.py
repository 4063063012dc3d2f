"""NVML readings over a fake NVML: every value, every bit, and nothing where NVML says nothing."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pynvml
import pytest

from ptxgen.evidence import GpuLimits, GpuReading
from search.clocks import PIDS_SECONDS, THROTTLE_BITS, Clocks, throttle_names


class FakeNvml:
    """Answers like the binding; functions named in `broken` raise NVMLError."""

    NVMLError = pynvml.NVMLError
    NVML_CLOCK_SM = pynvml.NVML_CLOCK_SM
    NVML_CLOCK_MEM = pynvml.NVML_CLOCK_MEM
    NVML_TEMPERATURE_GPU = pynvml.NVML_TEMPERATURE_GPU

    def __init__(self, broken: tuple[str, ...] = ()) -> None:
        self._broken = broken
        self.bits = 0x4
        self.pids = [os.getpid()]
        self.asked_pids = 0

    def _answer(self, name: str, value: object) -> object:
        if name in self._broken or "all" in self._broken:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return value

    def nvmlInit(self) -> None:  # noqa: N802
        self._answer("init", None)

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> object:  # noqa: N802
        return self._answer("handle", uuid)

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: object) -> object:  # noqa: N802
        return self._answer("reasons", self.bits)

    def nvmlDeviceGetClockInfo(self, handle: object, which: int) -> object:  # noqa: N802
        return self._answer("clock", {self.NVML_CLOCK_SM: 1485, self.NVML_CLOCK_MEM: 3201}[which])

    def nvmlDeviceGetMaxClockInfo(self, handle: object, which: int) -> object:  # noqa: N802
        return self._answer("max", {self.NVML_CLOCK_SM: 1980}[which])

    def nvmlDeviceGetTemperature(self, handle: object, which: int) -> object:  # noqa: N802
        return self._answer("temperature", 61)

    def nvmlDeviceGetPowerUsage(self, handle: object) -> object:  # noqa: N802
        return self._answer("power", 690_400)

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: object) -> object:  # noqa: N802
        return self._answer("limit", 700_000)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: object) -> object:  # noqa: N802
        self.asked_pids += 1
        return self._answer("pids", [SimpleNamespace(pid=pid) for pid in self.pids])

    def nvmlSystemGetDriverVersion(self) -> object:  # noqa: N802
        return self._answer("driver", b"580.1")


def test_every_value_is_read() -> None:
    nvml = FakeNvml()
    nvml.pids = [os.getpid(), 4711]
    clocks = Clocks.of_device("GPU-1", nvml)
    assert clocks.read() == GpuReading(1485, 3201, ("sw_power_cap",), 61, 690.4, (4711,))
    assert clocks.limits() == GpuLimits(1980, 700)
    assert (clocks.power_limit_w(), clocks.driver_version()) == (700, "580.1")


def test_where_nvml_does_not_work_everything_is_none() -> None:
    for broken in (("all",), ("init",), ("handle",)):
        clocks = Clocks.of_device("GPU-1", FakeNvml(broken))
        assert clocks.read() == GpuReading()
        assert clocks.limits() == GpuLimits()
        assert (clocks.power_limit_w(), clocks.driver_version()) == (0, "")
        assert clocks.compute_pids() is None


@pytest.mark.parametrize(
    ("broken", "field"),
    [
        ("reasons", "throttle"),
        ("temperature", "temperature_c"),
        ("power", "power_w"),
        ("pids", "other_pids"),
    ],
)
def test_one_value_that_a_gpu_lacks_leaves_the_others(broken: str, field: str) -> None:
    values = Clocks.of_device("GPU-1", FakeNvml((broken,))).read()
    missing = [name for name in GpuReading.__slots__ if getattr(values, name) is None]
    assert missing == [field]


def test_every_combination_of_bits_has_its_names() -> None:
    for bits in range(0x400):
        expected = {name for bit, name in THROTTLE_BITS.items() if bits & bit}
        expected |= {"bit_0x200"} if bits & 0x200 else set()
        names = throttle_names(bits)
        assert set(names) == expected
        assert len(names) == bits.bit_count()


def test_the_bits_are_nvmls_own() -> None:
    binding = {
        "gpu_idle": "GpuIdle",
        "applications_clocks": "ApplicationsClocksSetting",
        "sw_power_cap": "SwPowerCap",
        "hw_slowdown": "HwSlowdown",
        "sync_boost": "SyncBoost",
        "sw_thermal_slowdown": "SwThermalSlowdown",
        "hw_thermal_slowdown": "HwThermalSlowdown",
        "hw_power_brake_slowdown": "HwPowerBrakeSlowdown",
        "display_clocks": "DisplayClockSetting",
    }
    for bit, name in THROTTLE_BITS.items():
        assert getattr(pynvml, f"nvmlClocksEventReason{binding[name]}") == bit


def test_the_process_list_is_not_asked_for_with_every_reading() -> None:
    nvml, now = FakeNvml(), [0.0]
    clocks = Clocks("handle", nvml, lambda: now[0])
    for _ in range(10):
        clocks.read()
    assert nvml.asked_pids == 1
    now[0] = PIDS_SECONDS
    nvml.pids = [os.getpid(), 12]
    assert clocks.read().other_pids == (12,)


def test_in_a_container_our_own_host_pid_is_found_by_its_appearance() -> None:
    nvml = FakeNvml()
    nvml.pids = [700]
    clocks = Clocks("handle", nvml)
    before = clocks.compute_pids()
    nvml.pids = [700, 900_001]  # the host's name of this process
    clocks.learn_own(before)
    assert clocks.read().other_pids == (700,)


def test_two_that_appear_at_once_are_both_taken_for_others() -> None:
    nvml = FakeNvml()
    nvml.pids = []
    clocks = Clocks("handle", nvml)
    before = clocks.compute_pids()
    nvml.pids = [900_001, 900_002]
    clocks.learn_own(before)
    assert clocks.read().other_pids == (900_001, 900_002)


def test_a_child_s_process_is_ours_by_its_id_or_by_what_it_added() -> None:
    nvml = FakeNvml()
    nvml.pids = [700]
    clocks = Clocks("handle", nvml)
    before = clocks.compute_pids()
    nvml.pids = [700, 812]
    clocks.learn_own(before, 812)
    second = clocks.compute_pids()
    nvml.pids = [700, 812, 900_003]  # the host's name of another child
    clocks.learn_own(second, 31)
    assert clocks.read().other_pids == (700,)
