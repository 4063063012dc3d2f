"""The roofline of a kernel against numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from db.records import Protocol
from ptxgen.arch import gpu_named
from ptxgen.families.mma.config import MmaConfig
from ptxgen.outcome import Resources
from ptxgen.problem import Problem
from ptxgen.roofline import Bound, Roofline
from ptxgen.source import LaunchPlan
from search.main_loop import WaveLimits
from search.model import predict_us
from search.prediction import Prediction
from search.roofline import bound_of, roofline

H200 = gpu_named("h200")  # 132 SMs, 4480 GB/s, 634 TFLOP/s
PROBLEM = Problem(4096, 4096)
CONFIG = MmaConfig(8, 8, 32, 32, 512, 4, 3, 1, "accumulators", True, 1)
PLAN = LaunchPlan(128, 40_000, 8, 32, 128, 1, True)
RESOURCES = Resources(96, 0, 40_000)


def of(
    plan: LaunchPlan = PLAN,
    resources: Resources = RESOURCES,
    m: int = 8,
    time_us: float = 4.0,
    protocol: Protocol = Protocol.PLAIN,
) -> Roofline | None:
    return roofline(
        PROBLEM, CONFIG, plan, resources, m, gpu=H200, protocol=protocol, time_us=time_us
    )


def test_a_decode_kernel_by_hand() -> None:
    found = of()
    assert found is not None
    # Weights 4096 * 4096 / 2, scales 2 * 4096 * 32, x and y 2 * 8 * (4096 + 4096) bytes.
    moved = 8_388_608 + 262_144 + 131_072
    assert found.read_gbps == pytest.approx(moved / 4.0e3)
    assert found.floor_share == pytest.approx(moved / 4480e3 / 4.0)
    assert found.tflops == pytest.approx(2 * 8 * 4096 * 4096 / 4.0e6)
    assert found.floor_bound is Bound.MEMORY
    # Registers: 65536 // (96 * 128) = 5; shared memory: 233472 // (40000 + 1024) = 5.
    assert (found.ctas_per_sm, found.warps_per_sm) == (5, 20)
    assert found.occupancy == 20 / 64
    assert found.ctas == 128
    assert found.waves == pytest.approx(128 / (5 * 132))
    # One CTA an SM: two free stages of 512 inputs, 32 features of half a byte, 8 tokens of two.
    assert found.in_flight_bytes == 2 * 512 * (16 + 16)


def test_its_limits_by_hand() -> None:
    found = of()
    assert found is not None
    weights, tokens = (8_388_608 + 262_144) / 128, 2 * 8 * 4096
    memory_bytes = 128 * (weights + tokens / 128)
    instructions = 14 + 2 * 84 + (30 + 2 * (8 + 6.5))  # loop, two row blocks, one tile of tokens
    cycle_us = 8 / 1750  # of a cycle in each of eight stages, at 1.75 GHz
    assert found.limits_us == pytest.approx(
        {
            "memory": memory_bytes / 4480e3,
            "bytes in flight": memory_bytes / (128 * 32_768 / 0.62),
            "L2": 128 * (weights + tokens) / (128 * 112e3),
            "issue": 4 * instructions / 3.1 * cycle_us,
            "tensor": 2 * 8 * 32 * 512 / (634e3 / 1.7 / 132 / 1.75) * cycle_us,
            "latency": (72 + 1.3 * instructions) * cycle_us,
        }
    )
    assert found.parts_us["launch"] == 1.7
    assert found.parts_us["epilogue"] == pytest.approx(0.75 + 0.05 * 4)  # 4 KB of sums
    assert found.parts_us["tail wave"] == found.parts_us["split"] == 0.0
    # 1.7 + 0.9 + 0.95 us around a main loop of 2.7 us.
    assert found.bound is Bound.LAUNCH


def test_the_parts_are_the_prediction() -> None:
    for m, protocol in ((1, Protocol.PLAIN), (64, Protocol.CHAINED), (700, Protocol.PLAIN)):
        found = of(m=m, protocol=protocol)
        predicted = predict_us(PROBLEM, CONFIG, PLAN, RESOURCES, m, gpu=H200, protocol=protocol)
        assert found is not None
        assert found.model_us == pytest.approx(predicted)
        assert sum(found.parts_us.values()) == pytest.approx(predicted)


def test_near_the_floor_the_floor_binds() -> None:
    floor = (8_388_608 + 262_144 + 131_072) / 4480e3
    assert [of(time_us=floor / share).bound for share in (1.0, 0.86)] == [Bound.MEMORY] * 2  # type: ignore[union-attr]
    found = of(time_us=floor / 0.84)
    assert found is not None
    assert found.bound is Bound.LAUNCH
    compute = of(m=4096, time_us=2 * 4096**3 / 634e6)
    assert compute is not None
    assert compute.floor_bound is compute.bound is Bound.TENSOR


def test_a_kernel_that_fits_no_sm_has_none() -> None:
    assert of(resources=Resources(255, 0, 300_000)) is None


LIMITS = WaveLimits(1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
EVEN = Prediction(2, 264, 264, 1e4, 1.0, 1.0, 9.0, 0.0, 1.0, 0.0, LIMITS)


@pytest.mark.parametrize(
    ("name", "bound"),
    [
        ("memory", Bound.MEMORY),
        ("in_flight", Bound.IN_FLIGHT),
        ("l2", Bound.L2),
        ("issue", Bound.ISSUE),
        ("tensor", Bound.TENSOR),
        ("chain", Bound.LATENCY),
    ],
)
def test_the_longest_limit_of_the_main_loop_binds(name: str, bound: Bound) -> None:
    assert bound_of(replace(EVEN, limits=replace(LIMITS, **{name: 1.5}))) is bound


def test_what_is_around_the_main_loop_may_bind_instead() -> None:
    assert bound_of(replace(EVEN, fill_us=8.5)) is Bound.LAUNCH
    assert bound_of(replace(EVEN, tail_us=4.6)) is Bound.TAIL
    assert bound_of(replace(EVEN, tail_us=4.4)) is Bound.MEMORY
    assert bound_of(replace(EVEN, split_us=8.0)) is Bound.LAUNCH


def test_a_last_wave_costs_more_than_its_share() -> None:
    """One CTA an SM: 132 at once. 128 tiles along N times 2 along M are 1.94 waves."""
    alone = Resources(96, 0, 150_000)
    found, full = of(resources=alone, m=16), of(resources=alone, m=8)
    assert found is not None
    assert full is not None
    assert found.waves == pytest.approx(256 / 132)
    assert found.parts_us["tail wave"] > 0
    assert full.waves < 1
    assert full.parts_us["tail wave"] == 0
