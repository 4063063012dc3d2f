"""wgmma kernels compile without spills or serialised wgmma, for every tile of tokens."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ptxgen.arch import ARCHS
from ptxgen.compile import SERIALIZED, compile_source
from ptxgen.errors import CompileError
from ptxgen.families import emit, violations
from ptxgen.families.wgmma.config import KNOBS, WgmmaConfig
from ptxgen.problem import Problem
from ptxgen.source import KernelSource

pytestmark = pytest.mark.compile

SM90A = ARCHS["sm_90a"]
CONFIG = WgmmaConfig(
    block_m=64,
    block_n=128,
    warpgroups=2,
    num_stages=3,
    split_k=1,
    weights_first=False,
    min_ctas=1,
)
PROBLEMS = [
    Problem(512, 1024),
    Problem(232, 2752, 64, "bf16", "int", bias=True),
    Problem(512, 1024, 1024, "fp16", "int"),
    Problem(1440, 7392, 32, "bf16"),
]


@pytest.mark.sampled
@pytest.mark.parametrize("block_m", KNOBS["block_m"])
def test_every_tile_of_tokens(block_m: int) -> None:
    for index, problem in enumerate(PROBLEMS):
        config = replace(CONFIG, block_m=block_m, split_k=1 + index % 2)
        assert violations(problem, config, SM90A) == []
        compiled = compile_source(emit(problem, config, SM90A))
        assert compiled.resources.spill_bytes == 0, (problem.key(), config.key())
        assert f"wgmma.mma_async.sync.aligned.m64n{block_m}k16" in compiled.ptx


def test_a_serialised_wgmma_is_refused() -> None:
    """Touching an accumulator between wgmma and its wait makes ptxas serialise."""
    source = emit(PROBLEMS[0], CONFIG, SM90A)
    edited = source.text.replace(
        "wgmma_commit();\n      wgmma_wait_1();",
        "wgmma_commit();\n      acc[0][0][0] += 1.0f;\n      wgmma_wait_1();",
    )
    assert edited != source.text
    with pytest.raises(CompileError, match="serialises"):
        compile_source(KernelSource(edited, source.arch, source.plan))
    assert SERIALIZED in "wgmma.mma_async instructions are serialized due to"
