"""Bootstrap interval of a median, exactly: no resampling, hence no seed and no luck of its own.

The median of a resample of n values is one of them (or the mean of two, where n is even), and its
probability follows from the binomial distribution. What a resampling bootstrap approaches with ever
more draws is therefore known in closed form.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """A median and the interval it is known to; low <= median <= high.

    Attributes:
        median: of the values.
        low: lower end of the 95 % bootstrap interval.
        high: upper end.
        count: values that it comes from.
    """

    median: float
    low: float
    high: float
    count: int

    def holds(self, value: float) -> bool:
        """Whether the value lies inside, ends included."""
        return self.low <= value <= self.high


def median_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """The percentile bootstrap interval of the median.

    Args:
        values: one at least, all finite.
        confidence: between 0 and 1.

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("an interval needs at least one value")
    ordered = sorted(values)
    pairs = _median_distribution(len(ordered))
    medians = sorted(((ordered[a] + ordered[b]) / 2, weight) for a, b, weight in pairs)
    tail = (1 - confidence) / 2
    return Interval(
        median=statistics.median(ordered),
        low=_quantile(medians, tail),
        high=-_quantile(sorted((-value, weight) for value, weight in medians), tail),
        count=len(ordered),
    )


def paired_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> Interval:
    """Median of numerator / denominator of the same round, and its interval.

    What slows a whole round down (a lower clock, a neighbour) slows both of a pair, so it cancels.

    Raises:
        ValueError: the sequences are empty or of different lengths.
    """
    return median_interval([a / b for a, b in zip(numerators, denominators, strict=True)])


def _quantile(weighted: list[tuple[float, float]], share: float) -> float:
    """Least value up to which more than a share of the weight lies."""
    total = 0.0
    for value, weight in weighted:
        total += weight
        if total > share:
            return value
    return weighted[-1][0]


@cache
def _median_distribution(n: int) -> tuple[tuple[int, int, float], ...]:
    """(a, b, probability): the resample's middle values are the ones of ranks a and b, from 0.

    n odd: both are the one in the middle. n even: a resample of halves h = n / 2 has its lower
    middle at a and its upper middle at b > a where h draws are <= a with a among them, and h are
    >= b with b among them.
    """
    if n % 2:
        below = [_at_least(n, (n + 1) // 2, rank / n) for rank in range(n + 1)]
        return tuple((rank, rank, below[rank + 1] - below[rank]) for rank in range(n))
    half = n // 2
    below = [_at_least(n, half, rank / n) for rank in range(n + 1)]
    found = []
    for a in range(n):
        low = ((a + 1) ** half - a**half) / n**half
        apart = 0.0
        for b in range(a + 1, n):
            high = ((n - b) ** half - (n - b - 1) ** half) / n**half
            weight = math.comb(n, half) * low * high
            found.append((a, b, weight))
            apart += weight
        found.append((a, a, max(0.0, below[a + 1] - below[a] - apart)))
    return tuple(found)


def _at_least(n: int, least: int, p: float) -> float:
    """Probability that at least so many of n draws of chance p come true."""
    return sum(math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(least, n + 1))
