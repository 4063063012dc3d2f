"""What warps of different roles use: setmaxnreg, barriers of some warps, labels local to a block,
and L2 policies (PTX ISA, "setmaxnreg", "bar", "createpolicy")."""

from __future__ import annotations

import numpy as np
import pytest
from lanes_kernel import run_text

from ptxgen.errors import BarrierError, DeadlockError, DivergenceError
from ptxgen.interp import POLICIES, Schedule

SETUP = """mov.u32 %r0, %tid.x; shr.u32 %r1, %r0, 5; shr.u32 %r2, %r0, 7;
setp.eq.u32 %p0, %r2, 0; setp.eq.u32 %p1, %r1, 1; setp.eq.u32 %p2, %r0, 0;
"""
"""%r1: warp; %r2: warpgroup; %p0: warpgroup 0; %p1: warp 1; %p2: thread 0."""


def roles(down: str = "40", up: str = "232") -> str:
    return f"""{SETUP} @%p0 bra PRODUCER; setmaxnreg.inc.sync.aligned.u32 {up}; bra END;
    PRODUCER: setmaxnreg.dec.sync.aligned.u32 {down}; END:"""


def test_registers_move_by_whole_warpgroups() -> None:
    report, _ = run_text(roles(), threads=256)
    assert report.counts.opcodes["setmaxnreg.inc.sync.aligned.u32"] == 4
    assert report.counts.opcodes["setmaxnreg.dec.sync.aligned.u32"] == 4


def test_a_warp_alone_must_not_move_registers() -> None:
    body = f"{SETUP} @!%p1 bra END; setmaxnreg.dec.sync.aligned.u32 40; END:"
    with pytest.raises(DivergenceError, match=r"warp 0: \[\]; warp 1: \[\('dec', 40\)\]"):
        run_text(body, threads=128)


def test_half_a_warpgroup_must_not_move_registers() -> None:
    with pytest.raises(DivergenceError, match="by all 4 warps of a warpgroup"):
        run_text("setmaxnreg.inc.sync.aligned.u32 40;", threads=192)


def test_a_lane_alone_must_not_move_registers() -> None:
    body = f"{SETUP} @!%p2 bra END; setmaxnreg.dec.sync.aligned.u32 40; END:"
    with pytest.raises(DivergenceError, match="lanes missing"):
        run_text(body, threads=128)


def exchange(first: str, second: str, threads: str = "64") -> str:
    """Warps 0 and 1 meet at one barrier, 2 and 3 at another, and read one another's words."""
    return f"""{SETUP} ld.param.u64 %rd0, [p0]; mov.u32 %r3, smem; shl.b32 %r4, %r0, 2;
    add.s32 %r5, %r3, %r4; st.shared.b32 [%r5], %r0; mov.u32 %r6, {threads};
    setp.lt.u32 %p3, %r1, 2; @%p3 bra LOW; mov.u32 %r7, {second}; bar.sync %r7, %r6; bra READ;
    LOW: mov.u32 %r7, {first}; bar.sync %r7, %r6;
    READ: xor.b32 %r8, %r4, 128; add.s32 %r9, %r3, %r8; ld.shared.b32 %r10, [%r9];
    cvt.u64.u32 %rd1, %r4; add.s64 %rd2, %rd0, %rd1; st.global.b32 [%rd2], %r10;"""


SHARED = ".extern .shared .align 16 .b8 smem[];"


@pytest.mark.parametrize("policy", POLICIES)
def test_barriers_of_some_warps_are_named_by_registers(policy: str) -> None:
    out = {"out": np.zeros(128, np.uint32)}
    for seed in range(5):
        report, after = run_text(
            exchange("1", "2"),
            out,
            threads=128,
            shared=SHARED,
            smem_bytes=512,
            schedule=Schedule(seed, policy),  # type: ignore[arg-type]
        )
        assert report.races == ()
        assert after["out"].tolist() == [i ^ 32 for i in range(128)]


def test_a_barrier_orders_only_the_warps_that_meet_there() -> None:
    body = exchange("1", "2").replace("xor.b32 %r8, %r4, 128", "xor.b32 %r8, %r4, 256")
    body = body.replace("st.global.b32 [%rd2], %r10;", "")
    report, _ = run_text(
        body, {"out": np.zeros(128, np.uint32)}, threads=128, shared=SHARED, smem_bytes=512
    )
    assert report.races


@pytest.mark.parametrize(
    ("which", "threads"), [("16", "64"), ("1", "48"), ("1", "0"), ("%r0", "64"), ("1", "%r0")]
)
def test_impossible_barriers(which: str, threads: str) -> None:
    with pytest.raises(BarrierError, match=r"barrier|different"):
        run_text(f"mov.u32 %r0, %tid.x; bar.sync {which}, {threads};", threads=64)


def test_warps_must_agree_on_the_count() -> None:
    body = f"{SETUP} mov.u32 %r3, 64; @%p1 mov.u32 %r3, 96; bar.sync 1, %r3;"
    with pytest.raises(BarrierError, match="barrier 1 was told 2 warps by one and 3 by another"):
        run_text(body, threads=64)


def test_too_few_warps_wait_for_ever() -> None:
    with pytest.raises(DeadlockError, match="barrier 3"):
        run_text("bar.sync 3, 96;", threads=64)


def test_labels_of_blocks_hide_one_another() -> None:
    def counting(register: str, times: int) -> str:
        return f"""{{ .reg .pred more; again: add.s32 {register}, {register}, 1;
        setp.lt.u32 more, {register}, {times}; @more bra again; }}"""

    body = f"""ld.param.u64 %rd0, [p0]; mov.u32 %r1, 0; mov.u32 %r2, 0;
    {counting("%r1", 5)} {counting("%r2", 9)} {{ bra outer; }} mov.u32 %r1, 77;
    outer: st.global.v2.b32 [%rd0], {{%r1, %r2}};"""
    _, after = run_text(body, {"out": np.zeros(2, np.uint32)}, threads=1)
    assert after["out"].tolist() == [5, 9]


def test_a_policy_is_the_same_for_all_lanes() -> None:
    body = """ld.param.u64 %rd0, [p0]; mov.u32 %r0, %tid.x; mul.wide.u32 %rd1, %r0, 8;
    add.s64 %rd2, %rd0, %rd1; createpolicy.fractional.L2::evict_first.b64 %rd3, 1.0;
    st.global.b64 [%rd2], %rd3;"""
    _, after = run_text(body, {"out": np.zeros(32, np.uint64)})
    assert len(set(after["out"].tolist())) == 1
    assert after["out"][0] != 0
