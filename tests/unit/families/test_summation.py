"""Summation keys against the order spelled out block by block, as the kernels' indices give it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from ptxgen.families.mma import MMA
from ptxgen.families.mma.config import MmaConfig
from ptxgen.families.wgmma import WGMMA
from ptxgen.families.wgmma.config import WgmmaConfig
from ptxgen.families.wgmma_tma import WGMMA_TMA
from ptxgen.families.wgmma_tma.config import WgmmaTmaConfig
from ptxgen.problem import Problem

BASE = MmaConfig(8, 8, 32, 32, 512, 4, 3, 1, "accumulators", False, 1)
WGMMA_BASE = WgmmaConfig(64, 128, 1, 4, 1, False, 1)
TMA_BASE = WgmmaTmaConfig(64, 128, 1, 4, 2, 1, 1, 1, 0)
PROBLEMS = (Problem(64, 1024), Problem(64, 1152, 64, "bf16", "int"), Problem(64, 640, 640))

Order = tuple[tuple[int, ...], ...]


def blocks_by_sum(problem: Problem, config: MmaConfig) -> Order:
    """For every partial sum, in the order in which they are added: its packed K blocks."""
    blocks = -(-problem.k // 128)
    per_stage = config.block_k // 128
    per_warp = per_stage // config.warps_k
    stages = -(-blocks // per_stage)
    sums = []
    for cta in range(config.split_k):
        first, last = stages * cta // config.split_k, stages * (cta + 1) // config.split_k
        for warp in range(config.warps_k):
            sums.append(
                tuple(
                    stage * per_stage + warp * per_warp + block
                    for stage in range(first, last)
                    for block in range(per_warp)
                )
            )
    return tuple(sums)


def order_of(problem: Problem, config: MmaConfig) -> tuple[Any, ...]:
    """Everything that fixes the bits: the blocks of each sum, where scales act, sums in turns."""
    tiles = (config.warp_n // 16) * -(-config.warp_m // 8)
    grouped = config.scale_on == "accumulators" and problem.group_size != problem.k
    in_turns = grouped and tiles == 1
    return (blocks_by_sum(problem, config), config.scale_on, in_turns)


def varied() -> list[MmaConfig]:
    tiles = [(8, 8, 16), (8, 8, 32), (4, 4, 16), (32, 16, 32), (16, 16, 16)]
    return [
        replace(
            BASE,
            block_m=block_m,
            warp_m=warp_m,
            block_n=warp_n * warps_n,
            warp_n=warp_n,
            block_k=block_k,
            warps_k=warps_k,
            split_k=split_k,
            scale_on=scale_on,
            num_stages=num_stages,
        )
        for (block_m, warp_m, warp_n), warps_n, block_k, warps_k, split_k, scale_on, num_stages in (
            product(tiles, (1, 2), (128, 256, 512), (1, 2, 4), (1, 2, 3), SCALES, (2, 3))
        )
        if block_k % (128 * warps_k) == 0
    ]


SCALES = ("weights", "accumulators")


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.key())
def test_equal_keys_are_equal_orders(problem: Problem) -> None:
    by_key, by_order = defaultdict(set), defaultdict(set)
    for config in varied():
        key, order = MMA.summation_key(problem, config), order_of(problem, config)
        by_key[key].add(order)
        by_order[order].add(key)
    assert {key: len(orders) for key, orders in by_key.items()} == dict.fromkeys(by_key, 1)
    # Finer than needed only where block_k's three choices make a split cut K at the same places.
    assert max(len(keys) for keys in by_order.values()) <= 3
    assert len(by_key) > 20


@pytest.mark.parametrize(
    "change",
    [
        {"block_m": 16, "warp_m": 16},
        {"block_m": 1, "warp_m": 1},
        {"block_n": 64},
        {"block_n": 64, "warp_n": 64},
        {"num_stages": 5},
        {"weights_first": True},
        {"min_ctas": 2},
        {"trigger": "end"},
    ],
    ids=",".join,
)
def test_what_an_output_does_not_see_is_not_in_the_key(change: dict[str, Any]) -> None:
    for problem in PROBLEMS:
        changed = replace(BASE, **change)
        assert MMA.summation_key(problem, changed) == MMA.summation_key(problem, BASE)


@pytest.mark.parametrize(
    "change",
    [
        {"block_k": 1024},
        {"warps_k": 2},
        {"split_k": 2},
        {"scale_on": "weights"},
        {"dequant": "subnormal"},
        {"block_n": 16, "warp_n": 16},
    ],
    ids=",".join,
)
def test_what_changes_the_order_is_in_the_key(change: dict[str, Any]) -> None:
    problem = PROBLEMS[0]
    changed = replace(BASE, **change)
    assert MMA.summation_key(problem, changed) != MMA.summation_key(problem, BASE)


def test_a_single_sum_does_not_see_how_much_a_stage_holds() -> None:
    one = replace(BASE, warps_k=1, block_k=128)
    for block_k in (128, 256, 512, 1024):
        key = MMA.summation_key(PROBLEMS[0], replace(one, block_k=block_k))
        assert key == MMA.summation_key(PROBLEMS[0], one)


def test_wgmma_tma_has_the_orders_of_wgmma_and_stream_k_one_for_each_config() -> None:
    problem = PROBLEMS[0]
    assert not problem.whole_k, "so that the two families' weights are in different units"
    for split_k, multicast, block_m, chunk in product((1, 2, 4, 8), (1, 2), (16, 64), (1, 4)):
        config = replace(
            TMA_BASE, split_k=split_k, multicast=multicast, block_m=block_m, chunk=chunk
        )
        wgmma = replace(WGMMA_BASE, split_k=split_k)
        own, other = WGMMA_TMA.summation_key(problem, config), WGMMA.summation_key(problem, wgmma)
        assert own == other.replace("wgmma", "wgmma_tma")
        keys = {
            family.summation_key(PROBLEMS[2], c)
            for family, c in ((WGMMA_TMA, config), (WGMMA, wgmma))
        }
        assert len(keys) == (1 if split_k == 1 else 2), "wgmma scales each part by a whole-K scale"
    whole = {WGMMA_TMA.summation_key(problem, replace(TMA_BASE, max_ctas=n)) for n in (0, 114, 132)}
    assert len(whole) == 1
    turns = {
        WGMMA_TMA.summation_key(problem, replace(TMA_BASE, warpgroups_k=2, split_k=split_k))
        for split_k in (1, 2)
    }
    assert len(turns - whole) == 2
    shared = {
        WGMMA_TMA.summation_key(
            problem, replace(TMA_BASE, max_ctas=max_ctas, block_m=block_m, stream_k=True)
        )
        for max_ctas, block_m in product((114, 132), (16, 64))
    }
    assert len(shared - whole) == 4


def test_wgmma_kernels_differ_only_by_the_split() -> None:
    keys = {
        split_k: {
            WGMMA.summation_key(
                PROBLEMS[0],
                replace(
                    WGMMA_BASE,
                    block_m=block_m,
                    block_n=128 * warpgroups,
                    warpgroups=warpgroups,
                    num_stages=num_stages,
                    split_k=split_k,
                    raster=raster,
                ),
            )
            for block_m, warpgroups, num_stages, raster in product(
                (8, 64, 256), (1, 2), (3, 6), (1, 8)
            )
        }
        for split_k in (1, 2, 3, 8)
    }
    assert all(len(found) == 1 for found in keys.values())
    assert len(set.union(*keys.values())) == len(keys)
    assert not set.union(*keys.values()) & {MMA.summation_key(PROBLEMS[0], c) for c in varied()}
