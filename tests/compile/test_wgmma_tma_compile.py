"""The small space of wgmma_tma compiles whole: no serialised wgmma, hardly a spill, setmaxnreg
honoured, and machine code as promised."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle, product

import pytest
from wgmma_tma_cases import BASE, SM90A

from ptxgen.compile import SERIALIZED, compile_source
from ptxgen.cpucheck.inspect import inspect
from ptxgen.cpucheck.reduced import Case
from ptxgen.cpucheck.run import SCHEDULES as ORDERS
from ptxgen.cpucheck.shrink import shrink
from ptxgen.errors import CompileError, ToolError
from ptxgen.families import emit, violations
from ptxgen.families.wgmma_tma import WGMMA_TMA
from ptxgen.families.wgmma_tma.config import WgmmaTmaConfig
from ptxgen.problem import Dtype, Problem, Zero
from ptxgen.sass.disassemble import nvdisasm_path
from ptxgen.sass.gates import check_sass
from ptxgen.source import KernelSource

pytestmark = pytest.mark.compile

PROBLEMS = [
    Problem(512, 1024),
    Problem(232, 2752, 64, "bf16", "int", bias=True),
    Problem(512, 1024, 1024, "fp16", "int"),
    Problem(1440, 7392, 32, "bf16"),
    Problem(512, 1024, 32, "fp16", "int"),
    Problem(520, 1024, 128, "bf16", "int"),
    Problem(512, 1152, 1152, "bf16", bias=True),
]
SHARES = ((64, 1), (128, 1), (128, 2), (192, 3), (256, 2), (256, 4))
SCHEDULES = (
    {},
    {"split_k": 2},
    {"max_ctas": 132, "raster": 8},
    {"multicast": 2},
    {"max_ctas": 132, "stream_k": True},
    {"split_k": 4, "multicast": 2},
)
SMALL_SPILL = 64
"""Bytes of a thread, in the few configs whose registers are all but used up."""


def small_space() -> list[tuple[Problem, WgmmaTmaConfig]]:
    """Each tile with the next schedule and the next problem."""
    problems, schedules = cycle(PROBLEMS), cycle(SCHEDULES)
    found = []
    for block_m, (block_n, warpgroups), chunk in product((16, 48, 64, 128, 256), SHARES, (1, 2, 4)):
        tile = replace(BASE, block_m=block_m, block_n=block_n, warpgroups=warpgroups, chunk=chunk)
        problem, config = next(problems), replace(tile, **next(schedules))
        if not violations(problem, config, SM90A):
            found.append((problem, config))
    return found


@pytest.mark.sampled
@pytest.mark.parametrize("part", range(4))
def test_the_small_space_compiles(part: int) -> None:
    space = small_space()[part::4]
    assert len(space) >= 12
    spilled = 0
    for problem, config in space:
        compiled = compile_source(emit(problem, config, SM90A))
        assert compiled.resources.spill_bytes <= SMALL_SPILL, (problem.key(), config.key())
        assert SERIALIZED not in compiled.log
        assert f"wgmma.mma_async.sync.aligned.m64n{config.block_m}k16" in compiled.ptx
        spilled += compiled.resources.spill_bytes > 0
    assert spilled <= len(space) // 5


def test_the_small_space_has_everything() -> None:
    space = small_space()
    assert {problem for problem, _ in space} == set(PROBLEMS)
    for name in ("block_m", "block_n", "warpgroups", "chunk", "split_k", "multicast", "stream_k"):
        values = {getattr(config, name) for _, config in space}
        assert len(values) >= 2, name
    assert {config.block_n // config.warpgroups for _, config in space} == {64, 128}


@pytest.mark.parametrize("m", [17, 64, 128, 512, 4096])
def test_defaults_do_not_spill(m: int) -> None:
    for problem in (PROBLEMS[1], Problem(4096, 4096), Problem(28672, 4096, 64, "bf16", "int")):
        config = WGMMA_TMA.default_config(problem, SM90A, m, 132)
        compiled = compile_source(emit(problem, config, SM90A))
        assert compiled.resources.spill_bytes == 0, (problem.key(), config.key())


@pytest.mark.parametrize(("dtype", "zero"), [*product(("fp16", "bf16"), ("sym", "int"))])
@pytest.mark.parametrize("group", [64, 128, 4096])
def test_the_default_of_a_wide_layer_has_registers_enough(
    dtype: Dtype, zero: Zero, group: int
) -> None:
    """Here 128 x 256 would fill the GPU best, which spills with zero points or whole-K scales."""
    problem = Problem(28672, 4096, group, dtype, zero)
    config = WGMMA_TMA.default_config(problem, SM90A, 96, 132)
    assert ((config.block_m, config.block_n) == (128, 256)) == (zero == "sym" and group != 4096)
    assert compile_source(emit(problem, config, SM90A)).resources.spill_bytes == 0


def test_a_serialised_wgmma_is_refused() -> None:
    """Touching an accumulator between wgmma and its wait makes ptxas serialise."""
    source = emit(PROBLEMS[0], BASE, SM90A)
    edited = source.text.replace(
        "        wgmma_commit();\n", "        wgmma_commit();\n        acc[0][0][0] += 1.0f;\n"
    )
    assert edited != source.text
    with pytest.raises(CompileError, match="serialises"):
        compile_source(KernelSource(edited, source.arch, source.plan))


def test_setmaxnreg_is_honoured() -> None:
    config = replace(BASE, block_m=256, block_n=128, warpgroups=2)
    compiled = compile_source(emit(Problem(512, 1024), config, SM90A))
    assert "setmaxnreg.inc" in compiled.ptx
    assert "setmaxnreg.dec" in compiled.ptx
    assert "ignored" not in compiled.log
    assert compiled.resources.registers == 168


@pytest.mark.sampled
@pytest.mark.parametrize("part", range(2))
def test_machine_code_keeps_its_promises(part: int) -> None:
    """Every kernel of the small space that has no spill passes all gates."""
    try:
        nvdisasm_path()
    except ToolError as error:
        pytest.skip(str(error))
    checked = 0
    for problem, config in small_space()[part::4]:
        source = emit(problem, config, SM90A)
        compiled = compile_source(source)
        report = check_sass(problem, config, SM90A, source.plan, compiled)
        if compiled.resources.spill_bytes == 0:
            assert report.ok, (problem.key(), config.key(), report.failures)
            checked += 1
        else:
            assert ["local memory" in failure for failure in report.failures] == [True]
    assert checked >= 10


@pytest.mark.parametrize("m", [17, 64, 512])
def test_defaults_are_free_of_bank_conflicts_and_keep_their_promises(m: int) -> None:
    problem = Problem(4096, 4096)
    default = WGMMA_TMA.default_config(problem, SM90A, m, 132)
    assert isinstance(default, WgmmaTmaConfig)
    config = replace(default, num_stages=2 * default.warpgroups_k)
    small = shrink(problem, config, min(m, 20))
    found = inspect(Case(small.problem, config, SM90A, small.m), ORDERS[:1])
    assert found.ok, (found.result.failures, found.sass, found.conflicts)
    loads = found.result.reports[0].shared_accesses
    assert any(item.opcode.startswith("ld.shared.v4") for item in loads)
