"""SASS gates on listings written by hand: what is promised passes, what is not is named."""

from __future__ import annotations

from dataclasses import replace
from importlib import metadata
from typing import Any

import pytest

from ptxgen.arch import ARCHS
from ptxgen.errors import ToolError
from ptxgen.families.mma.config import MmaConfig
from ptxgen.problem import Problem
from ptxgen.sass import disassemble as disassemble_module
from ptxgen.sass.disassemble import Disassembly, nvdisasm_path, parse
from ptxgen.sass.gates import main_loop, report_on
from ptxgen.sass.promises import Promises, promises_of
from ptxgen.source import LaunchPlan

PROMISES = Promises(
    mma=2, weight_loads=2, scale_loads=1, zero_loads=1, activation_loads=1, max_registers=64
)

LOOP = """\
LDS.128 R8, [R59+UR5]
LDS.128 R12, [R59+UR5+0x400]
LDSM.16.M88.4 R24, [R65+0x4200]
LDS R20, [R59]
LDS.U8 R21, [R60]
HMMA.16816.F32 R20, R20, R24.reuse, RZ
@P3 HMMA.16816.F32.BF16 R20, R20, R24, R20
LDGSTS.E.BYPASS.LTC128B.128 [R3], [R4.64]"""


def listing(before: str = "", loop: str = LOOP, after: str = "STG.E.64 [R2], R4") -> str:
    """What nvdisasm -c prints of a kernel with one loop."""
    lines = ["//--------------------- .text.other        --------------------------"]
    lines += ["        /*0000*/                   LDL R1, [R2] ;"]
    lines += [
        "//--------------------- .text.kernel       --------------------------",
        ".text.kernel:",
    ]
    address = 0

    def add(text: str) -> None:
        nonlocal address
        for item in filter(None, text.splitlines()):
            lines.append(f"        /*{address:04x}*/                   {item} ;")
            address += 16

    add(before or "LDC R1, c[0x0][0x28]\n@!PT LDS RZ, [RZ]")
    lines.append(".L_x_1:")
    add(loop + "\n@P0 BRA `(.L_x_1)")
    add(after + "\nEXIT")
    return "\n".join(lines)


def code(**parts: str) -> Disassembly:
    return parse(listing(**parts), "kernel")


def test_parsing_keeps_what_executes_of_one_kernel() -> None:
    found = code()
    assert [item.opcode for item in found.instructions[:2]] == ["LDC", "LDS.128"]
    assert found.labels == {".L_x_1": 32}
    assert found.loops() == [(32, 32 + 8 * 16)]
    guarded = found.instructions[7]
    assert (guarded.guard, guarded.opcode) == ("P3", "HMMA.16816.F32.BF16")
    assert guarded.is_a("HMMA", "BF16")
    assert not guarded.is_a("HMM")
    assert len(main_loop(found)) == 9


def test_what_is_promised_passes() -> None:
    report = report_on(code(), PROMISES, 64)
    assert report.ok, report.failures
    assert (report.mma, report.stage_copies, report.registers) == (2, 1, 64)
    assert report.memory == {
        "LDGSTS.128": 1,
        "LDS": 1,
        "LDS.128": 2,
        "LDS.U8": 1,
        "LDSM.M88": 1,
        "STG.64": 1,
    }


def test_a_loop_unrolled_twice_passes() -> None:
    report = report_on(code(loop=f"{LOOP}\n{LOOP}"), PROMISES, 64)
    assert report.ok
    assert report.stage_copies == 2


def test_a_wait_that_goes_on_behind_the_kernel_is_no_loop_around_the_rest() -> None:
    """ptxas puts what seldom happens at the end, from where it jumps back before the main loop."""
    found = code(after="LDS R9, [R1]\n@P1 BRA `(.L_x_1)")
    assert found.loops() == [(32, 160), (32, 192)]
    assert len(main_loop(found)) == 9
    assert report_on(found, PROMISES, 64).ok


def in_a_row(stages: str, behind: str) -> Disassembly:
    """A kernel without any loop."""
    texts = f"LDC R1, c[0x0][0x28]\n{stages}\n{behind}\nEXIT".splitlines()
    lines = ["//--------------------- .text.kernel       --------------------------"]
    lines += [f"        /*{16 * place:04x}*/         {text} ;" for place, text in enumerate(texts)]
    return parse("\n".join(lines), "kernel")


BEHIND = "BAR.SYNC.DEFER_BLOCKING 0x0\nLDS R4, [R1]\nSTG.E.64 [R2], R4"


@pytest.mark.parametrize("stages", [1, 3])
def test_without_a_loop_the_stages_end_at_the_next_barrier(stages: int) -> None:
    """The last zero point may be loaded behind the last tensor instruction, before the barrier."""
    late = "\n".join([*[LOOP] * stages, "LDS.U8 R2, [R1]"]).replace("LDS.U8 R21, [R60]\n", "", 1)
    report = report_on(in_a_row(late, BEHIND), PROMISES, 64)
    assert (report.failures, report.stage_copies) == ((), stages)
    more = report_on(in_a_row(f"{late}\nLDS R3, [R1]", BEHIND), PROMISES, 64)
    assert more.failures == (
        f"the main loop has {stages + 1} 4-byte loads of scales (LDS) where {stages} are promised",
    )


@pytest.mark.parametrize(
    ("parts", "registers", "message"),
    [
        ({"after": "STL [R1], R2"}, 64, "1 instructions touch local memory"),
        ({"before": "LDL R2, [R1]"}, 64, "touch local memory"),
        ({"loop": LOOP + "\nHMMA.16816.F32 R1, R2, R3, R1"}, 64, "3 tensor instructions"),
        ({"loop": "IADD3 R1, R2, R3"}, 64, "0 tensor instructions"),
        ({"loop": LOOP.replace("LDS.128 R8", "LDS.64 R8")}, 64, "1 16-byte loads of weights"),
        ({"loop": LOOP + "\nLDS R2, [R1]"}, 64, "2 4-byte loads of scales"),
        ({"loop": LOOP.replace("LDS.U8", "LDS")}, 64, "0 1-byte loads of zero points"),
        ({"loop": LOOP + "\nLDSM.16.M88.2 R2, [R1]"}, 64, "2 matrix loads"),
        ({"loop": LOOP.replace("LTC128B.128", "LTC128B")}, 64, "of 16 bytes"),
        ({"before": "LDGSTS.E [R1], [R2.64]"}, 64, "are of 4 bytes"),
        ({}, 65, "65 registers a thread are more than the 64"),
    ],
)
def test_each_gate_names_what_is_wrong(parts: dict[str, str], registers: int, message: str) -> None:
    report = report_on(code(**parts), PROMISES, registers)
    assert any(message in failure for failure in report.failures), report.failures


def test_without_promises_only_local_memory_counts() -> None:
    assert report_on(code(loop="IADD3 R1, R2, R3"), None, 255).ok
    assert not report_on(code(after="LDL R1, [R2]"), None, 32).ok


@pytest.mark.parametrize(
    ("knobs", "problem", "expected"),
    [
        # One packed block, one row block, one n8 tile: 8 steps, 4 ldmatrix.x4 of two steps each.
        ({}, Problem(64, 1024), Promises(8, 2, 1, 0, 4, 255)),
        ({"warp_n": 32, "block_n": 32}, Problem(64, 1024, 32, zero="int"), (16, 4, 8, 8, 4)),
        ({"block_m": 24, "warp_m": 24}, Problem(64, 1024, 64), (24, 2, 2, 0, 16)),
        ({"block_k": 512, "warps_k": 2}, Problem(64, 1024, 1024, zero="int"), (16, 4, 0, 0, 8)),
        # Raw nibbles: one more mma a step and n8 tile, which sums the activations.
        ({"dequant": "subnormal"}, Problem(64, 1024), (16, 2, 1, 0, 4)),
        (
            {"dequant": "subnormal", "warp_n": 48, "block_n": 48},
            Problem(64, 1024),
            (32, 6, 3, 0, 4),
        ),
    ],
)
def test_promises_by_hand(
    knobs: dict[str, Any], problem: Problem, expected: Promises | tuple[int, ...]
) -> None:
    base = MmaConfig(8, 8, 16, 16, 128, 1, 2, 1, "accumulators", False, 1)
    plan = LaunchPlan(128, 0, 8, 16, 4, 1, True)
    found = promises_of(problem, replace(base, **knobs), ARCHS["sm_90a"], plan)
    assert found is not None
    if isinstance(expected, Promises):
        assert found == expected
    else:
        counts = (found.mma, found.weight_loads, found.scale_loads, found.zero_loads)
        assert (*counts, found.activation_loads) == expected


@pytest.mark.parametrize(("min_ctas", "registers"), [(1, 255), (2, 255), (3, 168), (4, 128)])
def test_registers_of_the_occupancy_planned(min_ctas: int, registers: int) -> None:
    config = MmaConfig(8, 8, 16, 16, 128, 1, 2, 1, "weights", False, min_ctas)
    plan = LaunchPlan(128, 0, 8, 16, 4, 1, True)
    found = promises_of(Problem(64, 1024), config, ARCHS["sm_90a"], plan)
    assert found is not None
    assert found.max_registers == registers


def test_a_missing_tool_is_named_with_its_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> list[metadata.PackagePath]:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(disassemble_module.importlib.metadata, "files", missing)
    monkeypatch.setenv("PATH", "")
    nvdisasm_path.cache_clear()
    with pytest.raises(ToolError, match="pip install 'nvidia-cuda-nvdisasm"):
        nvdisasm_path()
    nvdisasm_path.cache_clear()
