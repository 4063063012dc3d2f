"""Gates over real machine code: defaults and a sample of the covering set, no bank conflicts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ptxgen.arch import ARCHS
from ptxgen.compile import compile_source
from ptxgen.cpucheck.inspect import inspect
from ptxgen.cpucheck.reduced import Case
from ptxgen.cpucheck.run import SCHEDULES
from ptxgen.cpucheck.shrink import shrink
from ptxgen.errors import ToolError
from ptxgen.families import emit
from ptxgen.families.mma import MMA
from ptxgen.problem import Problem
from ptxgen.sass.disassemble import disassemble, nvdisasm_path
from ptxgen.sass.gates import check_sass

pytestmark = pytest.mark.compile


@pytest.fixture(autouse=True)
def _tool() -> None:
    try:
        nvdisasm_path()
    except ToolError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(
    "problem",
    [Problem(4096, 4096), Problem(28672, 4096, 64, "bf16", "int"), Problem(8192, 8192, 8192)],
    ids=lambda problem: problem.key(),
)
@pytest.mark.parametrize("m", [1, 16, 64])
def test_defaults_keep_their_promises(problem: Problem, arch: str, m: int) -> None:
    config = MMA.default_config(problem, ARCHS[arch], m, 108)
    source = emit(problem, config, ARCHS[arch])
    report = check_sass(problem, config, ARCHS[arch], source.plan, compile_source(source))
    assert report.ok, (config.key(), report.failures)
    assert report.mma > 0


@pytest.mark.parametrize("m", [1, 8])
@pytest.mark.parametrize("group", [32, 128])
def test_raw_nibbles_keep_their_promises(m: int, group: int) -> None:
    """Most winners of up to 8 tokens on an H200 have this knob."""
    problem, arch = Problem(4096, 4096, group), ARCHS["sm_90a"]
    config = replace(MMA.default_config(problem, arch, m, 132), dequant="subnormal")
    source = emit(problem, config, arch)
    report = check_sass(problem, config, arch, source.plan, compile_source(source))
    assert report.ok, (config.key(), report.failures)


@pytest.mark.parametrize("m", [1, 8, 24])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_fragment_loads_are_free_of_bank_conflicts(m: int, dtype: str) -> None:
    problem = Problem(4096, 4096, 128, dtype)  # type: ignore[arg-type]
    config = MMA.default_config(problem, ARCHS["sm_90a"], m, 132)
    small = shrink(problem, config, m)
    found = inspect(Case(small.problem, config, ARCHS["sm_90a"], small.m), SCHEDULES[:1])
    assert found.ok, (found.result.failures, found.sass, found.conflicts)
    assert any(
        item.opcode.startswith("ldmatrix") for item in found.result.reports[0].shared_accesses
    )


def test_a_kernel_that_is_not_there_is_refused() -> None:
    problem = Problem(64, 512)
    config = MMA.default_config(problem, ARCHS["sm_80"], 1, 108)
    compiled = compile_source(emit(problem, config, ARCHS["sm_80"]))
    with pytest.raises(ToolError, match="no kernel named 'other'"):
        disassemble(compiled.cubin, "other")


def test_what_is_no_cubin_is_refused() -> None:
    with pytest.raises(ToolError, match="refused the cubin"):
        disassemble(b"no ELF", "kernel")
