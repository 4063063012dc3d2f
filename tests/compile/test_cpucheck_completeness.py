"""No legal pair is missing from the mma family's covering set: checked against an enumeration."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product
from typing import Any

import pytest

from ptxgen.arch import ARCHS
from ptxgen.cpucheck.corners import corner_cases
from ptxgen.cpucheck.covering import KIND_FACTORS, covering_set
from ptxgen.cpucheck.reduced import MAX_WORK, Case, work
from ptxgen.families import violations
from ptxgen.families.mma.config import KNOBS, MmaConfig
from ptxgen.problem import Problem

pytestmark = [pytest.mark.compile, pytest.mark.timeout(600)]

TILE = ("block_m", "warp_m", "block_n", "warp_n", "block_k", "warps_k", "scale_on")
LEAST = MmaConfig(8, 8, 16, 16, 128, 1, 2, 1, "weights", False, 1)

Pair = tuple[tuple[str, Any], tuple[str, Any]]


def pairs_of(config: MmaConfig) -> set[Pair]:
    values = [(name, getattr(config, name)) for name in KNOBS]
    return set(combinations(values, 2))


def enumerated() -> set[Pair]:
    """Pairs of every legal tile with the least demanding rest, and with one or two more knobs.

    The knobs outside the tile only ever demand more (memory, registers, stages of K), so a pair
    that is legal at all is legal with the others at their least; a cluster has at least two CTAs.
    """
    problem, arch = Problem(256, 16 * 1024), ARCHS["sm_90a"]
    others = [name for name in KNOBS if name not in TILE]
    rest = [
        tuple(zip(some, values, strict=True))
        for count in (0, 1, 2)
        for some in combinations(others, count)
        for values in product(*(KNOBS[name] for name in some))
    ]
    found: set[Pair] = set()
    for values in product(*(KNOBS[name] for name in TILE)):
        tile = dict(zip(TILE, values, strict=True))
        if tile["block_m"] % tile["warp_m"] or tile["block_n"] % tile["warp_n"]:
            continue
        if violations(problem, config := replace(LEAST, **tile), arch):
            continue
        for more in rest:
            if len(more) == 2 and more in found:
                continue  # each of the two is tried with this tile by itself
            splits = {"split_k": 2} if ("cluster", True) in more else {}
            wanted = replace(config, **{**splits, **dict(more)})
            new = pairs_of(wanted) - found
            if new and not violations(problem, wanted, arch):
                found |= new
    return found


@pytest.fixture(scope="module")
def cases() -> tuple[Case, ...]:
    return covering_set("mma")


def test_every_legal_pair_of_knobs_is_there(cases: tuple[Case, ...]) -> None:
    held: set[Pair] = set()
    for case in cases:
        assert isinstance(case.config, MmaConfig)
        held |= pairs_of(case.config)
    missing = enumerated() - held
    assert not missing, sorted(map(str, missing))


@pytest.mark.deep
def test_every_value_of_every_knob_meets_every_kind_of_problem(cases: tuple[Case, ...]) -> None:
    """Of dtype, zero, bias, arch: all combine with all; a group may be illegal with one knob."""
    for name, values in KNOBS.items():
        for value in values:
            met = [case for case in cases if getattr(case.config, name) == value]
            raw = (name, value) == ("dequant", "subnormal")
            assert {case.problem.dtype for case in met} == ({"fp16"} if raw else {"fp16", "bf16"})
            assert {case.problem.zero for case in met} == {"sym", "int"}
            assert {case.problem.bias for case in met} == {False, True}
            archs = {"sm_90a"} if (name, value) == ("cluster", True) else {"sm_80", "sm_90a"}
            assert {case.arch.name for case in met} == archs
            groups = {0 if case.problem.whole_k else case.problem.group_size for case in met}
            assert groups >= {32, 64, 128}
            assert (0 in groups) != (raw or (name, value) == ("scale_on", "weights"))


def test_tails_and_turns_of_the_ring_are_there(cases: tuple[Case, ...]) -> None:
    tails = {(c.problem.n % 16, c.problem.n % 64 != 0, c.problem.k % 128) for c in cases}
    assert {tail[0] for tail in tails} == {0, 8}
    assert {tail[2] for tail in tails} >= {0, 64, 96}
    for stages in KNOBS["num_stages"]:
        turns = [
            case.problem.k / case.config.block_k / case.config.split_k / case.config.num_stages
            for case in cases
            if isinstance(case.config, MmaConfig) and case.config.num_stages == stages
        ]
        assert any(turn > 2 for turn in turns)
        assert any(turn <= 1 for turn in turns)
    assert all(work(case.problem, case.config, case.m) <= MAX_WORK for case in cases)


def test_the_set_is_small(cases: tuple[Case, ...]) -> None:
    """The two longest knobs alone need a case for each of their pairs; corners come on top."""
    least = len(KNOBS["block_m"]) * len(KNOBS["block_n"])
    corners = {case for case in cases if case in set(corner_cases(cases, count=10**6))}
    pairs = len(cases) - len(corners)
    assert least <= pairs <= 1.5 * least, (pairs, len(corners))
    assert 0 < len(corners) <= 50
    assert len(KIND_FACTORS) == 8
