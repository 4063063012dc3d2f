"""The wgmma_tma family: rules, sizes by hand, its space and default, and its emitted text."""

from __future__ import annotations

import itertools
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ptxgen.arch import ARCHS
from ptxgen.errors import ConfigError
from ptxgen.families import config_from_dict, default_config, emit, violations
from ptxgen.families.wgmma_tma import WGMMA_TMA
from ptxgen.families.wgmma_tma.config import KNOBS, WgmmaTmaConfig
from ptxgen.families.wgmma_tma.shape import TmaShape
from ptxgen.problem import M_BUCKETS, Problem
from ptxgen.source import LaunchPlan

SM90A = ARCHS["sm_90a"]
PROBLEM = Problem(4096, 4096)
CONFIG = WgmmaTmaConfig(
    block_m=64,
    block_n=128,
    warpgroups=2,
    num_stages=4,
    chunk=2,
    split_k=1,
    multicast=1,
    min_ctas=1,
    max_ctas=0,
)
MANY_REGISTERS = replace(CONFIG, block_m=128, block_n=256, num_stages=4)
"""128 accumulators a thread: a producer warpgroup gives its registers away."""

LLAMA_LAYERS = (
    (6144, 4096),
    (4096, 4096),
    (28672, 4096),
    (4096, 14336),
    (10240, 8192),
    (8192, 8192),
    (57344, 8192),
    (8192, 28672),
)


def test_a_legal_config_round_trips() -> None:
    assert violations(PROBLEM, CONFIG, SM90A) == []
    assert config_from_dict(CONFIG.to_dict()) == CONFIG
    streamed = replace(CONFIG, max_ctas=132, stream_k=True)
    assert config_from_dict(streamed.to_dict()) == streamed
    assert "stream_k" not in CONFIG.key()


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90"])
def test_only_sm_90a_has_it(arch: str) -> None:
    (reason,) = violations(PROBLEM, CONFIG, ARCHS[arch])
    assert reason == f"wgmma and TMA need sm_90a; {arch} does not have them"
    assert [*WGMMA_TMA.candidates(PROBLEM, ARCHS[arch], 64)] == []
    with pytest.raises(ConfigError, match=f"no default config of family 'wgmma_tma'.*{arch}"):
        WGMMA_TMA.default_config(PROBLEM, ARCHS[arch], 64, 132)


@pytest.mark.parametrize(
    ("change", "problem", "reason"),
    [
        ({"block_m": 20}, PROBLEM, "block_m = 20 is not one of 16, 24, 32"),
        ({"num_stages": 7}, PROBLEM, "num_stages = 7 is not one of"),
        ({"chunk": 8}, PROBLEM, "chunk = 8 is not one of 1, 2, 4"),
        ({"split_k": 3}, PROBLEM, "split_k = 3 is not one of"),
        ({"multicast": 8}, PROBLEM, "multicast = 8 is not one of"),
        ({"min_ctas": 3}, PROBLEM, "min_ctas = 3 is not one of"),
        ({"max_ctas": 100}, PROBLEM, "max_ctas = 100 is not one of"),
        ({"raster": 2}, PROBLEM, "raster = 2 is not one of"),
        ({"warpgroups": 4}, PROBLEM, "block_n = 128 does not give each of 4 warpgroups"),
        ({"warpgroups": 1, "block_n": 256}, PROBLEM, "does not give each of 1 warpgroups"),
        ({"split_k": 4}, Problem(4096, 256), "split_k = 4 is more than the 2 stages of K"),
        ({"block_m": 24, "split_k": 2}, PROBLEM, "the 3 n8 tiles of block_m = 24 do not share out"),
        ({"split_k": 2, "max_ctas": 132}, PROBLEM, "max_ctas = 132 needs split_k = 1"),
        (
            {"multicast": 2, "max_ctas": 132, "stream_k": True},
            PROBLEM,
            "stream_k needs multicast = 1, not 2",
        ),
        (
            {"block_m": 32, "multicast": 4, "max_ctas": 114},
            PROBLEM,
            "max_ctas = 114 is no whole number of clusters of multicast = 4 CTAs",
        ),
        ({"stream_k": True}, PROBLEM, "it needs max_ctas above 0"),
        (
            {"block_m": 24, "block_n": 448, "warpgroups": 7, "max_ctas": 132, "stream_k": True},
            PROBLEM,
            "stream_k needs a slot that 43008 bytes of sums fit into; it has 35712",
        ),
        (
            {
                "block_m": 128,
                "block_n": 256,
                "warpgroups": 2,
                "num_stages": 2,
                "max_ctas": 132,
                "stream_k": True,
            },
            PROBLEM,
            "131072 bytes of a tile's sums fit into; num_stages = 2 slots have room for 12 of 32",
        ),
        (
            {"block_n": 256, "warpgroups": 4, "warpgroups_k": 2, "num_stages": 4},
            PROBLEM,
            "warpgroups = 4 x warpgroups_k = 2 are more than 7",
        ),
        ({"block_n": 448, "warpgroups": 7}, PROBLEM, "registers a thread, 32 of them accumulators"),
        ({"split_k": 4, "multicast": 4}, PROBLEM, "more than the 8 of a cluster"),
        ({"block_m": 24, "multicast": 2}, PROBLEM, "whole rows of 8 tokens to copy"),
        ({"block_m": 256}, PROBLEM, "more than the 232448 that a CTA may have"),
        ({"num_stages": 5, "min_ctas": 2}, PROBLEM, "min_ctas = 2 CTAs of 135504 bytes do not"),
        ({"block_m": 256, "block_n": 256, "num_stages": 2}, PROBLEM, "256 of them accumulators"),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else "",
)
def test_each_reason_stands_alone(change: dict[str, Any], problem: Problem, reason: str) -> None:
    (found,) = violations(problem, replace(CONFIG, **change), SM90A)
    assert reason in found
    with pytest.raises(ConfigError, match="is illegal for"):
        emit(problem, replace(CONFIG, **change), SM90A)


def planned(config: WgmmaTmaConfig, problem: Problem = PROBLEM) -> LaunchPlan:
    assert violations(problem, config, SM90A) == []
    return WGMMA_TMA.plan(problem, config, SM90A)


def test_a_slot_by_hand() -> None:
    """64 tokens x 128 inputs; two strips of 4096 bytes of weights and 128 of scales; mbarriers."""
    slot = 64 * 128 * 2 + 2 * (64 * 128 // 2 + 64 * 2)
    assert slot == 24832
    plan = planned(CONFIG)
    turned = 2 * 4 * 1024  # of each warpgroup four tiles of 8 tokens x 64 features
    assert plan.smem_bytes == 3 * 25 * 1024 + slot + turned + 4 * 16
    assert (plan.threads, plan.n_tiles, plan.x_box) == (256 + 32, 32, (64, 64))
    assert plan.workspace_bytes(4096) == 0
    text = emit(PROBLEM, CONFIG, SM90A).text
    assert "COPIED_BYTES = 24832 " in text
    assert "STAGE_BYTES = 25600 " in text
    assert "WEIGHTS_OFFSET = 16384 " in text


@pytest.mark.parametrize(
    ("block_m", "block_n", "warpgroups", "chunk", "registers"),
    [(32, 448, 7, 1, 64), (32, 384, 6, 2, 72), (64, 320, 5, 1, 80)],
)
def test_wide_tiles_are_legal_where_their_registers_are_enough(
    block_m: int, block_n: int, warpgroups: int, chunk: int, registers: int
) -> None:
    """65,536 registers over the warps and a producer, by quarters of an SM and by eights."""
    assert registers == 65536 // (-(-(4 * warpgroups + 1) // 4) * 4 * 32) // 8 * 8
    wide = replace(CONFIG, block_m=block_m, block_n=block_n, warpgroups=warpgroups, chunk=chunk)
    assert violations(PROBLEM, wide, SM90A) == []
    shape = TmaShape(PROBLEM, wide)
    assert (shape.available_registers, shape.threads) == (registers, 128 * warpgroups + 32)
    (reason,) = violations(PROBLEM, replace(wide, block_m=2 * block_m, num_stages=2), SM90A)
    assert f"are more than {registers}" in reason


def test_the_space_has_no_wide_tiles() -> None:
    for m in (17, 64, 256):
        candidates = WGMMA_TMA.candidates(Problem(28672, 4096), SM90A, m)
        assert max(int(config.to_dict()["block_n"]) for config in candidates) == 256


def test_a_split_by_hand() -> None:
    """48 tokens in 6 n8 tiles: each CTA of two finishes 3, and receives them from the other."""
    problem = Problem(4096, 4096, 64, "bf16", "int")
    config = replace(CONFIG, block_m=48, warpgroups=1, num_stages=3, split_k=2)
    slot = 48 * 256 + 2 * (4096 + 2 * 64 * 2 + 2 * 32)
    rounded = -(-slot // 1024) * 1024
    received = 3 * 8 * 128 * 4
    plan = planned(config, problem)
    turned = 3 * 1024
    assert slot % 128 == 0
    assert plan.smem_bytes == 2 * rounded + slot + received + turned + 3 * 16 + 16
    assert (plan.threads, plan.cluster_k, plan.grid(100)) == (160, 2, (3, 32, 2))
    assert plan.workspace_bytes(4096) == 0


@pytest.mark.parametrize(
    ("config", "threads", "moves"),
    [
        (CONFIG, 256 + 32, False),
        (replace(CONFIG, block_n=256, warpgroups=4, num_stages=3), 512 + 32, False),
        (MANY_REGISTERS, 256 + 128, True),
        (replace(CONFIG, block_m=256, num_stages=3), 256 + 128, True),
        (replace(CONFIG, block_m=128, warpgroups=1, num_stages=3), 128 + 32, False),
    ],
    ids=["even", "four warpgroups", "128 x 256", "256 x 128", "one warpgroup has enough"],
)
def test_a_producer_warpgroup_gives_registers_away(
    config: WgmmaTmaConfig, threads: int, moves: bool
) -> None:
    """What three warpgroups of 168 registers a thread start with is shared out anew, by eights."""
    plan, text = planned(config), emit(PROBLEM, config, SM90A).text
    assert plan.threads == threads
    given = [int(count) for count in re.findall(r"  set_registers_(?:down|up)_(\d+)\(\);", text)]
    assert len(given) == (2 if moves else 0)
    if moves:
        down, up = given
        assert down + 2 * up == 3 * (512 // 3 // 8 * 8)
        assert down < 168 < up
        assert down % 8 == up % 8 == 0


def test_multicast_pads_n_to_whole_clusters() -> None:
    problem = Problem(5 * 128 + 8, 1024)
    for multicast, tiles, box in ((1, 6, 64), (2, 6, 32), (4, 8, 16)):
        plan = planned(replace(CONFIG, multicast=multicast), problem)
        assert (plan.n_tiles, plan.x_box) == (tiles, (64, box))
        assert plan.grid(65) == (2, tiles, 1)
        text = emit(problem, replace(CONFIG, multicast=multicast), SM90A).text
        assert (f"__cluster_dims__(1, {multicast}, 1)" in text) == (multicast > 1)


def test_stream_k_meets_in_the_workspace() -> None:
    config = replace(CONFIG, max_ctas=132, stream_k=True)
    plan = planned(config)
    assert plan.grid(64) == (132, 1, 1)
    assert plan.workspace_bytes(64) == 256 + 2 * 132 * 64 * 128 * 4
    assert plan.smem_bytes == planned(CONFIG).smem_bytes + 16
    alone = planned(replace(config, stream_k=False))
    assert (alone.workspace_bytes(64), alone.grid(64)) == (0, (32, 1, 1))


def test_plans_and_texts_are_pure() -> None:
    for config in (CONFIG, MANY_REGISTERS, replace(CONFIG, split_k=2, multicast=2)):
        first, second = (emit(PROBLEM, config, SM90A) for _ in range(2))
        assert first == second
        assert first.plan == WGMMA_TMA.plan(PROBLEM, config, SM90A)
        assert LaunchPlan.from_dict(first.plan.to_dict()) == first.plan
        assert config.key() in first.text
        assert "#include" not in first.text


@pytest.mark.parametrize("m", [17, 32, 64, 100, 512, 8192])
def test_candidates_are_legal_and_distinct(m: int) -> None:
    for problem in (PROBLEM, Problem(1440, 7392, 32, "bf16", "int", bias=True)):
        found = [*WGMMA_TMA.candidates(problem, SM90A, m)]
        assert len({config.key() for config in found}) == len(found) > 100
        assert all(violations(problem, config, SM90A) == [] for config in found)
        assert {config.to_dict()["chunk"] for config in found} == {1, 2, 4}
        assert {config.to_dict()["warpgroups"] for config in found} >= {1, 2}
        sizes = {int(config.to_dict()["block_m"]) for config in found}
        largest = max(int(size) for size in KNOBS["block_m"])
        assert min(m, largest) / 2 <= min(sizes) <= max(sizes) <= largest
    assert [*WGMMA_TMA.candidates(PROBLEM, SM90A, 16)] == []


@pytest.mark.parametrize(("n", "k"), LLAMA_LAYERS)
def test_there_is_a_legal_default_for_every_layer_and_batch(n: int, k: int) -> None:
    for problem in (Problem(n, k), Problem(n, k, 64, "bf16", "int", bias=True), Problem(n, k, k)):
        for m in M_BUCKETS:
            own = WGMMA_TMA.default_config(problem, SM90A, m, 132)
            assert violations(problem, own, SM90A) == []
            usual = default_config(problem, SM90A, m, 132)
            assert (usual == own) == (m > 16)
            assert default_config(problem, ARCHS["sm_90"], m, 132).family == "mma"


def test_there_is_a_default_for_odd_and_tiny_layers() -> None:
    for n, k in ((48, 64), (64, 96), (232, 2752), (152064, 3584), (1440, 7392)):
        for group in (32, 64, 128, k):
            if k % group == 0:
                for m in (1, 33, 65, 4096):
                    problem = Problem(n, k, group, zero="int")
                    config = WGMMA_TMA.default_config(problem, SM90A, m, 132)
                    assert violations(problem, config, SM90A) == []


@pytest.mark.parametrize(
    ("layer", "m", "expected"),
    [
        ((6144, 4096), 128, (128, 64, 1, 2)),
        ((4096, 4096), 256, (128, 64, 1, 1)),
        ((8192, 8192), 128, (128, 128, 2, 1)),
        ((4096, 14336), 256, (128, 128, 2, 1)),
        ((4096, 14336), 128, (128, 64, 2, 1)),
    ],
)
def test_defaults_split_k_only_where_it_is_long_enough_for_an_exchange(
    layer: tuple[int, int], m: int, expected: tuple[int, ...]
) -> None:
    """Else narrow tiles; up to 128 tokens two warpgroups in turns hide each other's waits."""
    config = WGMMA_TMA.default_config(Problem(*layer), SM90A, m, 132)
    assert isinstance(config, WgmmaTmaConfig)
    found = (config.block_m, config.block_n, config.split_k, config.warpgroups_k)
    assert found == expected


def test_golden_text() -> None:
    """Refresh with PTXTUNE_UPDATE_GOLDEN=1 (see test_mma_emit), and review the diff."""
    path = Path(__file__).parents[2] / "golden" / "wgmma_tma_fp16_int_sm90a.cu"
    problem = Problem(4096, 4096, 128, "fp16", "int", bias=True)
    text = emit(problem, replace(MANY_REGISTERS, max_ctas=132, raster=8), SM90A).text
    if os.environ.get("PTXTUNE_UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def test_operands_are_made_between_the_waits_that_free_and_the_fence_that_orders() -> None:
    """Dequantize, fence, wgmma, commit, wait for the chunk before, and only then make room."""
    loop = emit(PROBLEM, CONFIG, SM90A).text.split("for (int stage = 0; stage < num_stages;")[1]
    order = [
        "dequantize(",
        "wgmma_fence()",
        "wgmma_m64n64k16_swizzled(",
        "wgmma_commit()",
        "mbarrier_wait(full",
        "wgmma_wait_1()",
        "keep_alive(a[(chunk + 1) % 2]",
        "release(used_slot",
        "wgmma_wait_0()",
        "release(slot",
    ]
    places = [loop.index(name) for name in order]
    assert places == sorted(places)


def test_weights_are_asked_for_before_the_wait_for_the_previous_kernel_and_x_behind_it() -> None:
    producer = emit(PROBLEM, CONFIG, SM90A).text.split("if (tid == CONSUMERS) {")[1]
    order = ["load_weights(", "wait_for_previous()", "load_x(", "mbarrier_wait(empty"]
    places = [producer.index(name) for name in order]
    assert places == sorted(places)


@pytest.mark.parametrize("max_ctas", [0, 132])
def test_the_first_weights_are_on_their_way_to_l2_before_there_are_barriers(max_ctas: int) -> None:
    text = emit(PROBLEM, replace(CONFIG, max_ctas=max_ctas), SM90A).text
    text = text.split("launch_dependents();")[1]
    order = ["bulk_prefetch(", "mbarrier_init(", "__syncthreads()", "load_weights(n_tile, 0, 0)"]
    places = [text.index(name) for name in order]
    assert places == sorted(places)
    guard = text[: places[0]].rsplit("if (", 1)[1]
    assert guard.startswith("tid == CONSUMERS && tile + tile_step < tiles)")


def test_a_persistent_grid_looks_its_next_tile_up_before_it_stores() -> None:
    """What the table says of this one has been used by then. With stream_k it does not."""
    persistent = replace(MANY_REGISTERS, max_ctas=132)
    consumers = emit(PROBLEM, persistent, SM90A).text.split("auto next_tile")[1]
    order = ["load_table(n_tile)", "wgmma_wait_0()", "inverse_factor(factors", "= next_tile();  //"]
    places = [consumers.index(name) for name in order]
    assert places == sorted(places)
    assert "turn_tile(rb, i % BATCH" in consumers[places[-1] :]
    shared = replace(CONFIG, block_m=128, max_ctas=132, stream_k=True)
    for config in (CONFIG, MANY_REGISTERS, shared):
        assert "while (next_part())" in emit(PROBLEM, config, SM90A).text
        assert "next_tile" not in emit(PROBLEM, config, SM90A).text


@pytest.mark.parametrize(("group", "batch"), [(128, 4), (64, 4), (32, 2)], ids=str)
def test_results_are_turned_four_tiles_at_a_time_where_a_ring_leaves_room(
    group: int, batch: int
) -> None:
    """A ring of three slots of 256 tokens and 128 features, by hand."""
    problem = replace(PROBLEM, group_size=group)
    config = replace(CONFIG, block_m=256, num_stages=3, max_ctas=132)
    block = 64 * 128 // 2 + 64 * 2 * (128 // group)
    slot = 256 * 128 * 2 + 2 * block
    ring = 2 * (-(-slot // 1024) * 1024) + -(-slot // 128) * 128

    def total(tiles: int) -> int:
        return ring + 2 * tiles * 1024 + 3 * 16

    assert total(2) <= SM90A.smem_per_cta
    assert (total(4) <= SM90A.smem_per_cta) == (batch == 4)
    assert planned(config, problem).smem_bytes == total(batch)
    assert f"BATCH = {batch} " in emit(problem, config, SM90A).text


@pytest.mark.parametrize("m", [1, 17, 300, 4099])
def test_every_grid_is_whole_clusters(m: int) -> None:
    """Of every legal choice of these knobs, for problems of one tile along N and of many."""
    for n, multicast, max_ctas, split_k in itertools.product(
        (8, 1000, 28672), KNOBS["multicast"], KNOBS["max_ctas"], KNOBS["split_k"]
    ):
        problem = Problem(n, 4096)
        config = replace(
            CONFIG, block_m=64, multicast=multicast, max_ctas=max_ctas, split_k=split_k
        )
        if violations(problem, config, SM90A):
            continue
        along_n = 0 if max_ctas else 1
        grid = planned(config, problem).grid(m)
        assert grid[along_n] % multicast == 0, (n, multicast, max_ctas, split_k)
        assert grid[2] == split_k
