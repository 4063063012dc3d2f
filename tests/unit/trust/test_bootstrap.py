"""The exact bootstrap of the median, against every resample there is and against sampling."""

from __future__ import annotations

import random
import statistics
from collections import Counter
from itertools import product

import pytest

from ptxgen.bootstrap import median_interval, paired_ratio


@pytest.mark.parametrize("count", range(1, 8))
@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.95, 0.99])
def test_small_samples_against_every_resample(count: int, confidence: float) -> None:
    """All count ** count resamples, one by one."""
    rng = random.Random(count)  # noqa: S311
    values = [rng.uniform(5, 6) for _ in range(count)]
    medians = Counter(statistics.median(draw) for draw in product(values, repeat=count))
    total, tail = count**count, (1 - confidence) / 2

    def end(ordered: list[float]) -> float:
        seen = 0
        for value in ordered:
            seen += medians[value]
            if seen / total > tail:
                return value
        return ordered[-1]

    interval = median_interval(values, confidence)
    assert interval.median == statistics.median(values)
    assert interval.low == pytest.approx(end(sorted(medians)))
    assert interval.high == pytest.approx(end(sorted(medians, reverse=True)))


def test_it_covers_the_true_median_about_as_often_as_it_says() -> None:
    """11 rounds: nominally 95 %; order statistics give 93 to 99 % for a continuous distribution."""
    rng = random.Random(1)  # noqa: S311
    covered = sum(
        median_interval([rng.gauss(10.0, 1.0) for _ in range(11)]).holds(10.0) for _ in range(2000)
    )
    assert 0.92 < covered / 2000 < 0.99


def test_the_same_values_give_the_same_interval_in_any_order() -> None:
    values = [5.0, 5.5, 4.5, 6.0, 5.25]
    assert median_interval(values) == median_interval(sorted(values))


def test_one_wild_round_moves_neither_median_nor_interval_far() -> None:
    values = [5.0 + 0.01 * i for i in range(11)]
    wild = [*values[:-1], 5000.0]
    assert median_interval(wild).median == median_interval(values).median
    assert median_interval(wild).high < 5.2


def test_a_ratio_of_rounds_cancels_what_slows_a_round_down() -> None:
    slowdown = [1.0, 1.0, 1.5, 1.5, 1.2, 3.0, 1.0]
    ours = [4.0 * factor for factor in slowdown]
    other = [5.0 * factor for factor in slowdown]
    ratio = paired_ratio(other, ours)
    assert (ratio.low, ratio.median, ratio.high) == pytest.approx((1.25, 1.25, 1.25))


def test_what_cannot_be_paired_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one value"):
        median_interval([])
    with pytest.raises(ValueError, match=r"shorter|longer"):
        paired_ratio([1.0, 2.0], [1.0])
