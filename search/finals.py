"""Finals: who gets there, which times are a tie, and who wins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
        """Infinite where it did not end well."""
        ok = self.outcome.status is Status.OK and self.outcome.time_us is not None
        return self.outcome.time_us if ok and self.outcome.time_us else float("inf")


@dataclass(frozen=True, slots=True)
class Decision:
    """The winner, and everyone who cannot be told from the fastest (the winner included)."""

    winner: Final
    ties: tuple[Final, ...]


def decide(
    finals: Sequence[Final], default_key: str, neighbour_keys: frozenset[str]
) -> Decision | None:
    """The winner of the finals; None where nobody ended well.

    Among those within the spread of the fastest one the default wins, then a config that already
    serves a neighbouring bucket, then the one with less shared memory, then the faster one. Hence
    the winner is never slower than a default that took part.
    """
    good = [item for item in finals if item.time_us < float("inf")]
    if not good:
        return None
    fastest = min(good, key=lambda item: (item.time_us, item.key))
    ties = tuple(item for item in good if _tied(item, fastest))
    winner = min(
        ties,
        key=lambda item: (
            item.key != default_key,
            item.key not in neighbour_keys,
            item.candidate.plan.smem_bytes,
            item.time_us,
            item.key,
        ),
    )
    default_us = min((item.time_us for item in good if item.key == default_key), default=None)
    if default_us is not None and winner.time_us > default_us:
        winner = fastest  # a tie breaker must not make it slower than the default
    return Decision(winner, ties)


def _tied(item: Final, fastest: Final) -> bool:
    spread = max(item.outcome.spread or 0.0, fastest.outcome.spread or 0.0)
    return item.time_us <= fastest.time_us * (1 + min(spread, MAX_TIE))
