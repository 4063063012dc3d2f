"""Contenders in turns: ratios stay right while the clock moves, and the tie set knows its noise."""

from __future__ import annotations

import math
import random

import pytest
from fake_gpu import FakeGpu, FakeKernel

from ptxgen.bootstrap import paired_ratio
from ptxgen.evidence import State
from search.rounds import Window, time_in_turns
from search.steady import Steady

ROUNDS = 11


def window(gpu: FakeGpu, *cycles: float, rounds: int = ROUNDS) -> Window:
    steady = Steady(gpu, lambda: None, sleep=gpu.sleep)
    return time_in_turns([FakeKernel(gpu, each) for each in cycles], rounds, steady)


def capped(mhz: float) -> tuple[str, ...]:
    return ("sw_power_cap",) if mhz < 1900 else ()


def test_samples_come_in_rounds_and_every_contender_is_in_each() -> None:
    gpu = FakeGpu(lambda _: 1980.0)
    result = window(gpu, 20000, 30000, 40000, rounds=5)
    assert [len(timing.samples_us) for timing in result.timings] == [5, 5, 5]
    assert gpu.samples == 5 * 3 * (3 + 1)  # three replays and a warm-up each
    assert [timing.median_us for timing in result.timings] == pytest.approx(
        [20000 / 1980, 30000 / 1980, 40000 / 1980]
    )


@pytest.mark.parametrize("seed", range(10))
def test_the_paired_ratio_is_right_while_the_clock_falls_by_a_third(seed: int) -> None:
    """The plain order of times would be wrong: some rounds run at 2/3 of the others' clock."""
    rng = random.Random(seed)  # noqa: S311
    drop_at = rng.uniform(0.2, 0.8)
    total_us = ROUNDS * 4 * (20000 + 21000) / 1980

    def clock(now_us: float) -> float:
        return 1980.0 if now_us < drop_at * total_us else 1320.0

    gpu = FakeGpu(clock, lambda now: capped(clock(now)), jitter=lambda _: 1 + rng.gauss(0.0, 0.002))
    fast, slow = window(gpu, 20000, 21000).timings
    ratio = paired_ratio(slow.samples_us, fast.samples_us)
    assert ratio.median == pytest.approx(1.05, abs=0.01)
    assert ratio.low > 1
    # One after the other, as most tuners do it, the same two would be told apart the wrong way:
    alone = FakeGpu(clock)
    first = [FakeKernel(alone, 21000).samples_us(1)[0] for _ in range(5)]
    alone.now_us = total_us
    second = [FakeKernel(alone, 20000).samples_us(1)[0] for _ in range(5)]
    assert max(first) < min(second)


@pytest.mark.parametrize("period_us", [70.0, 411.0, 5000.0])
def test_a_swinging_clock_does_not_bend_the_ratio(period_us: float) -> None:
    gpu = FakeGpu(lambda now: 1700 + 250 * math.sin(now / period_us))
    fast, slow = window(gpu, 20000, 23000).timings
    assert paired_ratio(slow.samples_us, fast.samples_us).median == pytest.approx(1.15, abs=0.06)


def test_a_throttled_round_is_repeated_as_a_whole() -> None:
    """A thermal slowdown in the middle leaves no trace but its mention."""
    step_us = 4 * (20000 + 21000) / 1980

    def hot(now_us: float) -> bool:
        return 3.4 * step_us < now_us < 3.4 * step_us + 200_000

    gpu = FakeGpu(
        lambda now: 660.0 if hot(now) else 1980.0,
        lambda now: ("hw_thermal_slowdown",) if hot(now) else (),
    )
    result = window(gpu, 20000, 21000)
    assert result.fault == ""
    assert result.evidence.dropped == ("the GPU was throttled (hw_thermal_slowdown)",)
    assert [timing.spread for timing in result.timings] == pytest.approx([0.0, 0.0])
    assert [len(timing.samples_us) for timing in result.timings] == [ROUNDS, ROUNDS]
    assert result.evidence.state is State.COOL


def test_a_window_that_stays_throttled_decides_nothing() -> None:
    gpu = FakeGpu(lambda _: 990.0, lambda _: ("hw_power_brake_slowdown",))
    result = window(gpu, 20000, 21000)
    assert result.fault == (
        "round 1 of 11: the GPU was throttled (hw_power_brake_slowdown), 4 times in a row"
    )


def test_a_power_capped_window_counts_and_is_called_sustained() -> None:
    gpu = FakeGpu(lambda _: 1330.0, lambda _: ("sw_power_cap",))
    result = window(gpu, 20000, 21000)
    assert result.fault == ""
    assert result.evidence.state is State.SUSTAINED
    assert result.evidence.lowest_sm_mhz == 1330
