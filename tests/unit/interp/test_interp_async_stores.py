"""st.async into other CTAs of a cluster, and mbarriers made visible by fence.mbarrier_init (PTX
ISA, "st.async", "membar, fence")."""

from __future__ import annotations

import numpy as np
import pytest
from lanes_kernel import kernel_text

from ptxgen.errors import (
    DeadlockError,
    InFlightError,
    MbarrierError,
    MisalignedError,
    UnsupportedPtxError,
)
from ptxgen.interp import (
    POLICIES,
    GlobalMemory,
    Launch,
    RunReport,
    Schedule,
    load_program,
    run,
)

SHARED = ".extern .shared .align 128 .b8 smem[];"
STORE = "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32"
SETUP = """mov.u32 %r0, %tid.x; ld.param.u64 %rd0, [p0]; mov.u32 %r1, %cluster_ctarank;
xor.b32 %r2, %r1, 1; mov.u32 %r3, smem; shl.b32 %r4, %r0, 4; add.s32 %r5, %r3, %r4;
add.s32 %r5, %r5, 128; mapa.shared::cluster.u32 %r6, %r5, %r2;
mapa.shared::cluster.u32 %r7, %r3, %r2; setp.eq.u32 %p0, %r0, 0; shl.b32 %r8, %r1, 8;
add.s32 %r8, %r8, %r0; add.s32 %r9, %r8, 1000; shl.b32 %r20, %r1, 5; add.s32 %r20, %r20, %r0;
mul.wide.u32 %rd1, %r20, 16; add.s64 %rd2, %rd0, %rd1;
@%p0 mbarrier.init.shared::cta.b64 [%r3], 1;
@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 512; FENCE
barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.acquire.aligned;
"""
"""%r5: a lane's 16 bytes, %r6: those of the other CTA, %r7: its mbarrier; %r8, %r9: sent."""
FENCE = "@%p0 fence.mbarrier_init.release.cluster;"
SEND = f"{STORE} [%r6], {{%r8, %r9, %r8, %r9}}, [%r7];"
WAIT = """{ .reg .pred done; again:
mbarrier.try_wait.parity.shared::cta.b64 done, [%r3], 0; @!done bra again; }"""
TAKE = """ld.shared.v4.b32 {%r10, %r11, %r12, %r13}, [%r5];
st.global.v4.b32 [%rd2], {%r10, %r11, %r12, %r13};"""
LEAVE = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;"


def ran(body: str, policy: str = "round_robin", seed: int = 0) -> tuple[RunReport, np.ndarray]:
    memory = GlobalMemory()
    out = memory.allocate("out", np.zeros((2, 32, 4), np.uint32))
    program = load_program(kernel_text(body, 1, SHARED), "k")
    launch = Launch((2, 1, 1), (32, 1, 1), 1024, (out,), (2, 1, 1))
    schedule = Schedule(seed, policy)  # type: ignore[arg-type]
    return run(program, launch, memory, schedule), memory.array("out")


WHOLE = SETUP.replace("FENCE", FENCE) + SEND + WAIT + TAKE + LEAVE


@pytest.mark.parametrize("policy", POLICIES)
def test_each_cta_gets_the_others_rows(policy: str) -> None:
    for seed in range(3):
        report, out = ran(WHOLE, policy, seed)
        assert report.races == ()
        for rank in (0, 1):
            sent = (1 - rank) * 256 + np.arange(32)
            assert out[rank].tolist() == [[s, s + 1000] * 2 for s in sent.tolist()]
        assert report.counts.bytes["cluster_write"] == 2 * 512


def test_reading_before_the_wait_is_a_race() -> None:
    body = WHOLE.replace(WAIT + TAKE, TAKE.split(";", maxsplit=1)[0] + ";" + WAIT)
    races = [str(race) for seed in range(6) for race in ran(body, "random", seed)[0].races]
    assert any("copy by warp 0" in race and "st.async" in race for race in races)


def test_without_the_fence_the_mbarriers_are_not_there_yet() -> None:
    report, _ = ran(WHOLE.replace(FENCE, ""))
    assert any("mbarrier.init" in str(race) for race in report.races)


def test_the_fence_of_another_lane_does_not_count() -> None:
    body = WHOLE.replace(FENCE, "@!%p0 fence.mbarrier_init.release.cluster;")
    assert any("mbarrier.init" in str(race) for race in ran(body)[0].races)


def test_the_fence_releases_nothing_else() -> None:
    """A word written before a relaxed arrival is not passed on by the fence of mbarriers."""
    word = "@%p0 st.shared.b32 [%r3+64], %r0;"
    look = "mapa.shared::cluster.u32 %r14, %r3, %r2; ld.shared::cluster.b32 %r15, [%r14+64];"
    body = WHOLE.replace(FENCE, word + FENCE).replace(LEAVE, look + LEAVE)
    (race,) = {(r.first.text, r.second.text) for r in ran(body)[0].races}
    assert race[0].startswith("st.shared.b32")
    assert race[1].startswith("ld.shared::cluster.b32")


@pytest.mark.parametrize("policy", POLICIES)
def test_a_cta_that_does_not_wait_must_not_end(policy: str) -> None:
    """A cluster barrier is no help: the bytes land behind the sender's back."""
    for seed in range(3):
        with pytest.raises(InFlightError, match=r"ended .* `st\.async.*, warp 0 of CTA"):
            ran(WHOLE.replace(WAIT + TAKE, ""), policy, seed)


def test_bytes_that_were_not_sent_are_waited_for() -> None:
    body = WHOLE.replace(SEND, f"setp.ne.u32 %p1, %r0, 5; @%p1 {SEND}")
    with pytest.raises(DeadlockError, match="16 bytes"):
        ran(body)


def test_the_mbarrier_must_be_where_the_bytes_go() -> None:
    with pytest.raises(MbarrierError, match="two CTAs"):
        ran(WHOLE.replace("[%r7];", "[%r3];"))


def test_rows_are_aligned() -> None:
    with pytest.raises(MisalignedError):
        ran(WHOLE.replace("[%r6], {", "[%r6+8], {"))


@pytest.mark.parametrize("line", [SEND.replace(".v4.b32", ".b64"), SEND.replace(", %r9}", "}")])
def test_other_forms_are_named(line: str) -> None:
    with pytest.raises(UnsupportedPtxError, match=r"st\.async"):
        ran(WHOLE.replace(SEND, line))
