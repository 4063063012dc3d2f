"""Ties: what the same rounds cannot tell apart, whatever the window as a whole looked like."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable

import pytest
from search_fakes import BASE, PROBLEM, families

from ptxgen.arch import arch_named
from ptxgen.config import KernelConfig
from ptxgen.outcome import Outcome, Resources, Status
from ptxgen.timing import Timing
from search.evaluator import Candidate
from search.finals import Decision, Final, decide, ratio_of

ROUNDS = 11
FAMILY = families()["mma"]
ARCH = arch_named("sm_90a")
CONFIGS = sorted(
    FAMILY.candidates(PROBLEM, ARCH, 8),
    key=lambda config: FAMILY.plan(PROBLEM, config, ARCH).smem_bytes,
)
SMALLEST, LARGEST = CONFIGS[0], CONFIGS[-1]


def final(config: KernelConfig, samples: list[float]) -> Final:
    source = FAMILY.emit(PROBLEM, config, ARCH)
    candidate = Candidate(config, source.plan, "e", "/c", Resources(64, 0, 0), source.digest())
    timing = Timing.of(samples)
    outcome = Outcome(
        Status.OK, time_us=timing.median_us, spread=timing.spread, samples_us=timing.samples_us
    )
    return Final(candidate, outcome)


def window(seed: int, noise: float) -> Callable[[float], list[float]]:
    """Samples of a contender in one window whose clock swings by a third between rounds."""
    rng = random.Random(seed)  # noqa: S311
    swing = rng.sample([1.0] * 4 + [1.2] * 3 + [1.5] * 4, ROUNDS)
    return lambda time_us: [time_us * factor * (1 + rng.gauss(0, noise)) for factor in swing]


def decided(finals: list[Final], paired: bool = True) -> Decision:
    decision = decide(finals, BASE.key(), frozenset(), paired=paired)
    assert decision is not None
    return decision


@pytest.mark.parametrize("seed", range(20))
def test_a_difference_of_one_percent_is_seen_through_a_swinging_clock(seed: int) -> None:
    samples = window(seed, noise=0.001)
    finals = [final(LARGEST, samples(10.0)), final(SMALLEST, samples(10.1))]
    assert max(item.outcome.spread or 0.0 for item in finals) > 0.15
    decision = decided(finals)
    assert decision.winner.candidate.config == LARGEST
    assert [item.candidate.config for item in decision.ties] == [LARGEST]
    # By the spread of the window alone, unpaired, the two would be called a tie:
    assert len(decided(finals, paired=False).ties) == 2


@pytest.mark.parametrize("seed", range(20))
def test_equals_are_a_tie_and_the_one_with_less_shared_memory_wins(seed: int) -> None:
    samples = window(seed, noise=0.0)
    same = samples(10.0)
    decision = decided([final(LARGEST, same), final(SMALLEST, same)])
    assert len(decision.ties) == 2
    assert decision.winner.candidate.config == SMALLEST


def test_real_noise_makes_most_equals_a_tie() -> None:
    """95 % intervals: of equal pairs about one in twenty is told apart by chance, not more."""
    told_apart = 0
    for seed in range(300):
        samples = window(seed, noise=0.003)
        decision = decided([final(LARGEST, samples(10.0)), final(SMALLEST, samples(10.0))])
        told_apart += len(decision.ties) == 1
    assert told_apart < 300 * 0.12


@pytest.mark.parametrize("seed", range(50))
def test_the_winner_is_never_slower_than_the_default_in_either_sense(seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311
    samples = window(seed, noise=rng.choice((0.0, 0.003, 0.03)))
    chosen = rng.sample(CONFIGS, 6)
    finals = [final(item, samples(10 * rng.uniform(0.98, 1.05))) for item in chosen]
    default = final(BASE, samples(10.0))
    winner = decided([*finals, default]).winner
    assert winner.time_us <= default.time_us
    ratio = ratio_of(default.outcome, winner.outcome)
    assert ratio is not None
    assert ratio.median >= 1
    assert winner in decided([*finals, default]).ties


@pytest.mark.parametrize("time_us", [0.0, -1.0, float("nan"), float("-inf")])
def test_what_is_no_time_never_wins(time_us: float) -> None:
    broken = final(SMALLEST, [time_us] * ROUNDS)
    assert decide([broken], BASE.key(), frozenset()) is None
    good = final(LARGEST, [10.0] * ROUNDS)
    assert decided([broken, good]).winner is good
    assert decided([good, broken]).ties == (good,)


def test_samples_of_other_lengths_fall_back_to_the_spread() -> None:
    short = final(SMALLEST, [10.05, 10.0, 10.1])
    long = final(LARGEST, [10.0] * ROUNDS)
    assert statistics.median(short.outcome.samples_us) == 10.05
    assert len(decided([short, long]).ties) == 2
