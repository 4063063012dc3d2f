"""Rules, derived sizes and launch plans of the mma family, against independent arithmetic."""

from __future__ import annotations

from dataclasses import replace

import pytest
from dequant_text import CONFIG

from ptxgen.arch import ARCHS, ArchSpec
from ptxgen.errors import ConfigError
from ptxgen.families import candidates, config_from_dict, default_config, emit, violations
from ptxgen.families.mma import MMA
from ptxgen.families.mma.config import KNOBS, MmaConfig
from ptxgen.problem import Problem

SM90, SM80, SM86 = ARCHS["sm_90a"], ARCHS["sm_80"], ARCHS["sm_86"]
PROBLEM = Problem(4096, 4096)


def test_a_legal_config_has_no_violations() -> None:
    assert violations(PROBLEM, CONFIG, SM90) == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"block_m": 7}, "block_m = 7 is not one of"),
        ({"warp_m": 16}, "warp_m = 16 does not divide block_m = 8"),
        ({"warp_m": 4}, "warp_m = 4 below 8"),
        ({"block_n": 64, "warp_n": 48}, "warp_n = 48 does not divide block_n = 64"),
        ({"warps_k": 4}, "whole packed blocks of 128"),
        ({"block_k": 1024, "split_k": 6}, "split_k = 6 is more than the 4 stages"),
        ({"block_m": 32, "warp_m": 8, "warp_n": 16}, "2 weight fragments do not share out"),
        ({"block_m": 128, "warp_m": 64, "warp_n": 64, "block_n": 64}, "accumulators a thread"),
        ({"block_n": 48, "warp_n": 16, "block_k": 512, "block_m": 64, "warp_m": 64}, "chunks"),
        ({"dequant": "subnormal", "scale_on": "weights"}, "applied to the accumulators"),
        ({"scale_on": "both"}, "scale_on = both is not one of weights, accumulators"),
    ],
)
def test_reasons_name_value_and_limit(change: dict[str, object], reason: str) -> None:
    found = violations(PROBLEM, replace(CONFIG, **change), SM90)  # type: ignore[arg-type]
    assert any(reason in text for text in found), found


def test_raw_nibbles_are_for_fp16_and_groups() -> None:
    raw = replace(CONFIG, dequant="subnormal")
    assert violations(PROBLEM, raw, SM80) == []
    (reason,) = violations(replace(PROBLEM, dtype="bf16"), raw, SM90)
    assert "dequant = subnormal needs fp16" in reason
    (reason,) = violations(replace(PROBLEM, group_size=4096), raw, SM90)
    assert "needs groups" in reason
    for problem in (PROBLEM, replace(PROBLEM, dtype="bf16"), replace(PROBLEM, group_size=4096)):
        for m in (8, 16):
            kinds = {
                config.dequant for config in candidates(problem, SM90, m) if config.family == "mma"
            }
            wanted = {"magic", "subnormal"} if problem == PROBLEM and m <= 8 else {"magic"}
            assert kinds == wanted


def test_shared_memory_limit_depends_on_the_arch() -> None:
    config = replace(CONFIG, block_m=64, warp_m=64, block_k=256, num_stages=4)
    smem = MMA.plan(PROBLEM, config, SM90).smem_bytes
    assert SM86.smem_per_cta < smem <= SM80.smem_per_cta
    assert violations(PROBLEM, config, SM80) == []
    (reason,) = violations(PROBLEM, config, SM86)
    assert str(smem) in reason
    assert str(SM86.smem_per_cta) in reason


def test_resident_ctas_must_fit_in_shared_memory() -> None:
    config = replace(CONFIG, block_m=64, warp_m=64, block_k=256, num_stages=4, min_ctas=2)
    (reason,) = violations(PROBLEM, config, SM90)
    assert "2 CTAs need" in reason


def test_whole_k_scales_only_accumulators() -> None:
    problem = Problem(4096, 4096, 4096)
    assert violations(problem, CONFIG, SM90) == []
    assert violations(problem, replace(CONFIG, scale_on="weights"), SM90)


def test_a_stage_holds_weights_scales_zeros_and_activations() -> None:
    """By hand: 48 features x 512 inputs, group 64, zero points, 16 tokens, 3 stages."""
    config = replace(
        CONFIG, block_m=16, warp_m=16, block_n=48, warp_n=48, block_k=512, warps_k=4, num_stages=3
    )
    weights, groups = 48 * 512 // 2, 48 * (512 // 64)
    stage = weights + 2 * groups + groups // 2 + 16 * 512 * 2
    stage = -(-stage // 128) * 128
    plan = MMA.plan(Problem(4096, 4096, 64, zero="int"), config, SM90)
    assert plan.smem_bytes == 3 * stage
    assert plan.threads == 4 * 32


def test_the_reduction_tile_can_be_the_larger_one() -> None:
    config = replace(CONFIG, block_m=128, warp_m=32, block_n=128, warp_n=32, num_stages=2)
    stage = 128 * 64 + 256 + 128 * 256
    assert 2 * stage < 128 * (128 + 4) * 4 + 2 * stage
    plan = MMA.plan(PROBLEM, config, SM90)
    assert plan.smem_bytes == max(2 * stage, 4 * 128 * (128 + 4))


@pytest.mark.parametrize("n", [48, 64, 232, 1440, 152064])
@pytest.mark.parametrize("block_n", [16, 48, 112, 256])
def test_tiles_cover_n(n: int, block_n: int) -> None:
    config = replace(CONFIG, block_n=block_n, warp_n=min(block_n, 112) if block_n != 256 else 64)
    plan = MMA.plan(Problem(n, 4096), config, SM90)
    assert (plan.n_tiles - 1) * block_n < n <= plan.n_tiles * block_n
    assert plan.grid(17) == (3, plan.n_tiles, 1)


def test_too_many_tiles_for_the_grid() -> None:
    (reason,) = violations(Problem(1 << 20, 128), CONFIG, SM90)
    assert "65536 tiles along N are more than the grid's 65535" in reason


def test_emit_refuses_an_illegal_config_with_its_reasons() -> None:
    with pytest.raises(ConfigError, match=r"split_k = 16 is more than the 1 stages"):
        emit(Problem(64, 64, 64), replace(CONFIG, split_k=16), SM90)


def test_configs_round_trip_through_their_dict() -> None:
    assert config_from_dict(CONFIG.to_dict()) == CONFIG


@pytest.mark.parametrize(
    "data",
    [
        {"family": "mma"},
        {**CONFIG.to_dict(), "extra": 1},
        {**CONFIG.to_dict(), "block_m": "8"},
        {**CONFIG.to_dict(), "weights_first": 1},
        {**CONFIG.to_dict(), "family": "none"},
        {"block_m": 8},
        [],
    ],
)
def test_malformed_configs_are_refused(data: object) -> None:
    with pytest.raises(ConfigError):
        config_from_dict(data)  # type: ignore[arg-type]


@pytest.mark.parametrize("m", [1, 2, 4, 8, 16, 24, 32, 64, 128, 4096])
@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90a"])
def test_candidates_are_legal_distinct_and_cover_the_batch(m: int, arch: str) -> None:
    found = list(MMA.candidates(PROBLEM, ARCHS[arch], m))
    if arch == "sm_90a" and m > 64:
        assert found == [], "wgmma is faster there in every cell"
    else:
        assert len(found) > 100
    assert len({config.key() for config in found}) == len(found)
    for config in found:
        assert isinstance(config, MmaConfig)
        assert violations(PROBLEM, config, ARCHS[arch]) == []
        assert config.block_m >= min(m, 16) // 2


def test_every_knob_of_a_candidate_is_a_choice() -> None:
    for config in candidates(PROBLEM, SM90, 16):
        for name, choices in KNOBS.items():
            assert getattr(config, name) in choices


SHAPES = [
    (48, 64),
    (64, 96),
    (232, 2752),
    (1440, 7392),
    (152064, 3584),
    (8192, 28672),
    (4096, 4096),
]


@pytest.mark.parametrize(("n", "k"), SHAPES)
@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90", "sm_90a"])
def test_there_is_a_default_for_everything(n: int, k: int, arch: str) -> None:
    for group in (32, 64, 128, k):
        if k % group:
            continue
        problem = Problem(n, k, group, zero="int")
        for m in (1, 2, 3, 8, 9, 16, 17, 33, 64, 65, 4096):
            config = default_config(problem, ARCHS[arch], m, 108)
            assert violations(problem, config, ARCHS[arch]) == []


@pytest.mark.parametrize("arch", [SM90, SM80], ids=lambda arch: arch.name)
@pytest.mark.parametrize("m", [1, 8, 16, 64, 256])
def test_the_default_of_a_chain_loads_weights_first_and_lets_one_successor_in(
    m: int, arch: ArchSpec
) -> None:
    plain = default_config(PROBLEM, arch, m, 132)
    chained = default_config(PROBLEM, arch, m, 132, chained=True)
    assert violations(PROBLEM, chained, arch) == []
    if isinstance(chained, MmaConfig):
        wanted = {**plain.to_dict(), "weights_first": True, "trigger": "waited"}
        assert chained.to_dict() == wanted
    else:
        assert chained == plain
