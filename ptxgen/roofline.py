"""Roofline: how close one kernel comes to the floor, and what keeps it from it. Data only."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Bound(StrEnum):
    """What binds a kernel: the part that would have to become faster first."""

    MEMORY = "memory"  # device memory at its full rate
    IN_FLIGHT = "bytes in flight"  # too few loads under way to reach that rate
    L2 = "L2"  # the SMs' ports to L2
    ISSUE = "issue"  # instructions, most of them of the dequantization
    TENSOR = "tensor"  # multiplications
    LATENCY = "latency"  # one warp's stages, one after the other
    LAUNCH = "launch"  # launch, first loads, reductions and store: all but the main loop
    TAIL = "tail wave"  # a last wave that does not fill the GPU


@dataclass(frozen=True, slots=True)
class Roofline:
    """One kernel on one GPU at one M. Times are measured, or predicted where nothing was measured.

    Attributes:
        floor_bound: memory or tensor: which of the two makes the floor.
        floor_share: the physical floor over the time; 1 is the floor itself.
        read_gbps: bytes that must move over the time, 10^9 bytes/s.
        tflops: multiplications and additions over the time, 10^12/s.
        in_flight_bytes: that the busiest SM keeps in flight.
        ctas_per_sm: that one SM holds at once.
        warps_per_sm: of those CTAs.
        occupancy: warps_per_sm over the most that an SM of the arch holds.
        ctas: of the grid.
        waves: CTAs of the grid over those that the GPU holds at once.
        bound: what binds.
        model_us: what the model gives for the launch; where it is far from the time, bound is a
            guess.
        parts_us: the model's launch, fill, main loop (its tail apart), tail, epilogue and split.
        limits_us: what each part of the GPU would need for a full wave by itself.
    """

    floor_bound: Bound
    floor_share: float
    read_gbps: float
    tflops: float
    in_flight_bytes: float
    ctas_per_sm: int
    warps_per_sm: int
    occupancy: float
    ctas: int
    waves: float
    bound: Bound
    model_us: float
    parts_us: dict[str, float]
    limits_us: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """JSON-friendly; bounds are their words."""
        return {
            name: value.value if isinstance(value, Bound) else value
            for name, value in asdict(self).items()
        }
