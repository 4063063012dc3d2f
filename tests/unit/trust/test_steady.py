"""Sample sets: throttled ones are dropped, waited for and repeated; the state is recorded."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fake_gpu import LIMITS, FakeReader, reading

from ptxgen.evidence import Evidence, GpuLimits, GpuReading, State, state_of
from search.steady import SLOWDOWNS, WAITS_S, SampleSet, Steady, fault_of

GOOD = reading()


class Bench:
    """Counts samples, waits and warm-ups of one Steady."""

    def __init__(self, reader: FakeReader, strict: bool = False) -> None:
        self.samples = 0
        self.waits: list[float] = []
        self.warms = 0
        self._steady = Steady(reader, self._warm, strict=strict, sleep=self.waits.append)

    def _warm(self) -> None:
        self.warms += 1

    def _sample(self) -> int:
        self.samples += 1
        return self.samples

    def take(self) -> SampleSet[int]:
        return self._steady.take(self._sample, lambda: None)


def test_a_good_set_is_taken_at_once() -> None:
    bench = Bench(FakeReader(GOOD))
    taken = bench.take()
    assert (taken.value, taken.fault, bench.waits, bench.warms) == (1, "", [], 0)
    assert taken.evidence == Evidence.of(GOOD, GOOD, LIMITS)
    assert taken.evidence.state is State.COOL


@pytest.mark.parametrize("reason", sorted(SLOWDOWNS))
@pytest.mark.parametrize("place", ["before", "after"])
def test_a_throttled_set_is_dropped_waited_for_and_repeated(reason: str, place: str) -> None:
    bad = reading(throttle=(reason,))
    script = [bad, GOOD] if place == "before" else [GOOD, bad]
    bench = Bench(FakeReader(*script, GOOD))
    taken = bench.take()
    assert (taken.value, taken.fault) == (2, "")
    assert bench.waits == [WAITS_S[0]]
    assert bench.warms == 1
    assert taken.evidence.dropped == (f"the GPU was throttled ({reason})",)
    assert taken.evidence.throttle == ()


def test_a_gpu_that_stays_throttled_is_given_up_after_three_repetitions() -> None:
    bench = Bench(FakeReader(reading(throttle=("hw_thermal_slowdown",))))
    taken = bench.take()
    assert taken.fault == "the GPU was throttled (hw_thermal_slowdown), 4 times in a row"
    assert bench.samples == 4
    assert bench.waits == list(WAITS_S)
    assert len(taken.evidence.dropped) == 3
    assert taken.evidence.throttle == ("hw_thermal_slowdown",)


@pytest.mark.parametrize(
    ("sm_mhz", "kept"), [(1980, True), (1485, True), (1484, False), (345, False), (None, True)]
)
def test_below_three_quarters_of_the_boost_clock_nothing_counts(
    sm_mhz: int | None, kept: bool
) -> None:
    fault = fault_of(GOOD, reading(sm_mhz), LIMITS)
    assert (fault == "") == kept
    if not kept:
        assert fault == f"the SM clock was {sm_mhz} MHz, below 75% of 1980 MHz"


@pytest.mark.parametrize("reason", ["sw_power_cap", "applications_clocks"])
def test_a_low_clock_that_the_power_limit_or_the_user_explains_is_kept(reason: str) -> None:
    assert fault_of(GOOD, reading(1330, (reason,)), LIMITS) == ""
    assert fault_of(GOOD, reading(1330, (reason, "hw_slowdown")), LIMITS) != ""


def test_the_clock_of_an_idle_gpu_before_the_samples_does_not_count() -> None:
    assert fault_of(reading(345, ("gpu_idle",)), GOOD, LIMITS) == ""


def test_strict_drops_what_was_taken_beside_another_process() -> None:
    shared = reading(other_pids=(4711,))
    relaxed = Bench(FakeReader(shared)).take()
    assert relaxed.fault == ""
    assert relaxed.evidence.other_pids == (4711,)
    strict = Bench(FakeReader(shared), strict=True).take()
    assert strict.fault.startswith("other processes compute on the GPU (4711; --strict)")
    left = Bench(FakeReader(shared, shared, GOOD), strict=True).take()
    assert (left.value, left.fault) == (2, "")


def test_where_nvml_says_nothing_everything_is_taken_and_nothing_claimed() -> None:
    bench = Bench(FakeReader(GpuReading(), limits=GpuLimits()), strict=True)
    taken = bench.take()
    assert (taken.value, taken.fault) == (1, "")
    assert taken.evidence == Evidence(before=GpuReading(), after=GpuReading())
    assert taken.evidence.state is None


@pytest.mark.parametrize(
    ("change", "state"),
    [
        ({}, State.COOL),
        ({"throttle": ("sw_power_cap",)}, State.SUSTAINED),
        ({"power_w": 0.85 * 700}, State.SUSTAINED),
        ({"power_w": 0.84 * 700}, State.COOL),
        ({"sm_mhz": 1781}, State.SUSTAINED),  # 0.9 * 1980 = 1782
        ({"sm_mhz": 1782}, State.COOL),
        ({"throttle": None, "power_w": None}, State.COOL),
        ({"throttle": None, "power_w": None, "sm_mhz": None}, None),
    ],
)
def test_the_state_follows_from_cap_power_and_clock(
    change: dict[str, object], state: State | None
) -> None:
    assert state_of(replace(GOOD, **change), LIMITS) is state  # type: ignore[arg-type]


def test_several_sets_are_summed_up_by_their_worst() -> None:
    hot = reading(1400, ("sw_power_cap",), 690.0, (7,))
    parts = [
        Evidence.of(GOOD, GOOD, LIMITS),
        Evidence.of(GOOD, hot, LIMITS, ["the GPU was throttled (hw_slowdown)"]),
        Evidence.of(GOOD, reading(1900, other_pids=(3,)), LIMITS),
    ]
    total = Evidence.over(parts)
    assert total.state is State.SUSTAINED
    assert total.lowest_sm_mhz == 1400
    assert total.throttle == ("sw_power_cap",)
    assert total.other_pids == (3, 7)
    assert total.dropped == ("the GPU was throttled (hw_slowdown)",)
    assert (total.before, total.after) == (GOOD, reading(1900, other_pids=(3,)))
