"""Finals: who gets there, which times are a tie, and who wins."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ptxgen.bootstrap import Interval, paired_ratio
from ptxgen.outcome import Outcome, Status
from search.evaluator import Candidate

FINALISTS = 8
"""Helion re-times its top 8; the winner by screening alone is often luck."""

MAX_TIE = 0.02
"""A difference above this share is never called a tie, however noisy the window was."""


@dataclass(frozen=True, slots=True)
class Final:
    """One finalist of ours and how it ended."""

    candidate: Candidate
    outcome: Outcome

    @property
    def key(self) -> str:
        return self.candidate.config.key()

    @property
    def time_us(self) -> float:
        """Infinite where it did not end well: a time that is no positive number never wins."""
        time_us = self.outcome.time_us
        if self.outcome.status is not Status.OK or time_us is None:
            return float("inf")
        return time_us if math.isfinite(time_us) and time_us > 0 else float("inf")


@dataclass(frozen=True, slots=True)
class Decision:
    """The winner, and everyone who cannot be told from the fastest (the winner included)."""

    winner: Final
    ties: tuple[Final, ...]


def decide(
    finals: Sequence[Final],
    default_key: str,
    neighbour_keys: frozenset[str],
    paired: bool = True,
) -> Decision | None:
    """The winner of the finals; None where nobody ended well.

    Args:
        finals: our contenders.
        default_key: key of the built-in default.
        neighbour_keys: keys of the configs that serve neighbouring buckets.
        paired: whether sample i of all of them is of the same round.

    Among those that cannot be told from the fastest one the default wins, then a config that
    already serves a neighbouring bucket, then the one with less shared memory, then the faster one.
    The winner is never slower than a default that took part: neither by its time nor by the ratio
    of the same rounds.
    """
    good = [item for item in finals if item.time_us < float("inf")]
    if not good:
        return None
    fastest = min(good, key=lambda item: (item.time_us, item.key))
    ties = tuple(item for item in good if _tied(item, fastest, paired))
    ranked = sorted(
        ties,
        key=lambda item: (
            item.key != default_key,
            item.key not in neighbour_keys,
            item.candidate.plan.smem_bytes,
            item.time_us,
            item.key,
        ),
    )
    default = next((item for item in good if item.key == default_key), None)
    if default is None:
        return Decision(ranked[0], ties)
    # A tie breaker must not make it slower than the default; the default itself always qualifies.
    for item in (ranked[0], fastest, default):
        if _not_slower(item, default, paired):
            return Decision(item, ties if item in ties else (*ties, item))
    return Decision(default, ties)


def ratio_of(other: Outcome, ours: Outcome) -> Interval | None:
    """Other time over ours, paired round by round; None where they were not timed in turns."""
    count = len(ours.samples_us)
    if count < 2 or len(other.samples_us) != count or other.status is not Status.OK:
        return None
    if min(*ours.samples_us, *other.samples_us) <= 0:
        return None
    return paired_ratio(other.samples_us, ours.samples_us)


def _not_slower(item: Final, default: Final, paired: bool) -> bool:
    ratio = ratio_of(default.outcome, item.outcome) if paired else None
    return item.time_us <= default.time_us and (ratio is None or ratio.median >= 1)


def _tied(item: Final, fastest: Final, paired: bool) -> bool:
    """Whether the same rounds cannot tell them apart; by the spread where they share no rounds."""
    if item is fastest:
        return True
    if item.time_us > fastest.time_us * (1 + MAX_TIE):
        return False
    ratio = ratio_of(item.outcome, fastest.outcome) if paired else None
    if ratio is not None:
        return ratio.low <= 1
    spread = max(item.outcome.spread or 0.0, fastest.outcome.spread or 0.0)
    return item.time_us <= fastest.time_us * (1 + spread)
