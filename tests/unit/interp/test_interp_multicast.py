"""Tensor copies into several CTAs of a cluster (PTX ISA, "cp.async.bulk.tensor", .multicast)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from lanes_kernel import HEADER, REGISTERS
from numpy.typing import NDArray

from ptxgen.errors import DeadlockError, InFlightError, OutOfBoundsError, TensorMapError
from ptxgen.interp import (
    POLICIES,
    GlobalMemory,
    Launch,
    RunReport,
    Schedule,
    encode_map,
    load_program,
    run,
)
from ptxgen.tensor_map import TensorMapRecipe

CTAS = 4
BOX_BYTES = 8 * 128
COPY = (
    "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
    ".multicast::cluster"
)
BARRIER = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;"
SETUP = f"""ld.param.u64 %rd0, [p0]; mov.b64 %rd1, p1; cvta.param.u64 %rd2, %rd1;
mov.u32 %r0, %tid.x; mov.u32 %r1, smem; add.s32 %r2, %r1, 1024; setp.eq.u32 %p0, %r0, 0;
mov.u32 %r3, %cluster_ctarank; setp.eq.and.u32 %p1, %r3, 1, %p0; mov.u32 %r20, 0;
@%p0 mbarrier.init.shared::cta.b64 [%r1], 1; fence.mbarrier_init.release.cluster;
{BARRIER} shl.b32 %r21, %r3, 3; setp.lt.u32 %p2, %r3, 4;
"""
"""%rd2: the map; %r1: mbarrier; %r2: the box; %r3: rank; %p0: thread 0; %p1: that of rank 1."""
EXPECT = f"@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], {BOX_BYTES};"
WAIT = """{ .reg .pred done; again:
mbarrier.try_wait.parity.shared::cta.b64 done, [%r1], 0; @!done bra again; }"""
OUT = f"""mul.lo.u32 %r4, %r3, {BOX_BYTES}; shl.b32 %r5, %r0, 5; add.s32 %r6, %r4, %r5;
cvt.u64.u32 %rd3, %r6; add.s64 %rd4, %rd0, %rd3; add.s32 %r7, %r2, %r5;
ld.shared.v4.b32 {{%r8, %r9, %r10, %r11}}, [%r7];
st.global.v4.b32 [%rd4], {{%r8, %r9, %r10, %r11}};
ld.shared.v4.b32 {{%r8, %r9, %r10, %r11}}, [%r7+16];
st.global.v4.b32 [%rd4+16], {{%r8, %r9, %r10, %r11}};"""


def multicast(mask: int) -> str:
    """Rank 1 copies tokens 8 .. 15 to the CTAs of a mask."""
    return f"""{{ .reg .b16 mask; mov.b16 mask, {mask}; mov.u32 %r22, 8;
    @%p1 {COPY} [%r2], [%rd2, {{%r20, %r22}}], [%r1], mask; }}"""


def ran(body: str, policy: Any = "round_robin", seed: int = 0) -> tuple[RunReport, NDArray[Any]]:
    """Runs one cluster; returns each CTA's box as [CTAS, 8, 64]."""
    memory = GlobalMemory()
    x = np.arange(1, 16 * 64 + 1, dtype=np.uint16).reshape(16, 64)
    recipe = TensorMapRecipe(memory.allocate("x", x, readonly=True), 64, 16, 128, (64, 8))
    out = memory.allocate("out", np.zeros((CTAS, 8, 64), np.uint16))
    text = f"{HEADER}.extern .shared .align 1024 .b8 smem[];\n.visible .entry k(.param .u64 p0, "
    text += f".param .align 64 .b8 p1[128])\n{{\n{REGISTERS}\n{SETUP}{body}\nret;\n}}\n"
    launch = Launch(
        (CTAS, 1, 1), (32, 1, 1), 1024 + BOX_BYTES, (out, encode_map(recipe)), (CTAS, 1, 1)
    )
    schedule = Schedule(seed, policy)
    return run(load_program(text, "k"), launch, memory, schedule), memory.array("out")


def swizzled_box() -> NDArray[Any]:
    """Tokens 8 .. 15 of x as they lie in shared memory."""
    found = np.zeros((8, 64), np.uint16)
    for row in range(8):
        for column in range(64):
            chunk, within = divmod(column, 8)
            found[row, (chunk ^ row) * 8 + within] = (8 + row) * 64 + column + 1
    return found


@pytest.mark.parametrize("policy", POLICIES)
def test_every_cta_gets_the_box_and_its_own_bytes_counted(policy: str) -> None:
    for seed in range(3):
        report, out = ran(EXPECT + multicast(0b1111) + WAIT + OUT + BARRIER, policy, seed)
        assert report.races == ()
        assert np.array_equal(out, np.broadcast_to(swizzled_box(), out.shape))
        assert report.counts.bytes["async_copy"] == CTAS * BOX_BYTES


def test_a_cta_that_the_mask_leaves_out_waits_for_ever() -> None:
    with pytest.raises(DeadlockError, match=r"CTA \(2, 0, 0\).*1024 bytes"):
        ran(EXPECT + multicast(0b1011) + WAIT + OUT + BARRIER)


def test_reading_another_ctas_copy_before_the_wait_is_a_race() -> None:
    body = EXPECT + multicast(0b1111) + "ld.shared.b32 %r8, [%r2];" + WAIT + BARRIER
    races = [str(race) for seed in range(6) for race in ran(body, "random", seed)[0].races]
    assert any("copy by warp 0 of rank 1" in race for race in races)


def test_a_rank_beyond_the_cluster_is_refused() -> None:
    with pytest.raises(OutOfBoundsError, match="rank 4 lies outside the cluster"):
        ran(EXPECT + multicast(0b10001) + WAIT + BARRIER)


def test_a_cta_that_has_ended_is_refused() -> None:
    body = "setp.eq.u32 %p3, %r3, 0; @%p3 exit;" + "mov.u32 %r9, %r9;" * 100
    with pytest.raises(OutOfBoundsError, match="the CTA of rank 0 has ended"):
        ran(body + EXPECT + multicast(0b1111) + WAIT + BARRIER)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_cta_that_does_not_wait_must_not_end(policy: str) -> None:
    """Rank 2 waits for nothing but the others, whose copies are complete."""
    wait = f"setp.eq.u32 %p3, %r3, 2; @%p3 bra ON; {WAIT} ON:"
    for seed in range(3):
        with pytest.raises(InFlightError, match=r"CTA \(2, 0, 0\) ended .* CTA \(1, 0, 0\)"):
            ran(EXPECT + multicast(0b1111) + wait + BARRIER, policy, seed)


def test_nobody_is_refused() -> None:
    with pytest.raises(TensorMapError, match="no CTA at all"):
        ran(EXPECT + multicast(0) + WAIT + BARRIER)
