"""Branches, divergence, barriers and schedules (PTX ISA, "Control Flow Instructions", "bar",
"bar.warp.sync")."""

from __future__ import annotations

import numpy as np
import pytest
from lanes_kernel import apply, one, run_text

from ptxgen.errors import DeadlockError, DivergenceError
from ptxgen.interp import POLICIES, Schedule

SHARED = ".extern .shared .align 128 .b8 smem[];"
LANES = np.arange(64, dtype=np.uint32)


def test_loops_of_different_lengths_reconverge() -> None:
    """Each lane sums 1 .. i; the warp is whole again behind the loop."""
    body = """
    mov.u32 %r4, 0; mov.u32 %r5, 0;
    LOOP: setp.ge.u32 %p0, %r4, %i0; @%p0 bra DONE;
    add.s32 %r4, %r4, 1; add.s32 %r5, %r5, %r4; bra.uni LOOP;
    DONE: bar.warp.sync -1; mov.u32 %o0, %r5;
    """
    assert one(body, LANES).tolist() == [n * (n + 1) // 2 for n in range(64)]


def test_nested_branches_and_early_exits() -> None:
    body = """
    mov.u32 %o0, 100; setp.lt.u32 %p0, %i0, 10; @%p0 bra SMALL;
    setp.gt.u32 %p1, %i0, 40; @!%p1 bra MIDDLE; mov.u32 %o0, 3; bra JOIN;
    SMALL: and.b32 %r4, %i0, 1; setp.eq.u32 %p2, %r4, 0; @%p2 bra EVEN; mov.u32 %o0, 1; bra JOIN;
    EVEN: mov.u32 %o0, 0; bra JOIN;
    MIDDLE: mov.u32 %o0, 2; setp.eq.u32 %p3, %i0, 20; @%p3 ret;
    JOIN: bar.warp.sync -1;
    """
    expected = [n % 2 if n < 10 else 3 if n > 40 else 2 for n in range(64)]
    expected[20] = 0  # left before its store
    assert one(body, LANES).tolist() == expected


def test_lanes_that_branch_together_do_not_split() -> None:
    body = """setp.lt.u32 %p0, %i0, 1000; @%p0 bra OVER; mov.u32 %o0, 9; OVER: mov.u32 %o0, 5;"""
    assert set(one(body, LANES).tolist()) == {5}


def test_guarded_instructions_leave_other_lanes_alone() -> None:
    body = """mov.u32 %o0, 7; and.b32 %r4, %i0, 1; setp.eq.u32 %p0, %r4, 1;
    @%p0 mov.u32 %o0, %i0; @!%p0 add.s32 %o1, %i0, 1; mov.b64 %rd9, {%i0, %i0};
    @%p0 mov.b64 {%r5, %o1}, %rd9;"""
    kept, other = apply(body, LANES, outputs=(np.uint32, np.uint32))
    assert kept.tolist() == [n if n % 2 else 7 for n in range(64)]
    assert other.tolist() == [n if n % 2 else n + 1 for n in range(64)]


REVERSAL = """mov.u32 %r0, %tid.x; ld.param.u64 %rd0, [p0]; mov.u32 %r1, smem;
shl.b32 %r2, %r0, 2; add.s32 %r3, %r1, %r2; mov.u32 %r9, 0; mov.u32 %r10, 0;
AGAIN: add.s32 %r4, %r0, %r9; st.shared.b32 [%r3], %r4; bar.sync 0;
xor.b32 %r5, %r2, 508; add.s32 %r5, %r5, %r1; ld.shared.b32 %r6, [%r5]; add.s32 %r10, %r10, %r6;
bar.sync 0; add.s32 %r9, %r9, 1; setp.lt.u32 %p0, %r9, 5; @%p0 bra AGAIN;
mul.wide.u32 %rd1, %r0, 4; add.s64 %rd2, %rd0, %rd1; st.global.b32 [%rd2], %r10;
"""


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", [0, 1])
def test_barriers_hold_under_every_schedule(policy: str, seed: int) -> None:
    report, out = run_text(
        REVERSAL,
        {"out": np.zeros(128, np.uint32)},
        threads=128,
        smem_bytes=512,
        shared=SHARED,
        schedule=Schedule(seed, policy),  # type: ignore[arg-type]
    )
    assert out["out"].tolist() == [5 * (127 - n) + 10 for n in range(128)]
    assert report.races == ()


def test_schedules_differ_in_order_and_repeat_themselves() -> None:
    """Warps take tickets; the order is the schedule's."""
    body = """mov.u32 %r0, %tid.x; ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1];
    and.b32 %r1, %r0, 31; setp.eq.u32 %p0, %r1, 0; shr.u32 %r2, %r0, 5; mov.u32 %r5, %ctaid.x;
    mad.lo.s32 %r2, %r5, 4, %r2;
    @%p0 atom.global.add.u32 %r3, [%rd0], 1; mul.wide.u32 %rd2, %r3, 4; add.s64 %rd3, %rd1, %rd2;
    @%p0 st.global.b32 [%rd3], %r2;"""

    def order(schedule: Schedule) -> list[int]:
        buffers = {"next": np.zeros(1, np.uint32), "out": np.zeros(16, np.uint32)}
        _, out = run_text(body, buffers, threads=128, grid=(4, 1, 1), schedule=schedule)
        return out["out"].tolist()

    assert order(Schedule(0, "reverse")) == list(range(15, -1, -1))
    assert sorted(order(Schedule(0, "round_robin"))) == list(range(16))
    random = [order(Schedule(seed, "random", resident=4)) for seed in (1, 1, 2)]
    assert random[0] == random[1] != random[2]
    ahead = order(Schedule(5, "one_ahead"))
    assert sorted(ahead) == list(range(16))
    assert ahead != list(range(16))


def test_named_barriers_join_producers_and_consumers() -> None:
    """Warp 0 arrives at barrier 1 and goes on; warp 1 waits there; warp 2 has no part in it."""
    body = """mov.u32 %r0, %tid.x; ld.param.u64 %rd0, [p0]; mov.u32 %r1, smem;
    and.b32 %r2, %r0, 31; shl.b32 %r2, %r2, 2; add.s32 %r3, %r1, %r2; shr.u32 %r4, %r0, 5;
    setp.eq.u32 %p0, %r4, 0; setp.eq.u32 %p1, %r4, 1;
    @!%p0 bra NEXT; st.shared.b32 [%r3], %r0; bar.arrive 1, 64; ret;
    NEXT: @!%p1 ret; bar.sync 1, 64; xor.b32 %r5, %r2, 4; add.s32 %r5, %r5, %r1;
    ld.shared.b32 %r6, [%r5]; cvt.u64.u32 %rd1, %r2; add.s64 %rd2, %rd0, %rd1;
    st.global.b32 [%rd2], %r6;"""
    for policy in POLICIES:
        report, out = run_text(
            body,
            {"out": np.zeros(32, np.uint32)},
            threads=96,
            smem_bytes=128,
            shared=SHARED,
            schedule=Schedule(0, policy),
        )
        assert out["out"].tolist() == [n ^ 1 for n in range(32)]
        assert report.races == ()


def test_ended_warps_are_not_waited_for() -> None:
    body = """mov.u32 %r0, %tid.x; setp.lt.u32 %p0, %r0, 32; @%p0 ret; bar.sync 0;"""
    for policy in POLICIES:
        run_text(body, threads=96, schedule=Schedule(0, policy))


def test_a_deadlock_names_the_barriers() -> None:
    body = """mov.u32 %r0, %tid.x; setp.lt.u32 %p0, %r0, 32; @%p0 bra ONE; bar.sync 2; ret;
    ONE: bar.sync 1, 64;"""
    with pytest.raises(DeadlockError, match=r"bar.sync 1, 64.*barrier 1.*bar.sync 2.*barrier 2"):
        run_text(body, threads=64)


def test_a_barrier_within_a_diverged_warp_is_refused() -> None:
    body = "mov.u32 %r0, %tid.x; setp.lt.u32 %p0, %r0, 16; @%p0 bra IN; ret; IN: bar.sync 0;"
    run_text(body)  # the others have ended
    with pytest.raises(DivergenceError, match=r"bar\.sync"):
        run_text(body.replace("ret; IN", "IN").replace("bra IN", "bar.sync 0"))
    with pytest.raises(DivergenceError, match=r"bar\.warp\.sync"):
        run_text(
            "mov.u32 %r0, %tid.x; setp.lt.u32 %p0, %r0, 16; @%p0 bra IN; bra OUT;"
            "IN: bar.warp.sync -1; OUT: bar.warp.sync -1;"
        )


def test_fences_and_dependent_launch_change_nothing() -> None:
    body = """fence.acq_rel.gpu; membar.gl; griddepcontrol.wait; griddepcontrol.launch_dependents;
    fence.sc.cta; mov.u32 %o0, %i0;"""
    assert np.array_equal(one(body, LANES), LANES)


def test_instructions_are_counted_by_opcode_and_pipe() -> None:
    body = """mov.u32 %r0, 0; LOOP: add.s32 %r0, %r0, 1; fma.rn.f32 %f0, %f1, %f2, %f3;
    setp.lt.u32 %p0, %r0, 6; @%p0 bra LOOP; add.rn.f16x2 %r5, %r6, %r7;"""
    report, _ = run_text(body, threads=64, grid=(3, 1, 1))
    warps = 6
    assert report.counts.opcodes == {
        "mov.u32": warps,
        "add.s32": 6 * warps,
        "fma.rn.f32": 6 * warps,
        "setp.lt.u32": 6 * warps,
        "bra": 6 * warps,
        "add.rn.f16x2": warps,
        "ret": warps,
    }
    assert report.counts.pipes == {"alu": 13 * warps, "fma": 6 * warps, "control": 7 * warps,
                                   "half": warps}  # fmt: skip
    assert report.steps == 27 * warps
