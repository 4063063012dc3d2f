"""The wgmma family: rules, sizes, the descriptor and the order of its asynchronous steps."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from ptxgen.arch import ARCHS
from ptxgen.families import candidates, config_from_dict, emit, violations
from ptxgen.families.wgmma import WGMMA
from ptxgen.families.wgmma.config import WgmmaConfig
from ptxgen.problem import Problem

SM90A = ARCHS["sm_90a"]
PROBLEM = Problem(4096, 4096)
CONFIG = WgmmaConfig(
    block_m=64,
    block_n=128,
    warpgroups=2,
    num_stages=4,
    split_k=1,
    weights_first=False,
    min_ctas=1,
)


def test_a_legal_config_round_trips() -> None:
    assert violations(PROBLEM, CONFIG, SM90A) == []
    assert config_from_dict(CONFIG.to_dict()) == CONFIG


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90"])
def test_only_sm_90a_has_it(arch: str) -> None:
    assert any("sm_90a" in reason for reason in violations(PROBLEM, CONFIG, ARCHS[arch]))
    families = {config.family for config in candidates(PROBLEM, ARCHS[arch], 64)}
    assert families == {"mma"}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"num_stages": 2}, "num_stages = 2 is not one of"),
        ({"warpgroups": 1, "block_n": 256}, "64 or 128 features"),
        ({"warpgroups": 4, "block_n": 128}, "64 or 128 features"),
        ({"block_m": 256, "block_n": 256, "num_stages": 3}, "accumulators a thread"),
        ({"block_m": 256, "num_stages": 4}, "bytes of shared memory"),
        ({"block_m": 20}, "block_m = 20 is not one of"),
    ],
)
def test_reasons(change: dict[str, int], reason: str) -> None:
    found = violations(PROBLEM, replace(CONFIG, **change), SM90A)  # type: ignore[arg-type]
    assert any(reason in text for text in found), found


def test_activations_start_on_a_swizzle_atom() -> None:
    """128 x 64 bytes of weights + 256 of scales, up to 1024; then 64 rows of 256 bytes."""
    text = emit(PROBLEM, CONFIG, SM90A).text
    assert "X_OFFSET = 9216 " in text
    assert WGMMA.plan(PROBLEM, CONFIG, SM90A).smem_bytes == 4 * (9216 + 64 * 256)
    assert WGMMA.plan(PROBLEM, CONFIG, SM90A).threads == 256


def test_golden_text() -> None:
    """Refresh with PTXTUNE_UPDATE_GOLDEN=1 (see test_mma_emit), and review the diff."""
    import os

    path = Path(__file__).parents[2] / "golden" / "wgmma_fp16_int_sm90a.cu"
    problem = Problem(4096, 4096, 128, "fp16", "int", bias=True)
    text = emit(problem, replace(CONFIG, split_k=2), SM90A).text
    if os.environ.get("PTXTUNE_UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def test_operands_are_made_between_the_waits_that_free_and_the_fence_that_orders() -> None:
    """Dequantize, fence, wgmma, commit, wait for the chunk before, and only then unpin it."""
    text = emit(PROBLEM, CONFIG, SM90A).text
    chunk = text.split("auto consume")[1].split("};")[0]
    order = [
        "dequantize(",
        "wgmma_fence()",
        "wgmma_m64n64k16(",
        "wgmma_commit()",
        "wgmma_wait_1()",
        "keep_alive(a[(chunk + 1) % 2]",
    ]
    places = [chunk.index(name) for name in order]
    assert places == sorted(places)
    assert "a[chunk % 2]" in chunk


def test_writes_are_fenced_before_the_barrier_that_publishes_them() -> None:
    loop = emit(PROBLEM, CONFIG, SM90A).text.split("// ---- main loop")[1]
    order = ["cp_async_wait_1()", "fence_proxy_async()", "__syncthreads()", "consume(slot)"]
    places = [loop.index(name) for name in order]
    assert places == sorted(places)


def test_the_slot_in_flight_is_never_loaded_into() -> None:
    """Slots of stages s, s - 1 (maybe in flight) and the one loaded at s are all different."""
    for stages in (3, 4, 5, 6, 8):
        text = emit(PROBLEM, replace(CONFIG, num_stages=stages), SM90A).text
        distance = int(re.search(r"load_x\(stage \+ STAGES - (\d)", text).group(1))  # type: ignore[union-attr]
        for stage in range(2 * stages):
            loaded = (stage + stages - distance) % stages
            assert loaded not in {stage % stages, (stage - 1) % stages}


@pytest.mark.parametrize("m", [17, 33, 48, 64, 100, 256, 4096])
def test_its_default_is_legal_for_small_and_large_layers(m: int) -> None:
    for problem in (PROBLEM, Problem(48, 64, 64), Problem(57344, 8192, 128, "bf16", "int")):
        config = WGMMA.default_config(problem, SM90A, m, 132)
        assert config.family == "wgmma"
        assert violations(problem, config, SM90A) == []


def test_it_competes_from_17_tokens_on() -> None:
    assert list(WGMMA.candidates(PROBLEM, SM90A, 16)) == []
    assert len(list(WGMMA.candidates(PROBLEM, SM90A, 17))) > 50
    assert list(WGMMA.candidates(PROBLEM, ARCHS["sm_90"], 64)) == []
