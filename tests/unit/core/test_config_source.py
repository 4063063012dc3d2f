"""KernelConfig and LaunchPlan: exact types, keys and digests, grids and workspaces by counting."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest

from ptxgen.config import KernelConfig
from ptxgen.errors import ConfigError
from ptxgen.source import KernelSource, LaunchPlan
from ptxgen.tensor_map import TensorMapRecipe

PLAN = LaunchPlan(
    threads=128, smem_bytes=1024, block_m=8, block_n=64, n_tiles=5, split_k=3, pdl=True
)


@dataclass(frozen=True, slots=True)
class ToyConfig(KernelConfig):
    family: ClassVar[str] = "toy"

    block_n: int
    scale_on: str
    streamed: bool


TOY = ToyConfig(64, "weights", True)


def test_a_config_reads_as_a_reproducer() -> None:
    assert TOY.key() == "toy(block_n=64,scale_on=weights,streamed=True)"
    assert TOY.to_dict() == {
        "family": "toy",
        "block_n": 64,
        "scale_on": "weights",
        "streamed": True,
    }
    knobs = {name: value for name, value in TOY.to_dict().items() if name != "family"}
    assert ToyConfig.from_knobs(json.loads(json.dumps(knobs))) == TOY


def test_a_young_knob_leaves_stored_keys_as_they_were() -> None:
    @dataclass(frozen=True, slots=True)
    class Grown(ToyConfig):
        young_knobs: ClassVar[frozenset[str]] = frozenset({"cluster"})

        cluster: bool = False

    assert Grown(64, "weights", True).key() == TOY.key()
    key = "toy(block_n=64,scale_on=weights,streamed=True,cluster=True)"
    assert Grown(64, "weights", True, True).key() == key
    stored = {name: value for name, value in TOY.to_dict().items() if name != "family"}
    assert Grown.from_knobs(stored) == Grown(64, "weights", True, False)
    assert Grown(64, "weights", True).to_dict()["cluster"] is False


def test_equal_configs_have_equal_digests() -> None:
    others = [replace(TOY, block_n=65), replace(TOY, scale_on="x"), replace(TOY, streamed=False)]
    assert ToyConfig(64, "weights", True).digest() == TOY.digest()
    assert len({config.digest() for config in [TOY, *others]}) == 4


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"block_n": "64"}, "block_n = '64' must be of type int"),
        ({"block_n": True}, "block_n = True must be of type int"),
        ({"streamed": 1}, "streamed = 1 must be of type bool"),
        ({"block_n": 64.0}, "must be of type int"),
        ({"scale_on": None}, "must be of type str"),
        ({"extra": 1}, r"unknown knobs \['extra'\]"),
    ],
)
def test_wrong_knobs_are_refused(change: dict[str, Any], match: str) -> None:
    knobs = {"block_n": 64, "scale_on": "weights", "streamed": True} | change
    with pytest.raises(ConfigError, match=match):
        ToyConfig.from_knobs(knobs)


def test_a_missing_knob_is_named() -> None:
    with pytest.raises(ConfigError, match=r"lacks \['scale_on', 'streamed'\]"):
        ToyConfig.from_knobs({"block_n": 64})


@pytest.mark.parametrize("m", [1, 7, 8, 9, 16, 17, 1000])
def test_the_grid_covers_every_output_once(m: int) -> None:
    tiles = len(range(0, m, PLAN.block_m)) * PLAN.n_tiles
    x, y, z = PLAN.grid(m)
    assert x * y * z == tiles * PLAN.split_k
    assert PLAN.m_tiles(m) * PLAN.block_m >= m > (PLAN.m_tiles(m) - 1) * PLAN.block_m
    partials = tiles * PLAN.split_k * PLAN.block_m * PLAN.block_n * 4
    assert PLAN.workspace_bytes(m) == PLAN.counter_bytes(m) + partials
    assert PLAN.counter_bytes(m) % 256 == 0
    assert 0 <= PLAN.counter_bytes(m) - 4 * tiles < 256


@pytest.mark.parametrize("max_ctas", [1, 2, 3, 7, 30, 132, 10_000])
@pytest.mark.parametrize("m", [1, 8, 9, 100, 1000])
def test_a_persistent_grid_walks_every_tile_once(max_ctas: int, m: int) -> None:
    plan = replace(PLAN, max_ctas=max_ctas)
    x, y, z = plan.grid(m)
    assert (y, z) == (1, PLAN.split_k)
    assert x * z <= max(max_ctas, z), "no more CTAs than allowed, but one set at least"
    tiles = plan.m_tiles(m) * plan.n_tiles
    walked = [index for first in range(x) for index in range(first, tiles, x)]
    assert sorted(walked) == list(range(tiles))
    assert all(range(first, tiles, x) for first in range(x)), "no CTA without a tile"
    assert plan.workspace_bytes(m) == PLAN.workspace_bytes(m)


@pytest.mark.parametrize("m", [1, 8, 9, 100, 1000])
def test_stream_k_launches_every_cta_with_room_for_two_parts(m: int) -> None:
    plan = replace(PLAN, split_k=1, max_ctas=7, stream_k=True)
    assert plan.grid(m) == (7, 1, 1)
    tiles = plan.m_tiles(m) * plan.n_tiles
    assert 0 <= plan.counter_bytes(m) - 4 * tiles < 256
    assert plan.workspace_bytes(m) == plan.counter_bytes(m) + 14 * 8 * 64 * 4
    assert plan.workspace_bytes(0) == 0
    assert LaunchPlan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan


def test_nothing_to_reduce_needs_no_workspace() -> None:
    whole = replace(PLAN, split_k=1)
    assert [whole.workspace_bytes(m) for m in (0, 1, 100)] == [0, 0, 0]
    assert PLAN.workspace_bytes(0) == PLAN.counter_bytes(0) == 0


def test_a_cluster_reduces_without_a_workspace() -> None:
    cluster = replace(PLAN, cluster_k=PLAN.split_k)
    for m in (1, 8, 1000):
        assert cluster.workspace_bytes(m) == cluster.counter_bytes(m) == 0
        assert cluster.grid(m) == PLAN.grid(m)


def test_plans_stored_before_clusters_have_none() -> None:
    stored = {name: value for name, value in PLAN.to_dict().items() if name != "cluster_k"}
    assert LaunchPlan.from_dict(stored) == PLAN
    with pytest.raises(KeyError, match="split_k"):
        LaunchPlan.from_dict({name: value for name, value in stored.items() if name != "split_k"})


def test_a_plan_survives_json() -> None:
    assert LaunchPlan.from_dict(json.loads(json.dumps(PLAN.to_dict()))) == PLAN


def test_a_plan_with_a_tensor_map_survives_json() -> None:
    plan = replace(PLAN, max_ctas=132, k=4096, x_box=(64, 128))
    data = plan.to_dict()
    assert json.loads(json.dumps(data)) == data
    assert LaunchPlan.from_dict(data) == plan


def test_a_plan_from_before_tensor_maps_is_read() -> None:
    old = {"threads": 128, "smem_bytes": 1024, "block_m": 8, "block_n": 64, "n_tiles": 5}
    assert LaunchPlan.from_dict({**old, "split_k": 3, "pdl": True}) == PLAN


def test_the_tensor_map_of_a_launch() -> None:
    plan = replace(PLAN, k=4096, x_box=(64, 128))
    expected = TensorMapRecipe(0x1000, 4096, 17, 2 * 4104, (64, 128))
    assert plan.x_map(0x1000, 17, 4104) == expected
    assert PLAN.x_map(0x1001, 17, 1) is None


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"max_ctas": -1}, "max_ctas = -1 of a launch plan"),
        ({"k": -8}, "k = -8 of a launch plan"),
        ({"x_box": (64, 8)}, "must say k"),
        ({"stream_k": True, "split_k": 1}, "needs max_ctas > 0 and split_k = 1, not 0 and 1"),
        ({"stream_k": True, "max_ctas": 9}, "needs max_ctas > 0 and split_k = 1, not 9 and 3"),
        ({"x_box": (64, 257), "k": 64}, "64 inputs x 257 tokens"),
        ({"x_box": (32, 8), "k": 64}, "32 inputs x 8 tokens .* choose 64 inputs and 1 to 256"),
    ],
)
def test_wrong_plans_are_refused(change: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        replace(PLAN, **change)


def test_a_sources_digest_is_of_arch_code_and_plan() -> None:
    source = KernelSource("// of one kind\nint a;\n  int b;\n", "sm_80", PLAN)
    same = [
        replace(source, text="int a;  // explained\n\n// at length\n  int b;\n"),
        replace(source, plan=LaunchPlan.from_dict(PLAN.to_dict())),
    ]
    assert {item.digest() for item in same} == {source.digest()}
    different = [
        replace(source, text="int a;\nint b;\n"),
        replace(source, text="int a;\n"),
        replace(source, arch="sm_89"),
        replace(source, plan=replace(PLAN, threads=32)),
        replace(source, plan=replace(PLAN, max_ctas=132)),
    ]
    assert len({item.digest() for item in [source, *different]}) == 6
