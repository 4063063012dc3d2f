"""The launch of a check: crowded persistent grids, and the tensor map of the padded activations."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from ptxgen.arch import ARCHS
from ptxgen.compile import CompiledKernel
from ptxgen.cpucheck.buffers import X_PAD, Buffers, crowded, packed_weights, shared_tiles
from ptxgen.cpucheck.prove import Verdict, prove_race_free
from ptxgen.cpucheck.reduced import Case
from ptxgen.families import default_config
from ptxgen.interp.tensor_maps import decode_map
from ptxgen.outcome import Resources
from ptxgen.problem import Problem
from ptxgen.reference import random_problem_data
from ptxgen.source import LaunchPlan
from ptxgen.tensor_map import TensorMapRecipe

PROBLEM = Problem(n=136, k=192, group_size=64)
ARCH = ARCHS["sm_90a"]
CASE = Case(PROBLEM, default_config(PROBLEM, ARCH, 40, 132), ARCH, 40)


def plan(max_ctas: int = 0, split_k: int = 1, box: tuple[int, int] | None = None) -> LaunchPlan:
    return LaunchPlan(
        threads=128,
        smem_bytes=0,
        block_m=16,
        block_n=64,
        n_tiles=3,
        split_k=split_k,
        pdl=True,
        max_ctas=max_ctas,
        k=PROBLEM.k,
        x_box=box,
    )


def buffers(made: LaunchPlan) -> Buffers:
    data = random_problem_data(PROBLEM, CASE.m)
    return Buffers.create(CASE, made, data, packed_weights(CASE, data))


@pytest.mark.parametrize("split_k", [1, 2, 5])
@pytest.mark.parametrize("max_ctas", [1, 5, 132])
@pytest.mark.parametrize("m", [1, 16, 17, 40, 100, 1000])
def test_persistent_ctas_walk_up_to_three_tiles(m: int, max_ctas: int, split_k: int) -> None:
    made = plan(max_ctas, split_k)
    x, y, z = crowded(made, m).grid(m)
    tiles = made.m_tiles(m) * made.n_tiles
    assert (y, z) == (1, split_k)
    assert x <= made.grid(m)[0], "never more than the plan allows"
    if max_ctas >= tiles * split_k:
        assert x == -(-tiles // 3)


@pytest.mark.parametrize("m", [1, 2, 16, 17, 40, 100, 101])
def test_stream_k_runs_with_tiles_to_share_and_with_more_ctas_than_stages(m: int) -> None:
    made = replace(plan(max_ctas=10_000), stream_k=True)
    ctas, *rest = crowded(made, m).grid(m)
    tiles = made.m_tiles(m) * made.n_tiles
    assert rest == [1, 1]
    assert tiles % ctas, "some are left over"
    if m % 2:
        assert ctas > tiles * -(-PROBLEM.k // 128)
    else:
        assert ctas == min(count for count in range(2, 1000) if tiles % count)
    assert crowded(replace(made, max_ctas=3), m).grid(m)[0] <= 3


@pytest.mark.parametrize(
    ("tiles", "stages", "ctas", "expected"),
    [
        (8, 4, 3, (0, -1, 0, 1, 1, -1)),  # two tiles left over: shares of 2, 3 and 3 stages
        (1, 2, 3, (0, -1, 0, -1, -1, -1)),  # fewer stages than CTAs
        (6, 4, 3, (-1,) * 6),  # none left over
        (5, 1, 3, (0, -1, 1, -1, -1, -1)),
    ],
)
def test_parts_of_shared_tiles(
    tiles: int, stages: int, ctas: int, expected: tuple[int, ...]
) -> None:
    assert shared_tiles(tiles, stages, ctas) == expected


def test_every_stage_of_a_shared_tile_is_in_one_part() -> None:
    """A stage belongs to the last CTA whose equal share starts at it or before."""
    for tiles, stages, ctas in product(range(1, 14), (1, 2, 5, 9, 100), (1, 2, 3, 7, 12, 33)):
        total = tiles % ctas * stages
        sharers = min(ctas, total, 14 * (tiles % ctas))
        owned: set[tuple[int, int]] = set()
        for stage in range(total):
            owner = max(cta for cta in range(sharers) if total * cta // sharers <= stage)
            owned.add((owner, stage // stages))
        parts = shared_tiles(tiles, stages, ctas)
        assert len(parts) == 2 * ctas
        assert {(part // 2, tile) for part, tile in enumerate(parts) if tile >= 0} == owned


def test_no_shared_tile_has_more_parts_than_its_counter_has_bits() -> None:
    for left, stages, ctas in product((1, 2, 3, 9, 10), range(1, 230), (114, 132, 264)):
        parts = shared_tiles(ctas + left, stages, ctas)
        assert max(parts.count(tile) for tile in range(left)) <= 16


def test_other_grids_are_the_plans() -> None:
    assert crowded(plan(), 40) == plan()
    assert buffers(plan()).launch.grid == (3, 3, 1)
    assert buffers(plan(max_ctas=132)).launch.grid == (3, 1, 1)


def test_the_map_describes_the_padded_rows() -> None:
    made = buffers(plan(box=(64, 16)))
    *_, encoded = made.launch.args
    assert isinstance(encoded, bytes)
    x = made.launch.args[0]
    assert isinstance(x, int)
    row_bytes = 2 * (PROBLEM.k + X_PAD)
    assert decode_map(encoded) == TensorMapRecipe(x, PROBLEM.k, 40, row_bytes, (64, 16))
    assert len(buffers(plan()).launch.args) == len(made.launch.args) - 1


def test_a_proof_does_not_know_tensor_maps() -> None:
    none = Resources(0, 0, 0, 0.0)
    compiled = CompiledKernel(b"", "", "", none, "k", ARCH.name, "", "")
    proof = prove_race_free(CASE, plan(box=(64, 16)), compiled)
    assert proof.verdict is Verdict.UNSUPPORTED
    assert "tensor map" in proof.message
