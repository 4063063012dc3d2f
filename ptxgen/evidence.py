"""Evidence: what the GPU itself said while it was timed; plain data, read from NVML elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

POWER_CAP = "sw_power_cap"
USER_CLOCKS = "applications_clocks"

SUSTAINED_POWER = 0.85
"""From this share of the power limit on the state is sustained: a capped H200 draws 0.88 of it."""

SUSTAINED_CLOCK = 0.9
"""Below this share of the highest SM clock the state is sustained."""


class State(StrEnum):
    """Whether the power limit shapes the clock: times of the two states are not comparable."""

    COOL = "cool"  # full clock, power to spare
    SUSTAINED = "sustained"  # at the power limit, or at a lower clock because of it


@dataclass(frozen=True, slots=True)
class GpuLimits:
    """What readings are held against; None where it cannot be read.

    Attributes:
        max_sm_mhz: default boost clock of the SMs, MHz.
        power_limit_w: enforced power limit, watts.
    """

    max_sm_mhz: int | None = None
    power_limit_w: int | None = None


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One reading; None where a value cannot be read.

    Attributes:
        sm_mhz: SM clock, MHz.
        memory_mhz: memory clock, MHz.
        throttle: names of the active clock-limiting reasons.
        temperature_c: of the GPU, degrees Celsius.
        power_w: power draw, watts.
        other_pids: processes other than the measuring one that compute on the GPU.
    """

    sm_mhz: int | None = None
    memory_mhz: int | None = None
    throttle: tuple[str, ...] | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    other_pids: tuple[int, ...] | None = None

    @classmethod
    def from_dict(cls, data: Any) -> GpuReading:
        """Inverse of asdict. Raises TypeError or ValueError on anything else."""
        values = dict(data)
        for name in ("sm_mhz", "memory_mhz", "temperature_c"):
            _check_number(name, values.get(name), int)
        _check_number("power_w", values.get("power_w"), (int, float))
        values["throttle"] = _tuple_of(values.get("throttle"), str)
        values["other_pids"] = _tuple_of(values.get("other_pids"), int)
        return cls(**values)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was read around one sample set (or all rounds of the finals).

    Attributes:
        before: reading before the samples; the GPU may have been idle.
        after: reading after the samples, taken while the same kernel ran on.
        lowest_sm_mhz: lowest SM clock of all readings under load.
        throttle: every reason of all readings.
        other_pids: every other compute process of all readings.
        state: cool or sustained; None where NVML says nothing.
        limits: what the readings were held against.
        dropped: why earlier attempts at this sample set were thrown away, one entry each.
    """

    before: GpuReading
    after: GpuReading
    lowest_sm_mhz: int | None = None
    throttle: tuple[str, ...] | None = None
    other_pids: tuple[int, ...] | None = None
    state: State | None = None
    limits: GpuLimits = GpuLimits()
    dropped: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        before: GpuReading,
        after: GpuReading,
        limits: GpuLimits,
        dropped: Sequence[str] = (),
    ) -> Evidence:
        """Evidence of one sample set."""
        return cls(
            before=before,
            after=after,
            lowest_sm_mhz=after.sm_mhz,
            throttle=_union(before.throttle, after.throttle),
            other_pids=_union(before.other_pids, after.other_pids),
            state=state_of(after, limits),
            limits=limits,
            dropped=tuple(dropped),
        )

    @classmethod
    def over(cls, parts: Sequence[Evidence]) -> Evidence:
        """Evidence of several sample sets (one at least) in a row, as of one."""
        states = [part.state for part in parts if part.state is not None]
        clocks = [part.lowest_sm_mhz for part in parts if part.lowest_sm_mhz is not None]
        return cls(
            before=parts[0].before,
            after=parts[-1].after,
            lowest_sm_mhz=min(clocks, default=None),
            throttle=_union(*(part.throttle for part in parts)),
            other_pids=_union(*(part.other_pids for part in parts)),
            state=max(states, default=None),  # "sustained" sorts after "cool"
            limits=parts[0].limits,
            dropped=tuple(reason for part in parts for reason in part.dropped),
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-friendly."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Any) -> Evidence:
        """Inverse of to_dict. Raises TypeError, KeyError or ValueError on anything else."""
        values = dict(data)
        values["before"] = GpuReading.from_dict(values["before"])
        values["after"] = GpuReading.from_dict(values["after"])
        values["limits"] = GpuLimits(**values["limits"])
        state = values["state"]
        values["state"] = None if state is None else State(state)
        _check_number("lowest_sm_mhz", values["lowest_sm_mhz"], int)
        values["throttle"] = _tuple_of(values["throttle"], str)
        values["other_pids"] = _tuple_of(values["other_pids"], int)
        values["dropped"] = _tuple_of(values["dropped"], str) or ()
        return cls(**values)


def state_of(reading: GpuReading, limits: GpuLimits) -> State | None:
    """The state that a reading under load shows; None where it shows nothing."""
    signs: list[bool] = []
    if reading.throttle is not None:
        signs.append(POWER_CAP in reading.throttle)
    if reading.power_w is not None and limits.power_limit_w:
        signs.append(reading.power_w >= SUSTAINED_POWER * limits.power_limit_w)
    if reading.sm_mhz is not None and limits.max_sm_mhz:
        signs.append(reading.sm_mhz < SUSTAINED_CLOCK * limits.max_sm_mhz)
    if not signs:
        return None
    return State.SUSTAINED if any(signs) else State.COOL


def _union(*parts: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
    known = [part for part in parts if part is not None]
    return tuple(sorted({item for part in known for item in part})) if known else None


def _tuple_of(values: Any, kind: type) -> tuple[Any, ...] | None:
    if values is None:
        return None
    if not isinstance(values, (list, tuple)) or not all(type(item) is kind for item in values):
        raise ValueError(f"{values!r:.60} is not a list of {kind.__name__}")
    return tuple(values)


def _check_number(name: str, value: Any, kind: Any) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, kind)):
        raise ValueError(f"{name} = {value!r:.60} is not a number")
