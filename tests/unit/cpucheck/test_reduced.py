"""Reduced and shrunk problems: kinds mean what they say, and what a config sees is kept."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from ptxgen.arch import ARCHS
from ptxgen.cpucheck.reduced import (
    GROUPS,
    K_KINDS,
    M_KINDS,
    N_KINDS,
    RINGS,
    WHOLE_K,
    Case,
    Kinds,
    reduced_case,
    work,
)
from ptxgen.cpucheck.shrink import shrink
from ptxgen.families.mma.config import MmaConfig
from ptxgen.families.mma.shape import Shape
from ptxgen.problem import Problem

SM90 = ARCHS["sm_90a"]
CONFIG = MmaConfig(16, 16, 48, 48, 256, 2, 3, 1, "accumulators", False, 1)
KINDS = Kinds("fp16", "sym", 64, False, "whole", "whole", "whole", "full")


@pytest.mark.parametrize(
    ("group", "m", "n", "k", "ring"), list(product(GROUPS, M_KINDS, N_KINDS, K_KINDS, RINGS))
)
def test_kinds_mean_what_they_say(group: int, m: str, n: str, k: str, ring: str) -> None:
    case = reduced_case(CONFIG, SM90, replace(KINDS, group=group, m=m, n=n, k=k, ring=ring))
    if group == 128 and k == "inputs":
        assert case == ["K has no kind 'inputs' here"]
        return
    if group == WHOLE_K and (k, ring) == ("blocks", "single"):
        assert case == ["K = 128 has no groups of -1"]  # that K is a group of 128
        return
    assert isinstance(case, Case)
    shape = Shape(case.problem, CONFIG)
    assert case.m == {"one": 1, "whole": 16, "under": 15, "over": 17}[m]
    assert case.problem.n == {"whole": 48, "under": 40, "over": 56}[n]
    assert shape.k_tail == (k != "whole")
    assert shape.k_block_tail == (k == "blocks")
    assert (case.problem.k % 128 != 0) == (k == "inputs")
    assert shape.total_stages == {"single": 1, "full": 3, "turns": 7}[ring]
    assert case.problem.whole_k == (group == WHOLE_K)


def test_split_ctas_get_different_numbers_of_stages() -> None:
    case = reduced_case(replace(CONFIG, split_k=4), SM90, KINDS)
    assert isinstance(case, Case)
    assert Shape(case.problem, CONFIG).total_stages % 4 == 1


def test_reasons_are_told() -> None:
    found = reduced_case(replace(CONFIG, warp_m=3), SM90, KINDS)
    assert isinstance(found, list)
    assert "warp_m = 3" in found[0]
    too_much = replace(CONFIG, split_k=16, block_m=64, warp_m=64, block_k=1024, warps_k=1)
    found = reduced_case(too_much, SM90, replace(KINDS, ring="turns"))
    assert isinstance(found, list)
    assert any("warp instructions are more than" in reason for reason in found)


@pytest.mark.parametrize(
    "problem",
    [
        Problem(4096, 4096),
        Problem(232, 2752, 64, "bf16", "int", True),
        Problem(1440, 7392, 32),
        Problem(48, 11008, 11008),
        Problem(16, 256),
    ],
    ids=lambda problem: problem.key(),
)
@pytest.mark.parametrize("m", [1, 16, 17, 300])
def test_a_shrunk_problem_has_the_same_tails(problem: Problem, m: int) -> None:
    small = shrink(problem, CONFIG, m)
    assert small.problem.n % 48 == problem.n % 48
    assert small.problem.k % 256 == problem.k % 256
    assert small.m % 16 == m % 16
    kept = ("dtype", "zero", "bias", "whole_k")
    assert all(getattr(small.problem, name) == getattr(problem, name) for name in kept)
    assert small.problem.n <= min(problem.n, 2 * 48)
    assert small.m <= min(m, 2 * 16)
    stages = Shape(small.problem, CONFIG).total_stages
    assert stages == min(Shape(problem, CONFIG).total_stages, 7 + (problem.k % 256 > 0))
    assert work(small.problem, CONFIG, small.m) <= work(problem, CONFIG, m)


def test_a_small_problem_stays() -> None:
    problem = Problem(40, 512)
    assert shrink(problem, CONFIG, 3) == shrink(problem, CONFIG, 3)
    assert shrink(problem, CONFIG, 3).problem == problem
