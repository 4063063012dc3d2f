"""The race shadow: what it must report, what it must not, and that both lines are named."""

from __future__ import annotations

import numpy as np
import pytest
from lanes_kernel import kernel_text, run_text

from ptxgen.interp import (
    POLICIES,
    GlobalMemory,
    Launch,
    RunOptions,
    Schedule,
    load_program,
    run,
)

SHARED = ".extern .shared .align 128 .b8 smem[];"
SETUP = """mov.u32 %r0, %tid.x; mov.u32 %r1, smem; shl.b32 %r2, %r0, 2; add.s32 %r3, %r1, %r2;
and.b32 %r4, %r0, 31; shl.b32 %r5, %r4, 2; add.s32 %r6, %r1, %r5; shr.u32 %r7, %r0, 5;
setp.eq.u32 %p0, %r7, 0; setp.eq.u32 %p1, %r7, 1;
"""


def races(body: str, policy: str = "round_robin", threads: int = 64) -> list[tuple[str, str]]:
    """Kinds of the races of a body run by warps 0 (%p0) and 1 (%p1); %r6 is a lane's own word."""
    report, _ = run_text(
        SETUP + body,
        threads=threads,
        smem_bytes=1024,
        shared=SHARED,
        schedule=Schedule(0, policy),  # type: ignore[arg-type]
    )
    for race in report.races:
        assert race.first.warp != race.second.warp
    return [(race.first.kind, race.second.kind) for race in report.races]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_missing_barrier_between_write_and_read(policy: str) -> None:
    """Under every schedule, whichever comes first in it."""
    body = "@%p0 st.shared.b32 [%r6], %r0; BARRIER @%p1 ld.shared.b32 %r9, [%r6];"
    found = races(body.replace("BARRIER", ""), policy)
    assert found in ([("write", "read")], [("read", "write")])
    assert races(body.replace("BARRIER", "bar.sync 0;"), policy) == []
    assert len(races(body.replace("BARRIER", "bar.warp.sync -1;"), policy)) == 1


@pytest.mark.parametrize("policy", POLICIES)
def test_a_missing_barrier_between_read_and_write(policy: str) -> None:
    body = """st.shared.b32 [%r6], %r0; bar.sync 0;
    @%p0 ld.shared.b32 %r9, [%r6]; BARRIER @%p1 st.shared.b32 [%r6], %r0;"""
    body = body.replace("st.shared.b32 [%r6], %r0; bar.sync 0;", "@%p0 st.shared.b32 [%r6], %r0; "
                        "bar.sync 0;")  # fmt: skip
    found = races(body.replace("BARRIER", ""), policy)
    assert found in ([("read", "write")], [("write", "read")])
    assert races(body.replace("BARRIER", "bar.sync 0;"), policy) == []


def test_two_writes() -> None:
    body = "@%p0 st.shared.b32 [%r6], %r0; BARRIER @%p1 st.shared.b32 [%r6], %r0;"
    assert races(body.replace("BARRIER", "")) == [("write", "write")]
    assert races(body.replace("BARRIER", "bar.sync 0;")) == []


def test_two_reads_are_no_race_and_neither_are_different_words() -> None:
    assert races("@%p0 st.shared.b32 [%r6], %r0; bar.sync 0; ld.shared.b32 %r9, [%r6];") == []
    assert races("st.shared.b32 [%r3], %r0; ld.shared.b32 %r9, [%r3];") == []


def test_bytes_of_one_word_are_told_apart() -> None:
    body = """add.s32 %r8, %r6, %r7; st.shared.u8 [%r8], %r0; ld.shared.u8 %r9, [%r8];"""
    assert races(body) == []
    assert races(body + "@%p1 ld.shared.u8 %r9, [%r8+-1];") == [("write", "read")]


def test_a_barrier_of_some_warps_orders_only_these() -> None:
    body = """setp.eq.u32 %p2, %r7, 2; @%p0 st.shared.b32 [%r6], %r0; @%p2 bra LAST; bar.sync 1, 64;
    @%p1 ld.shared.b32 %r9, [%r6]; LAST: @%p2 ld.shared.b32 %r9, [%r6];"""
    assert len(races(body, threads=96)) == 1
    assert races(body.replace("LAST: @%p2", "LAST: @%p1"), threads=96) == []


def test_order_is_transitive() -> None:
    """Warp 0 writes; barrier of 0 and 1; barrier of 1 and 2; then 2 may read."""
    body = """setp.eq.u32 %p2, %r7, 2; @%p0 st.shared.b32 [%r6], %r0;
    @%p2 bra SECOND; bar.sync 1, 64; @%p0 ret;
    SECOND: bar.sync 2, 64; @%p2 ld.shared.b32 %r9, [%r6];"""
    assert races(body, threads=96) == []
    assert len(races(body.replace("bar.sync 1, 64;", ""), threads=96)) == 1


LANES_BODY = """{setup} st.shared.b32 [%r6], %r0; {sync} xor.b32 %r8, %r5, 4; add.s32 %r8, %r8, %r1;
{access};"""


@pytest.mark.parametrize("access", ["ld.shared.b32 %r9, [%r8]", "st.shared.b32 [%r8], %r0"])
def test_lanes_of_a_warp_need_a_warp_barrier(access: str) -> None:
    def seen(sync: str) -> int:
        body = LANES_BODY.format(setup=SETUP, sync=sync, access=access)
        report, _ = run_text(body, smem_bytes=512, shared=SHARED)
        return len(report.races)

    assert seen("") == 1
    assert seen("bar.warp.sync -1;") == 0
    assert seen("bar.sync 0;") == 0


def test_a_lane_that_overwrites_what_another_lane_read() -> None:
    body = f"""{SETUP} st.shared.b32 [%r6], %r0; bar.warp.sync -1; xor.b32 %r8, %r5, 4;
    add.s32 %r8, %r8, %r1; ld.shared.b32 %r9, [%r8]; SYNC st.shared.b32 [%r6], %r0;"""
    for sync, expected in (("", 1), ("bar.warp.sync -1;", 0)):
        report, _ = run_text(body.replace("SYNC", sync), smem_bytes=512, shared=SHARED)
        assert len(report.races) == expected


def test_a_word_read_by_several_lanes_belongs_to_none() -> None:
    """All lanes read word 0; then lane 0, which is one of them, overwrites it."""
    body = f"""{SETUP} setp.eq.u32 %p2, %r0, 0; @%p2 st.shared.b32 [%r1], %r0; bar.warp.sync -1;
    ld.shared.b32 %r9, [%r1]; SYNC @%p2 st.shared.b32 [%r1], %r0;"""
    for sync, expected in (("", 1), ("bar.warp.sync -1;", 0)):
        report, _ = run_text(body.replace("SYNC", sync), smem_bytes=512, shared=SHARED)
        assert len(report.races) == expected


def test_both_lines_are_named_and_each_pair_is_told_once() -> None:
    body = f"""{SETUP}
.loc 1 40 3
@%p0 st.shared.b32 [%r6], %r0;
.loc 1 12 5, function_name $L__info_string0, inlined_at 1 41 7
@%p1 ld.shared.b32 %r9, [%r6];
"""
    text = kernel_text(body, 0, SHARED)
    program = load_program(text, "k")
    report = run(program, Launch((4, 1, 1), (64, 1, 1), 512, ()), GlobalMemory())
    (race,) = report.races
    lines = text.split("\n")
    assert "st.shared" in lines[race.first.ptx_line - 1]
    assert "ld.shared" in lines[race.second.ptx_line - 1]
    assert (race.first.source_line, race.second.source_line) == (40, 41)
    assert race.address == 1024
    assert "source line 40" in str(race)
    assert "st.shared.b32 [%r6], %r0" in str(race)


def test_the_watch_can_be_turned_off() -> None:
    body = SETUP + "@%p0 st.shared.b32 [%r6], %r0; @%p1 ld.shared.b32 %r9, [%r6];"
    options = RunOptions(races=False)
    report, _ = run_text(body, threads=64, smem_bytes=512, shared=SHARED, options=options)
    assert report.races == ()


def test_shared_accesses_are_recorded_when_asked_for() -> None:
    body = SETUP + "st.shared.b32 [%r3], %r0; @%p0 ld.shared.v2.b32 {%r8, %r9}, [%r1];"
    options = RunOptions(record_shared=True)
    report, _ = run_text(body, threads=64, smem_bytes=512, shared=SHARED, options=options)
    stores = [a for a in report.shared_accesses if a.opcode == "st.shared.b32"]
    assert [a.warp for a in stores] == [0, 1]
    assert stores[1].addresses == tuple(1024 + 4 * lane for lane in range(32, 64))
    (load,) = [a for a in report.shared_accesses if a.opcode == "ld.shared.v2.b32"]
    assert (load.warp, load.lane_bytes, set(load.addresses)) == (0, 8, {1024})
    assert np.array_equal(sorted({a.ptx_line for a in report.shared_accesses}), [load.ptx_line])
