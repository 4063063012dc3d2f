"""The knob `cluster` of both families: where it is legal, what it changes in the plan, its key."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from dequant_text import CONFIG

from ptxgen.arch import ARCHS
from ptxgen.config import KernelConfig
from ptxgen.errors import ConfigError
from ptxgen.families import candidates, config_from_dict, emit, family_named, violations
from ptxgen.families.mma.config import KNOBS as MMA_KNOBS
from ptxgen.families.wgmma.config import KNOBS as WGMMA_KNOBS
from ptxgen.families.wgmma.config import WgmmaConfig
from ptxgen.problem import Problem

PROBLEM = Problem(4096, 4096)
WGMMA = WgmmaConfig(
    block_m=64,
    block_n=128,
    warpgroups=2,
    num_stages=4,
    split_k=1,
    weights_first=False,
    min_ctas=1,
)
SPLITS = [
    *((CONFIG, split) for split in MMA_KNOBS["split_k"]),
    *((WGMMA, split) for split in WGMMA_KNOBS["split_k"]),
]


def knobs(config: KernelConfig, **change: object) -> KernelConfig:
    return replace(config, **change)  # type: ignore[arg-type]


@pytest.mark.parametrize(("base", "split_k"), SPLITS)
@pytest.mark.parametrize("arch", ARCHS)
def test_legal_for_two_to_eight_ctas_on_archs_with_clusters(
    base: KernelConfig, split_k: int, arch: str
) -> None:
    if violations(PROBLEM, knobs(base, split_k=split_k), ARCHS[arch]):
        assert base is WGMMA
        assert arch != "sm_90a"
        return
    found = violations(PROBLEM, knobs(base, split_k=split_k, cluster=True), ARCHS[arch])
    assert any("no clusters" in reason for reason in found) == (not arch.startswith("sm_90"))
    told = f"2 to 8 of them, not split_k = {split_k}"
    assert any(told in reason for reason in found) == (split_k not in range(2, 9))
    assert bool(found) == (split_k not in range(2, 9) or not arch.startswith("sm_90"))


@pytest.mark.parametrize("base", [CONFIG, WGMMA])
def test_the_plan_has_a_cluster_and_no_workspace(base: KernelConfig) -> None:
    family, arch = family_named(base.family), ARCHS["sm_90a"]
    split = family.plan(PROBLEM, knobs(base, split_k=4), arch)
    cluster = family.plan(PROBLEM, knobs(base, split_k=4, cluster=True), arch)
    assert (split.cluster_k, cluster.cluster_k) == (1, 4)
    assert cluster == replace(split, cluster_k=4)
    assert [cluster.workspace_bytes(m) for m in (1, 64, 1000)] == [0, 0, 0]
    assert split.workspace_bytes(1) > 0
    assert emit(PROBLEM, knobs(base, split_k=4, cluster=True), arch).plan == cluster


@pytest.mark.parametrize(
    ("block_m", "split_k", "batch"),
    [
        (64, 2, 4),  # 64 x 128 sums in runs of four, half of them, over 256 threads
        (64, 4, 2),
        (64, 8, 0),  # one for each thread
        (48, 2, 3),
        (96, 3, 2),  # 1024 vectors are four a thread, but of three ranks only two fit
        (128, 2, 4),
        (8, 2, 0),
    ],
)
def test_threads_with_several_vectors_have_them_in_flight_at_once(
    block_m: int, split_k: int, batch: int
) -> None:
    config = knobs(WGMMA, block_m=block_m, split_k=split_k, num_stages=3, cluster=True)
    text = emit(PROBLEM, config, ARCHS["sm_90a"]).text
    assert (f"BATCH = {batch};" in text) == (batch > 0)
    assert ("BATCH" in text) == (batch > 0)
    assert "<= N)" not in text
    assert ("<= N)" in emit(Problem(4000, 4096), config, ARCHS["sm_90a"]).text) == (batch > 0)


@pytest.mark.parametrize("base", [CONFIG, WGMMA])
def test_stored_configs_parse_and_keep_their_key_and_text(base: KernelConfig) -> None:
    stored = {name: value for name, value in base.to_dict().items() if name != "cluster"}
    assert config_from_dict(stored) == base
    assert "cluster" not in base.key()
    assert knobs(base, cluster=True).key() == base.key()[:-1] + ",cluster=True)"
    with pytest.raises(ConfigError, match="split_k = 1"):
        emit(PROBLEM, knobs(base, cluster=True), ARCHS["sm_90a"])


@pytest.mark.parametrize(("m", "arch"), [*product((1, 4, 8, 16, 32, 64, 256), ("sm_80", "sm_90a"))])
def test_spaces_offer_clusters_beside_the_workspace(m: int, arch: str) -> None:
    """Never instead of it; for M = 5 to 64, splits by powers of two, where there are clusters."""
    space = {
        config.key(): config
        for config in candidates(PROBLEM, ARCHS[arch], m)
        if config.family in ("mma", "wgmma")
    }
    clusters = [config for config in space.values() if config.to_dict()["cluster"]]
    assert bool(clusters) == (arch == "sm_90a" and 4 < m <= 64)
    for config in clusters:
        assert knobs(config, cluster=False).key() in space
        assert config.to_dict()["split_k"] in (2, 4, 8)
    assert len(clusters) <= len(space) / 2
