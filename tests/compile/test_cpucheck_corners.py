"""Gates over the machine code of corner shapes, of all families: a right kernel is never failed."""

from __future__ import annotations

import json
from functools import cache

import pytest
from click.testing import CliRunner

from ptxgen.arch import ARCHS
from ptxgen.compile import compile_source
from ptxgen.cpucheck.corners import corner_cases, corner_problems, spread
from ptxgen.cpucheck.covering import covering_set
from ptxgen.cpucheck.reduced import Case
from ptxgen.cpucheck.tile import Tile
from ptxgen.errors import SerializedError, ToolError
from ptxgen.families import FAMILIES, default_config, emit, family_named
from ptxgen.problem import Problem
from ptxgen.sass.disassemble import nvdisasm_path
from ptxgen.sass.gates import check_sass
from ptxtune.cli import cli

pytestmark = [pytest.mark.compile, pytest.mark.timeout(600)]

PARTS = 24


@pytest.fixture(autouse=True)
def _tool() -> None:
    try:
        nvdisasm_path()
    except ToolError as error:
        pytest.skip(str(error))


def gate_failures(cases: list[Case]) -> tuple[int, list[str]]:
    """Kernels gated, and what failed; what spills or is serialised is stored and never timed."""
    found: list[str] = []
    gated = 0
    for case in cases:
        source = emit(case.problem, case.config, case.arch)
        try:
            compiled = compile_source(source)
        except SerializedError:
            continue
        if compiled.resources.spill_bytes == 0:
            gated += 1
            report = check_sass(case.problem, case.config, case.arch, source.plan, compiled)
            found += [f"{case}: {failure}" for failure in report.failures]
    return gated, found


@cache
def corners(family: str) -> tuple[Case, ...]:
    return tuple(corner_cases(covering_set(family), count=10_000, max_work=10**9))


@pytest.mark.sampled(every=PARTS)
@pytest.mark.parametrize(
    ("family", "part"), [(family, part) for family in FAMILIES for part in range(PARTS)]
)
def test_every_corner_keeps_its_promises(family: str, part: int) -> None:
    mine = list(corners(family)[part::PARTS])
    gated, failures = gate_failures(mine)
    assert not failures
    assert gated > len(mine) / 2


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_defaults_of_one_stage_keep_their_promises(arch: str) -> None:
    """What ptxtune check --cpu is asked about small layers: K of one stage, any groups."""
    cases = [
        Case(problem, default_config(problem, ARCHS[arch], m, 132), ARCHS[arch], m)
        for m, problem in [
            (1, Problem(8, 32, 32)),
            (8, Problem(64, 128, 32, "bf16", "int")),
            (17, Problem(64, 128)),
            (17, Problem(64, 96, 96, "bf16", "int", True)),
            (64, Problem(128, 64, 64)),
            (300, Problem(264, 160, 160, zero="int")),
        ]
    ]
    gated, failures = gate_failures(cases)
    assert not failures
    assert gated == len(cases)


def test_check_passes_a_right_kernel_of_one_stage() -> None:
    words = ["check", "--cpu", "--n", "64", "--k", "128", "--m", "17", "--arch", "sm_90a", "--json"]
    result = CliRunner().invoke(cli, words)
    (check,) = json.loads(result.stdout)["checks"]
    assert (result.exit_code, check["ok"], check["sass"]["failures"]) == (0, True, [])
    assert check["config"]["family"] == "wgmma_tma"
    assert check["sass"]["stage_copies"] == 2, "one of each way of dequantizing"


@pytest.mark.parametrize("family", FAMILIES)
def test_corners_are_in_the_covering_set(family: str) -> None:
    cases = covering_set(family)
    tiles = [(case, Tile.of(case.config)) for case in cases]
    small = [case for case, tile in tiles if case.problem.k <= tile.block_k]
    assert [case for case in small if case.problem.k < Tile.of(case.config).block_k]
    assert [case for case in small if case.problem.n == Tile.of(case.config).block_n]
    assert [case for case in small if case.problem.n == 8]
    assert [case for case in small if case.problem.num_groups == 1 and not case.problem.whole_k]
    assert [case for case in small if case.problem.whole_k]
    knobs = family_named(family).knobs()
    for name in knobs:
        held = {case.config.to_dict()[name] for case in spread(cases)}
        assert held == {case.config.to_dict()[name] for case in cases}


def test_corner_problems_by_hand() -> None:
    problem, arch = Problem(64, 128), ARCHS["sm_90a"]
    config = default_config(problem, arch, 17, 132)
    found = corner_problems(config, arch)
    assert {item.k for item in found} == {32, 64, 96, 128}
    assert {item.n for item in found} == {8, 64, 72}
    assert {item.group_size for item in found} == {32, 64, 96, 128}
    assert {(item.dtype, item.zero, item.bias) for item in found if item.k == 128} == {
        (dtype, zero, bias)
        for dtype in ("fp16", "bf16")
        for zero in ("sym", "int")
        for bias in (False, True)
    }
