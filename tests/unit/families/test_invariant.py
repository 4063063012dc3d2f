"""Batch-invariant configs: there are some for every batch, of one order, and no others."""

from __future__ import annotations

import pytest

from ptxgen.arch import ARCHS
from ptxgen.errors import ConfigError
from ptxgen.families import FAMILIES
from ptxgen.families.invariant import (
    InvariantFamily,
    invariant_default,
    invariant_families,
    invariant_key,
    is_invariant,
)
from ptxgen.families.mma import MMA
from ptxgen.problem import M_BUCKETS, Problem

PROBLEMS = (
    Problem(4096, 4096),
    Problem(48, 64, 32, "bf16", "int", bias=True),
    Problem(28672, 8192, 64),
    Problem(1440, 2880, 2880, zero="int"),
    Problem(152064, 27392, 32, "bf16"),
)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.key())
def test_every_batch_has_a_legal_default_of_the_one_order(problem: Problem, arch: str) -> None:
    for m in (*M_BUCKETS, 5, 65, 100_000):
        config = invariant_default(problem, ARCHS[arch], m)
        assert MMA.violations(problem, config, ARCHS[arch]) == []
        assert MMA.summation_key(problem, config) == invariant_key(problem)


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_90a"])
def test_candidates_are_the_familys_of_the_one_order(arch: str) -> None:
    problem, family = PROBLEMS[0], InvariantFamily(MMA)
    for m in (1, 16, 64, 8192):
        found = list(family.candidates(problem, ARCHS[arch], m))
        assert len(found) >= 5
        assert len({config.key() for config in found}) == len(found)
        assert all(is_invariant(problem, config) for config in found)
        assert all(not MMA.violations(problem, config, ARCHS[arch]) for config in found)
    all_of_8 = list(MMA.candidates(problem, ARCHS[arch], 8))
    assert list(family.candidates(problem, ARCHS[arch], 8)) == [
        config for config in all_of_8 if is_invariant(problem, config)
    ]
    assert len(list(family.candidates(problem, ARCHS[arch], 8))) < len(all_of_8)


def test_a_batch_beyond_the_familys_range_gets_the_candidates_of_the_largest_within() -> None:
    problem, arch, family = PROBLEMS[0], ARCHS["sm_90a"], InvariantFamily(MMA)
    assert list(MMA.candidates(problem, arch, 4096)) == []
    assert list(family.candidates(problem, arch, 4096)) == list(
        family.candidates(problem, arch, 64)
    )


def test_only_families_with_such_kernels_are_offered() -> None:
    assert list(invariant_families()) == ["mma"]
    without = {name: family for name, family in FAMILIES.items() if name != "mma"}
    with pytest.raises(ConfigError, match=r"family 'mma', which is not among wgmma"):
        invariant_families(without)


def test_the_key_does_not_depend_on_the_gpu_or_the_batch() -> None:
    assert len({invariant_key(Problem(n, k)) for n in (64, 8192) for k in (1024, 8192)}) == 1
