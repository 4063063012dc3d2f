"""The space: legal set, lookup, Optuna's view, neighbours, and why the rest is illegal."""

from __future__ import annotations

import itertools
import random

import pytest
from search_fakes import BASE, LARGE, PROBLEM, SMALL, FakeFamily, families

from ptxgen.arch import ARCHS, arch_named
from ptxgen.config import KernelConfig
from ptxgen.errors import ConfigError
from ptxgen.families import FAMILIES, violations
from ptxgen.problem import Problem
from search.space import FULL_PRODUCT, Space

ARCH = arch_named("sm_90a")


def make(searched: dict = SMALL) -> Space:  # type: ignore[type-arg]
    return Space(PROBLEM, ARCH, 8, families(searched))


def with_knobs(**knobs: int) -> KernelConfig:
    own = {name: value for name, value in BASE.to_dict().items() if name != "family"}
    return type(BASE).from_knobs({**own, **knobs})


def test_it_holds_exactly_the_legal_configs() -> None:
    space = make()
    expected = {
        with_knobs(block_n=n, num_stages=s, split_k=k).key()
        for n, s, k in itertools.product((32, 64, 128), (2, 3, 4, 6), (1, 2, 4))
        if n * s <= 512
    }
    assert {config.key() for config in space} == expected
    assert len(space) == 33
    assert all(space[key].key() == key for key in expected)
    assert space.get("mma(nonsense)") is None
    assert with_knobs(block_n=128, num_stages=6) not in space


def test_parameters_and_configs_are_inverse() -> None:
    space = make(LARGE)
    distributions = space.distributions()
    for config in space:
        params = space.params(config)
        assert params.keys() == distributions.keys()
        assert all(params[name] in distributions[name].choices for name in params)
        assert space.from_params(params) == config


def test_illegal_parameters_have_no_config() -> None:
    space = make()
    assert (
        space.from_params({**space.params(BASE), "mma.block_n": 128, "mma.num_stages": 6}) is None
    )


def test_the_nearest_config_is_the_nearest_by_brute_force() -> None:
    space = make(LARGE)
    rng = random.Random(3)  # noqa: S311 (no secret)
    allowed = {config.key() for config in space if rng.random() < 0.3}

    def distance(config: KernelConfig, knobs: dict[str, int]) -> int:
        own = config.to_dict()
        return sum(
            abs(choices.index(own[name]) - choices.index(knobs[name]))
            for name, choices in LARGE.items()
        )

    for _ in range(50):
        knobs = {name: rng.choice(choices) for name, choices in LARGE.items()}
        params = {**space.params(BASE), **{f"mma.{name}": v for name, v in knobs.items()}}
        found = space.nearest(params, allowed)
        assert found is not None
        assert found.key() in allowed
        least = min(distance(space[key], knobs) for key in allowed)
        assert distance(found, knobs) == least
    assert space.nearest(space.params(BASE), set()) is None


def test_an_added_default_is_found_and_near() -> None:
    space = make()
    outside = with_knobs(warps_k=8)
    space.nearest(space.params(BASE), set(SMALL))  # builds the table before the addition
    # A default may lie outside of what is worth trying, but not outside of the knobs' choices.
    family = FakeFamily({**SMALL, "warps_k": (4, 8)})
    space = Space(PROBLEM, ARCH, 8, {"mma": family})
    assert outside in space
    space.add(outside)
    assert len(space) == 66


def test_neighbours_differ_in_one_knob() -> None:
    space = make(LARGE)
    found = list(space.neighbours(BASE))
    expected = [
        config
        for config in space
        if sum(config.to_dict()[name] != BASE.to_dict()[name] for name in LARGE) == 1
    ]
    assert {config.key() for config in found} == {config.key() for config in expected}
    assert len(found) == len(expected)


def test_shuffling_is_a_permutation_that_the_seed_fixes() -> None:
    space = make()
    assert space.shuffled(1) == space.shuffled(1)
    assert space.shuffled(1) != space.shuffled(2)
    assert sorted(c.key() for c in space.shuffled(5)) == sorted(c.key() for c in space)


def test_rejections_of_a_small_product_are_exact() -> None:
    found = make().rejections()
    assert (found.product, found.examined, found.legal) == (36, 36, 33)
    assert found.by_rule == {"block_n * num_stages = # is more than #": 3}


def test_rejections_of_a_large_product_are_sampled() -> None:
    found = Space(PROBLEM, ARCH, 8).rejections(seed=1)
    assert found.examined == FULL_PRODUCT * len(FAMILIES) < found.product
    assert 0 < found.legal < found.examined
    assert not any(character.isdigit() for rule in found.by_rule for character in rule)


def test_an_empty_space_is_an_error() -> None:
    class Nothing(FakeFamily):
        def candidates(self, problem, arch, m):  # type: ignore[no-untyped-def]
            return iter(())

    with pytest.raises(ConfigError, match=r"no config is legal for n4096.* at M = 8 on sm_90a"):
        Space(PROBLEM, ARCH, 8, {"mma": Nothing(SMALL)})


@pytest.mark.parametrize("arch", sorted(ARCHS))
@pytest.mark.parametrize("m", [1, 16, 256])
def test_the_real_spaces_are_legal_and_hold_the_default(arch: str, m: int) -> None:
    problem = Problem(1024, 1024, 128, "bf16", "int")
    spec = arch_named(arch)
    space = Space(problem, spec, m)
    sample = space.shuffled(0)[:100]
    assert all(not violations(problem, config, spec) for config in sample)
    default = FAMILIES["mma"].default_config(problem, spec, m, 132)
    space.add(default)
    assert space.from_params(space.params(default)) == default


def test_what_only_differs_in_a_chain_is_one_config_outside_of_it() -> None:
    chained, plain = (Space(PROBLEM, ARCH, 8, chained=value) for value in (True, False))
    assert {config.to_dict()["trigger"] for config in chained} == {"start", "waited"}
    assert {config.key() for config in plain} == {config.plain().key() for config in chained}
    assert len(plain) < len(chained)
