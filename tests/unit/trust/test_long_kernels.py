"""Kernels of milliseconds: fewer launches a graph, fewer replays, the same number of rounds."""

from __future__ import annotations

import pytest
from fake_gpu import FakeGpu, FakeKernel

from ptxgen.timing import MIN_LAUNCHES, copies_for, launches_for, sample_count
from search.rounds import WINDOW_S, time_in_turns
from search.steady import Steady

MIB = 1 << 20


@pytest.mark.parametrize("copies", range(1, 40))
@pytest.mark.parametrize("floor_us", [0.0, 0.5, 2.0, 10.0, 63.0, 100.0, 800.0, 3000.0, 1e5])
def test_a_graph_rotates_evenly_and_is_long_enough(copies: int, floor_us: float) -> None:
    launches = launches_for(copies, floor_us)
    assert launches % copies == 0
    assert launches >= copies
    # 128 launches, or a millisecond of work: then the graph's start of 7 us is nothing.
    assert launches >= MIN_LAUNCHES or launches * floor_us >= 1000
    # Not a whole turn of the copies more than that needs.
    fewer = launches - copies
    assert fewer < copies or fewer < MIN_LAUNCHES
    if floor_us:
        assert fewer == 0 or fewer * floor_us < 1000


def test_short_kernels_fill_a_decode_step_and_long_ones_a_millisecond() -> None:
    assert launches_for(4) == launches_for(4, 2.0) == 128
    assert launches_for(28, 2.0) == 140
    assert launches_for(4, 20.0) == 52
    assert launches_for(2, 3200.0) == 2


def test_long_replays_are_fewer() -> None:
    assert sample_count(10.0, 16, 0.02) == 125
    assert sample_count(100.0, 16, 0.02) == 12
    assert sample_count(60.0, 16, 0.004) == 7  # 0.96 ms a replay
    assert sample_count(180.0, 16, 0.004) == 3  # 2.9 ms a replay
    assert sample_count(3200.0, 2, 0.02) == 3
    assert sample_count(0.001, 1, 10.0) == 200


def test_copies_follow_the_bytes_that_a_launch_moves() -> None:
    assert copies_for(8 * MIB, 60 * MIB) == 30
    assert copies_for(60 * MIB, 60 * MIB) == 4
    assert copies_for(600 * MIB, 60 * MIB) == 2  # one launch turns the L2 over; two alternate


class SlowKernel(FakeKernel):
    """Takes the host's time as well, a sample."""

    seconds = 0.06
    taken = 0
    now = 0.0  # of all of them

    def samples_us(self, count: int, warmups: int = 2) -> list[float]:
        self.taken += count + warmups
        SlowKernel.now += self.seconds * (count + warmups)
        return super().samples_us(count, warmups)


def test_a_window_of_slow_kernels_replays_once_a_round() -> None:
    gpu = FakeGpu(lambda _: 1980.0)
    steady = Steady(gpu, lambda: None, sleep=gpu.sleep)
    kernels = [SlowKernel(gpu, 20000), SlowKernel(gpu, 21000)]
    rounds = 6
    assert rounds * len(kernels) * 4 * SlowKernel.seconds > WINDOW_S
    begin = SlowKernel.now
    window = time_in_turns(kernels, rounds, steady, clock=lambda: SlowKernel.now)
    assert [len(timing.samples_us) for timing in window.timings] == [rounds, rounds]
    assert [kernel.taken for kernel in kernels] == [4 + 5, 4 + 5]
    assert SlowKernel.now - begin < 0.8 * rounds * len(kernels) * 4 * SlowKernel.seconds
