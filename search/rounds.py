"""Rounds: contenders timed in turns in one window, so that clocks and neighbours hit all alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ptxgen.evidence import Evidence
from ptxgen.timing import Timing
from search.steady import Steady

REPLAYS = 3
"""Replays of a contender in each round; the round counts with their median."""

WINDOW_S = 2.0
"""Where the first round says that all of them would take longer, later rounds replay once: kernels
of milliseconds warm up within a replay, and rounds say more than replays."""


class Timed(Protocol):
    """What can be timed; ptxgen.timing.TimedGraph, or a fake."""

    def samples_us(self, count: int, warmups: int = 2) -> list[float]:
        """Samples after warm-ups, microseconds per launch."""
        ...

    def keep_busy(self) -> None:
        """Queues a few milliseconds of the same work and returns at once."""
        ...


@dataclass(frozen=True, slots=True)
class Window:
    """What the rounds gave.

    Attributes:
        timings: in the order of the contenders; sample i of each is of the same round.
        evidence: over all rounds.
        fault: why they decide nothing; empty where they do.
    """

    timings: list[Timing]
    evidence: Evidence
    fault: str = ""


def time_in_turns(
    contenders: Sequence[Timed],
    rounds: int,
    steady: Steady,
    clock: Callable[[], float] = time.monotonic,
) -> Window:
    """Times contenders round by round; a round of a throttled GPU is repeated as a whole.

    Ends with the first round that stays faulty. The clock gives seconds since any moment.
    """
    samples: list[list[float]] = [[] for _ in contenders]
    evidence: list[Evidence] = []
    replays, warmups = REPLAYS, 1
    for number in range(rounds):
        begin = clock()
        order = [(index + number) % len(contenders) for index in range(len(contenders))]
        # No contender always follows the same one: the order moves on with each round.

        def one_round(
            order: list[int] = order, replays: int = replays, warmups: int = warmups
        ) -> dict[int, float]:
            return {
                place: statistics.median(contenders[place].samples_us(replays, warmups=warmups))
                for place in order
            }

        taken = steady.take(one_round, contenders[order[-1]].keep_busy)
        evidence.append(taken.evidence)
        if number == 0 and rounds * (clock() - begin) > WINDOW_S:
            replays, warmups = 1, 0
        for place, median_us in taken.value.items():
            samples[place].append(median_us)
        if taken.fault:
            return Window(
                [Timing.of(each) for each in samples],
                Evidence.over(evidence),
                f"round {number + 1} of {rounds}: {taken.fault}",
            )
    return Window([Timing.of(each) for each in samples], Evidence.over(evidence))
