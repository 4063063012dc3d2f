"""The small space compiles whole, and the defaults use no local memory, on every arch."""

from __future__ import annotations

import itertools

import pytest

from ptxgen.arch import ARCHS
from ptxgen.compile import compile_source
from ptxgen.families import default_config, emit, violations
from ptxgen.families.mma.config import MmaConfig
from ptxgen.problem import Problem

pytestmark = pytest.mark.compile

PROBLEMS = [
    Problem(n, k, group, dtype, zero, bias)  # type: ignore[arg-type]
    for (n, k), group, (dtype, zero), bias in zip(
        itertools.cycle([(512, 1024), (232, 2752), (1440, 7392)]),
        [128, 64, 32, 64, 128, 64, 32, 32, 128],
        itertools.cycle([("fp16", "sym"), ("bf16", "int"), ("fp16", "int"), ("bf16", "sym")]),
        itertools.cycle([False, True]),
        strict=False,
    )
    if k % group == 0
] + [Problem(512, 1024, 1024, "fp16", "int"), Problem(232, 2752, 2752, "bf16", "sym", True)]


def small_space() -> list[tuple[Problem, MmaConfig]]:
    """The small space of docs/kernels.md: each config with the next problem it is legal for."""
    problems = itertools.cycle(PROBLEMS)
    found = []
    for (
        block_m,
        warps_m,
        warps_n,
        warp_n,
        warps_k,
        num_stages,
        split_k,
        scale_on,
    ) in itertools.product(
        (1, 8, 24, 64),
        (1, 2),
        (1, 4),
        (16, 48),
        (1, 4),
        (2, 3),
        (1, 2),
        ("weights", "accumulators"),
    ):
        if block_m // warps_m < 8 and warps_m > 1:
            continue
        config = MmaConfig(
            block_m=block_m,
            warp_m=block_m // warps_m,
            block_n=warp_n * warps_n,
            warp_n=warp_n,
            block_k=128 * warps_k,
            warps_k=warps_k,
            num_stages=num_stages,
            split_k=split_k,
            scale_on=scale_on,
            weights_first=num_stages == 2,
            min_ctas=1,
        )
        for _ in range(len(PROBLEMS)):
            problem = next(problems)
            if not violations(problem, config, ARCHS["sm_80"]):
                found.append((problem, config))
                break
    return found


SMALL = small_space()


def test_the_small_space_is_what_it_claims() -> None:
    assert len(SMALL) > 150
    assert {problem.dtype for problem, _ in SMALL} == {"fp16", "bf16"}
    assert {problem.whole_k for problem, _ in SMALL} == {True, False}
    assert {problem.group_size for problem, _ in SMALL} >= {32, 64, 128}


@pytest.mark.sampled(every=8)
@pytest.mark.parametrize(
    ("arch", "part"),  # every fourth one: another part of the space on each arch
    [
        (arch, part)
        for part in range(8)
        for arch in (("sm_80", "sm_90") if part % 4 == 2 else ("sm_90", "sm_80"))
    ],
)
def test_every_legal_config_of_the_small_space_compiles(arch: str, part: int) -> None:
    for problem, config in SMALL[part::8]:
        compiled = compile_source(emit(problem, config, ARCHS[arch]))
        assert compiled.cubin.startswith(b"\x7fELF")
        assert compiled.resources.registers <= 255
        assert f".target {arch}" in compiled.ptx


@pytest.mark.sampled
@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90a"])
@pytest.mark.parametrize(
    "problem",
    [
        Problem(4096, 4096),
        Problem(28672, 4096, 128, "bf16", "int", bias=True),
        Problem(1440, 7392, 32, "fp16", "int"),
        Problem(8192, 8192, 8192, "bf16"),
    ],
    ids=lambda problem: problem.key(),
)
def test_defaults_do_not_spill(problem: Problem, arch: str) -> None:
    for m in (1, 8, 16, 32, 64, 256):
        config = default_config(problem, ARCHS[arch], m, 108)
        compiled = compile_source(emit(problem, config, ARCHS[arch]))
        assert compiled.resources.spill_bytes == 0, config.key()
        assert ".local" not in compiled.ptx
