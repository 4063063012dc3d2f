"""Gates of wgmma_tma on listings written by hand, and its promises by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ptxgen.arch import ARCHS
from ptxgen.families.wgmma_tma import WGMMA_TMA
from ptxgen.families.wgmma_tma.config import WgmmaTmaConfig
from ptxgen.problem import Problem
from ptxgen.sass.disassemble import Disassembly, parse
from ptxgen.sass.gates import report_on
from ptxgen.sass.promises import promises_of
from ptxgen.sass.warpgroup import WarpgroupPromises

PROMISES = WarpgroupPromises(
    wgmma=2, weight_loads=2, scale_loads=1, zero_loads=1, strips=2, max_registers=168
)
STAGE = """\
HGMMA.64x16x16.F32 R24, R4, gdesc[UR8], R24, !UPT
HGMMA.64x16x16.F32.BF16 R24, R8, gdesc[UR8], R24, gsb0
LDS.128 R8, [R59+UR5]
LDS.128 R12, [R59+UR5+0x200]
LDS R20, [R59]
LDS.U8 R21, [R60]"""
COPIES = """\
UBLKCP.S.G [UR8], [UR4], UR6
UBLKCP.S.G [UR8], [UR4], UR6
UTMALDG.2D [UR8], [UR4]
UTMALDG.2D [UR8], [UR4]"""
TILE = "LDS.128 R8, [R59+UR5]\nSTG.E [R2.64], R4"


def code(
    stage: str = STAGE, copies: str = COPIES, tile: str = TILE, second: str = ""
) -> Disassembly:
    """What nvdisasm -c prints of a kernel with a loop over tiles around one or two over stages."""
    lines = ["//--------------------- .text.kernel       --------------------------"]
    address = 0

    def add(text: str) -> None:
        nonlocal address
        for item in filter(None, text.splitlines()):
            lines.append(f"        /*{address:04x}*/                   {item} ;")
            address += 16

    add(copies)
    lines.append(".L_x_1:")
    add("MOV R1, R2")
    lines.append(".L_x_2:")
    add(f"{stage}\n@P0 BRA `(.L_x_2)")
    if second:
        lines.append(".L_x_3:")
        add(f"{second}\n@P0 BRA `(.L_x_3)")
    add(f"{tile}\n@P1 BRA `(.L_x_1)\nEXIT")
    return parse("\n".join(lines), "kernel")


def test_what_is_promised_passes() -> None:
    report = report_on(code(), PROMISES, 168)
    assert report.ok, report.failures
    assert (report.mma, report.stage_copies, report.registers) == (2, 1, 168)
    assert report_on(code(stage=f"{STAGE}\n{STAGE}"), PROMISES, 168).stage_copies == 2


@pytest.mark.parametrize(
    ("parts", "registers", "message"),
    [
        ({"tile": "STL [R1], R2"}, 168, "1 instructions touch local memory"),
        ({"stage": STAGE + "\nHGMMA.64x16x16.F32 R1, R2"}, 168, "3 tensor instructions (HGMMA)"),
        ({"stage": STAGE.replace("HGMMA", "HMMA")}, 168, "0 tensor instructions (HGMMA)"),
        ({"stage": STAGE + "\nLDS.128 R8, [R1]"}, 168, "3 16-byte loads of weights"),
        ({"stage": STAGE.replace("LDS R20", "LDS.64 R20") + "\nLDS R1, [R2]"}, 168, "2 4-byte"),
        ({"stage": STAGE.replace("LDS.U8", "LDS")}, 168, "0 1-byte loads of zero points"),
        ({"copies": COPIES.replace("UTMALDG.2D", "NOP")}, 168, "0 tensor copies (UTMALDG) and 2"),
        ({"copies": COPIES + "\nUBLKCP.S.G [UR8], [UR4], UR6"}, 168, "3 bulk copies (UBLKCP)"),
        ({"tile": "LDGSTS.E.128 [R1], [R2.64]"}, 168, "1 copies to shared memory (LDGSTS)"),
        ({}, 169, "169 registers a thread are more than the 168"),
    ],
)
def test_each_gate_names_what_is_wrong(parts: dict[str, str], registers: int, message: str) -> None:
    report = report_on(code(**parts), PROMISES, registers)
    assert any(message in failure for failure in report.failures), report.failures


def one_stage(stage: str = STAGE) -> Disassembly:
    """A stage without a loop inside of the loop over tiles, which reads and stores results too."""
    text = f"{stage}\nBAR.SYNC.DEFER_BLOCKING R80, 0x80\nLDS.64 R4, [R1]\nLDS.64 R6, [R1]"
    return code(stage="MOV R1, R2", tile=f"{text}\n{TILE}")


def test_a_loop_over_tiles_is_none_over_stages() -> None:
    report = report_on(one_stage(), PROMISES, 168)
    assert (report.failures, report.stage_copies) == ((), 1)
    more = report_on(one_stage(STAGE + "\nLDS R9, [R1]"), PROMISES, 168)
    assert more.failures == (
        "the main loop has 2 4-byte loads of scales (LDS) where 1 are promised",
    )


SEND = "UBLKCP.G.S [UR8], [UR4], UR6"
BRING = "UBLKCP.S.G [UR8], [UR4], UR6"


def test_sums_of_shared_tiles_are_sent_and_brought_behind_all_stages() -> None:
    shares = replace(PROMISES, shares=True)
    assert report_on(code(copies=f"{SEND}\n{COPIES}\n{SEND}\n{BRING}"), shares, 168).ok
    # A tile of one stage has no parts to bring, but the text of a part's end stays.
    assert report_on(code(copies=f"{SEND}\n{COPIES}\n{SEND}"), PROMISES, 168).ok


@pytest.mark.parametrize(
    ("copies", "message"),
    [
        (COPIES, "0 bulk copies (UBLKCP.G.S) send sums of shared tiles, and 0 behind"),
        (f"{COPIES}\n{SEND}", "1 bulk copies (UBLKCP.G.S) send sums of shared tiles, and 0 behind"),
        (
            f"{COPIES}\n{BRING}",
            "0 bulk copies (UBLKCP.G.S) send sums of shared tiles, and 1 behind",
        ),
        (f"{BRING}\n{COPIES}\n{SEND}\n{BRING}", "2 tensor copies (UTMALDG) and 3 bulk copies"),
    ],
)
def test_each_gate_of_shared_tiles_names_what_is_wrong(copies: str, message: str) -> None:
    report = report_on(code(copies=copies), replace(PROMISES, shares=True), 168)
    assert any(message in failure for failure in report.failures), report.failures


WAYS = replace(PROMISES, ways=2)


def test_both_main_loops_are_held_to_the_promises() -> None:
    assert report_on(code(second=f"{STAGE}\nHFMA2 R1, R2, R3"), WAYS, 168).ok
    short = code(second=STAGE.replace("LDS.U8", "NOP"))
    assert report_on(short, WAYS, 168).failures == (
        "the main loop has 0 1-byte loads of zero points (LDS.U8) where 1 are promised",
    )
    longer = code(second=f"{STAGE}\nHFMA2 R1, R2, R3\nLDS R1, [R2]")
    assert any(
        "2 4-byte loads of scales" in failure for failure in report_on(longer, WAYS, 168).failures
    )


def test_a_main_loop_of_its_own_is_missed_where_it_is_promised() -> None:
    """The other way's stages stand in a row, or are those of the first."""
    lost = code(second="HGMMA.64x16x16.F32 R24, R4\nHGMMA.64x16x16.F32 R24, R4\nLDS R1, [R2]")
    lost = replace(lost, labels={n: a for n, a in lost.labels.items() if n != ".L_x_3"})
    assert any(
        "1 main loops have tensor instructions (HGMMA) where 2 do" in failure
        for failure in report_on(lost, WAYS, 168).failures
    )


def test_stages_of_both_ways_in_a_row_share_the_loads_of_the_first() -> None:
    """K of one stage: its words are read before the ways part."""
    lines = STAGE.splitlines()
    stages = "\n".join([*lines[2:], *lines[:2], *lines[:2]])
    in_a_row = code(stage=stages, tile=f"BAR.SYNC 0x1\n{TILE}")
    labels = {name: at for name, at in in_a_row.labels.items() if name == ".L_none"}
    assert report_on(replace(in_a_row, labels=labels), WAYS, 168).ok


BASE = WgmmaTmaConfig(64, 128, 2, 3, 2, 1, 1, 1, 0)


@pytest.mark.parametrize(
    ("knobs", "problem", "expected"),
    [
        # 8 k16 steps of one strip; 4096 bytes are 256 loads of 16 bytes, two by each of 128 lanes.
        ({}, Problem(4096, 4096), WarpgroupPromises(8, 2, 1, 0, 2, 168, ways=2)),
        ({}, Problem(4096, 4096, 128, "bf16"), WarpgroupPromises(8, 2, 1, 0, 2, 168)),
        ({"block_n": 256}, Problem(4096, 4096, 32, zero="int"), (16, 4, 8, 8, 4, 168, False, 2)),
        ({"warpgroups": 1}, Problem(4096, 4096, 64), (16, 4, 4, 0, 2, 255, False, 2)),
        ({"min_ctas": 2}, Problem(4096, 4096, 4096, zero="int"), (8, 2, 0, 0, 2, 96)),
        ({"block_n": 192, "warpgroups": 3}, Problem(4096, 4096), (8, 2, 1, 0, 3, 128, False, 2)),
        ({"max_ctas": 132, "stream_k": True}, Problem(4096, 4096), (8, 2, 1, 0, 2, 168, True, 2)),
        (
            {"max_ctas": 132, "stream_k": True},
            Problem(4096, 160, 32),
            (8, 2, 4, 0, 2, 168, True, 2),
        ),
        ({"max_ctas": 132, "stream_k": True}, Problem(4096, 128), (8, 2, 1, 0, 2, 168, False, 2)),
    ],
)
def test_promises_by_hand(
    knobs: dict[str, int], problem: Problem, expected: WarpgroupPromises | tuple[int, ...]
) -> None:
    arch, config = ARCHS["sm_90a"], replace(BASE, **knobs)  # type: ignore[arg-type]
    found = promises_of(problem, config, arch, WGMMA_TMA.plan(problem, config, arch))
    wanted = expected if isinstance(expected, tuple) else None
    assert found == (WarpgroupPromises(*wanted) if wanted else expected)
