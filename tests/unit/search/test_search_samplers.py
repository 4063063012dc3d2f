"""Samplers: seeds first, every config at most once, good ones found, bad ones avoided."""

from __future__ import annotations

import pytest
from search_fakes import BASE, LARGE, PROBLEM, SMALL, families, true_us

from ptxgen.arch import arch_named
from ptxgen.config import KernelConfig
from ptxgen.errors import ConfigError
from ptxgen.outcome import Outcome, Status
from search.samplers import EXHAUSTIVE_UP_TO, Sampler, SamplerName, choose_sampler, startup_trials
from search.space import Space

ARCH = arch_named("sm_90a")
NAMES: tuple[SamplerName, ...] = ("tpe", "random", "exhaustive")


def make(searched: dict = SMALL) -> Space:  # type: ignore[type-arg]
    return Space(PROBLEM, ARCH, 8, families(searched))


def outcome_of(config: KernelConfig) -> Outcome:
    return Outcome(Status.OK, time_us=true_us(config))


def drain(sampler: Sampler, count: int) -> list[KernelConfig]:
    """Asks and tells; infeasible is every config with split_k = 8."""
    asked = []
    for _ in range(count):
        suggestion = sampler.ask()
        if suggestion is None:
            break
        bad = suggestion.config.to_dict()["split_k"] == 8
        outcome = Outcome(Status.WRONG, "no") if bad else outcome_of(suggestion.config)
        sampler.tell(suggestion, outcome)
        asked.append(suggestion.config)
    return asked


@pytest.mark.parametrize("name", NAMES)
def test_every_legal_config_comes_exactly_once(name: SamplerName) -> None:
    space = make()
    sampler = Sampler(space, name, seed=1)
    asked = drain(sampler, 1000)
    assert sorted(c.key() for c in asked) == sorted(c.key() for c in space)
    assert sampler.ask() is None
    assert sampler.remaining == 0


@pytest.mark.parametrize("name", NAMES)
def test_seeds_come_first_and_remembered_ones_never(name: SamplerName) -> None:
    space = make()
    first, second, known, *_ = space.shuffled(9)
    sampler = Sampler(space, name)
    sampler.remember(known, outcome_of(known))
    illegal = type(BASE).from_knobs(
        {**{n: v for n, v in BASE.to_dict().items() if n != "family"}, "block_n": 16}
    )
    sampler.enqueue([second, illegal, known, first, second])
    assert sampler.has_seeds
    assert [drain(sampler, 1)[0] for _ in range(2)] == [second, first]
    assert not sampler.has_seeds  # what is left of them was asked for already
    asked = [second, first, *drain(sampler, 1000)]
    assert known not in asked
    assert len(asked) == len(space) - 1


@pytest.mark.parametrize("name", NAMES)
def test_the_seed_fixes_the_order(name: SamplerName) -> None:
    runs = [drain(Sampler(make(LARGE), name, seed=s), 40) for s in (4, 4, 5)]
    assert runs[0] == runs[1] != runs[2]


def test_tpe_beats_random_search_over_seeds() -> None:
    space = make(LARGE)
    best: dict[str, list[float]] = {"tpe": [], "random": []}
    for seed in range(5):
        for name in ("tpe", "random"):
            asked = drain(Sampler(space, name, seed), 70)  # type: ignore[arg-type]
            best[name].append(min(true_us(config) for config in asked))
    assert sum(best["tpe"]) < sum(best["random"])


def test_tpe_avoids_what_failed() -> None:
    asked = drain(Sampler(make(LARGE), "tpe", seed=0), 90)
    startup = startup_trials(len(make(LARGE)))
    bad = [config.to_dict()["split_k"] == 8 for config in asked]
    assert sum(bad[:startup]) / startup > 0.08  # one choice of six
    assert sum(bad[startup:]) / len(bad[startup:]) < 0.08


def test_tpe_learns_from_remembered_trials_without_asking_them_again() -> None:
    space = make(LARGE)
    earlier = space.shuffled(11)[:60]
    sampler = Sampler(space, "tpe", seed=2)
    for config in earlier:
        sampler.remember(config, outcome_of(config))
    asked = drain(sampler, 20)
    assert not {c.key() for c in asked} & {c.key() for c in earlier}
    mean = sum(true_us(config) for config in space) / len(space)
    assert sum(true_us(config) for config in asked) / len(asked) < mean


def test_pending_suggestions_are_distinct() -> None:
    sampler = Sampler(make(LARGE), "tpe", seed=3)
    drain(sampler, 40)
    pending = [sampler.ask() for _ in range(30)]
    assert len({item.config.key() for item in pending if item}) == 30


def test_choice_by_size_and_by_name() -> None:
    small, large = make(SMALL), make(LARGE)
    assert len(small) <= EXHAUSTIVE_UP_TO < len(large)
    assert choose_sampler(None, small) == "exhaustive"
    assert choose_sampler(None, large) == "tpe"
    assert choose_sampler("random", small) == "random"
    with pytest.raises(ConfigError, match="'genetic' is not known; choose one of tpe, random"):
        choose_sampler("genetic", small)
