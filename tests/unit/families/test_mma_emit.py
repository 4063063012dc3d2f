"""Emitted text: pure, explained, without includes; and golden files that make changes visible."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from dequant_text import CONFIG

from ptxgen.arch import ARCHS
from ptxgen.families import emit
from ptxgen.families.mma.config import KNOBS
from ptxgen.problem import Problem

GOLDEN = Path(__file__).parents[2] / "golden"
CASES = {
    "mma_decode_fp16_sym_sm90a": (
        Problem(4096, 4096),
        replace(CONFIG, block_n=32, warp_n=32, block_k=1024, warps_k=8, weights_first=True),
        "sm_90a",
    ),
    "mma_splitk_bf16_int_bias_sm80": (
        Problem(232, 2752, 64, "bf16", "int", bias=True),
        replace(
            CONFIG,
            block_m=48,
            warp_m=24,
            block_n=128,
            warp_n=32,
            num_stages=3,
            split_k=3,
            scale_on="weights",
        ),
        "sm_80",
    ),
    "mma_cluster_fp16_sym_sm90a": (
        Problem(4096, 4096),
        replace(CONFIG, block_n=32, warp_n=32, block_k=512, warps_k=4, split_k=4, cluster=True),
        "sm_90a",
    ),
    "mma_subnormal_fp16_int_sm90a": (
        Problem(4096, 4096, 128, "fp16", "int"),
        replace(CONFIG, block_k=1024, warps_k=8, weights_first=True, dequant="subnormal"),
        "sm_90a",
    ),
    "mma_whole_k_fp16_int_sm89": (
        Problem(4096, 4096, 4096, "fp16", "int"),
        replace(CONFIG, block_m=2, warp_m=2, block_k=512, warps_k=2, num_stages=4),
        "sm_89",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_golden_text(name: str) -> None:
    """Refresh with PTXTUNE_UPDATE_GOLDEN=1, and review the diff."""
    problem, config, arch = CASES[name]
    text = emit(problem, config, ARCHS[arch]).text
    path = GOLDEN / f"{name}.cu"
    if os.environ.get("PTXTUNE_UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("name", CASES)
def test_the_text_explains_itself(name: str) -> None:
    problem, config, arch = CASES[name]
    source = emit(problem, config, ARCHS[arch])
    head = source.text.splitlines()[:5]
    assert any(problem.key() in line for line in head)
    assert any(config.key() in line for line in head)
    assert any(arch in line for line in head)
    assert "#include" not in source.text
    assert "PTX ISA:" in source.text


def test_emission_is_pure() -> None:
    problem, config, arch = CASES["mma_decode_fp16_sym_sm90a"]
    first, second = (emit(problem, config, ARCHS[arch]) for _ in range(2))
    assert first == second
    assert first.digest() == second.digest()


def test_programmatic_launch_only_where_the_arch_has_it() -> None:
    problem, config, _ = CASES["mma_decode_fp16_sym_sm90a"]
    for name, arch in ARCHS.items():
        source = emit(problem, config, arch)
        assert ("griddepcontrol" in source.text) == name.startswith("sm_90")
        assert source.plan.pdl == name.startswith("sm_90")


def test_weights_are_loaded_before_the_wait_only_where_asked() -> None:
    problem, config, _ = CASES["mma_decode_fp16_sym_sm90a"]
    for weights_first in (True, False):
        text = emit(problem, replace(config, weights_first=weights_first), ARCHS["sm_90a"]).text
        prologue = text.split("// ---- prologue")[1].split("// ---- main loop")[0]
        before = prologue.split("wait_for_previous();")[0]
        assert ("load_weights" in before) == weights_first
        assert "load_x" not in before


@pytest.mark.parametrize("arch", ["sm_90a", "sm_89"])
@pytest.mark.parametrize("trigger", KNOBS["trigger"])
@pytest.mark.parametrize("weights_first", [False, True])
def test_the_successor_may_start_where_the_config_says(
    trigger: str, weights_first: bool, arch: str
) -> None:
    config = replace(CONFIG, trigger=trigger, weights_first=weights_first)
    text = emit(Problem(4096, 4096), config, ARCHS[arch]).text
    body = text[text.index('extern "C"') :]
    if not ARCHS[arch].has_pdl:
        assert "launch_dependents" not in text
        return
    assert body.count("launch_dependents();") == body.count("wait_for_previous();") == 1
    assert KNOBS["trigger"] == ("start", "waited", "drained", "end")
    places = [
        body.index("this thread's part of every stage"),
        body.index("wait_for_previous();"),
        body.index("// ---- main loop"),
        body.index("cp_async_commit();", body.index("// ---- main loop")),
        body.index("fragments to shared memory"),
    ]
    found = sum(place < body.index("launch_dependents();") for place in places)
    assert found == {"start": 0, "waited": 2, "drained": 3, "end": 4}[trigger]
