"""mbarrier: phases, counts, waits, deadlocks and the order of accesses that it makes (PTX ISA,
"mbarrier")."""

from __future__ import annotations

import re

import numpy as np
import pytest
from lanes_kernel import run_text

from ptxgen.errors import (
    DeadlockError,
    MbarrierError,
    MisalignedError,
    OutOfBoundsError,
    UnsupportedPtxError,
)
from ptxgen.interp import POLICIES, RunReport, Schedule

SHARED = ".extern .shared .align 128 .b8 smem[];"
SETUP = """mov.u32 %r0, %tid.x; mov.u32 %r1, smem; add.s32 %r2, %r1, 256; and.b32 %r4, %r0, 31;
shl.b32 %r5, %r4, 2; add.s32 %r6, %r2, %r5; shr.u32 %r7, %r0, 5;
setp.eq.u32 %p0, %r7, 0; setp.eq.u32 %p1, %r7, 1; setp.eq.u32 %p2, %r0, 0;
ld.param.u64 %rd0, [p0]; mul.wide.u32 %rd1, %r0, 4; add.s64 %rd2, %rd0, %rd1;
"""
"""%r1: mbarriers; %r6: a lane's own word; %p0, %p1: warps 0 and 1; %p2: thread 0; %rd2: out."""


def waiting(label: str, phase: str = "0", form: str = "try_wait", at: str = "%r1") -> str:
    return f"""{label}: mbarrier.{form}.parity.shared::cta.b64 %p7, [{at}], {phase};
    @!%p7 bra {label};"""


def init(count: int, at: str = "%r1") -> str:
    return f"""@%p2 mbarrier.init.shared::cta.b64 [{at}], {count};
    fence.mbarrier_init.release.cluster; bar.sync 0;"""


def ran(
    body: str, policy: str = "round_robin", threads: int = 64, seed: int = 0
) -> tuple[RunReport, list[int]]:
    report, out = run_text(
        SETUP + body,
        {"out": np.zeros(threads, np.uint32)},
        threads=threads,
        smem_bytes=1024,
        shared=SHARED,
        schedule=Schedule(seed, policy),  # type: ignore[arg-type]
    )
    return report, out["out"].tolist()


RING = f"""{init(32)} @%p2 mbarrier.init.shared.b64 [%r1+8], 1; bar.sync 0;
mov.u32 %r9, 0; mov.u32 %r10, 0; @%p1 bra CONSUMER;
PRODUCER: and.b32 %r8, %r9, 1; xor.b32 %r11, %r8, 1;
{waiting("EMPTY", "%r11", at="%r1+8")}
add.s32 %r12, %r9, %r4; st.shared.b32 [%r6], %r12;
mbarrier.arrive.shared::cta.b64 _, [%r1];
add.s32 %r9, %r9, 1; setp.lt.u32 %p3, %r9, 6; @%p3 bra PRODUCER; bra END;
CONSUMER: and.b32 %r8, %r9, 1;
{waiting("FULL", "%r8", "test_wait")}
xor.b32 %r13, %r5, 124; add.s32 %r13, %r13, %r2; ld.shared.b32 %r12, [%r13];
add.s32 %r10, %r10, %r12; SYNC setp.eq.u32 %p4, %r4, 0;
@%p4 mbarrier.arrive.release.cta.shared::cta.b64 %rd5, [%r1+8];
add.s32 %r9, %r9, 1; setp.lt.u32 %p3, %r9, 6; @%p3 bra CONSUMER;
END: st.global.b32 [%rd2], %r10;
"""
"""Warp 0 fills a slot six times, warp 1 sums it up; the slot's two mbarriers go through phases."""


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", [0, 1])
def test_a_ring_of_one_slot(policy: str, seed: int) -> None:
    report, out = ran(RING.replace("SYNC", "bar.warp.sync -1;"), policy, seed=seed)
    assert out == [0] * 32 + [6 * (31 - lane) + 15 for lane in range(32)]
    assert report.races == ()


@pytest.mark.parametrize("policy", POLICIES)
def test_one_lane_arrives_for_others_that_were_not_synchronised(policy: str) -> None:
    """Without bar.warp.sync the other lanes' reads are not ordered before lane 0's arrival."""
    report, _ = ran(RING.replace("SYNC", ""), policy)
    (race,) = report.races
    assert {race.first.kind, race.second.kind} == {"read", "write"}
    assert (race.first.warp, race.second.warp) == (1, 0)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_wait_orders_what_came_before_the_arrivals_only(policy: str) -> None:
    body = f"""{init(32)} @%p1 bra READ; BEFORE
    mbarrier.arrive.shared.b64 _, [%r1]; AFTER bra END;
    READ: {waiting("AGAIN")} ld.shared.b32 %r9, [%r6]; END:"""
    store = "st.shared.b32 [%r6], %r0;"
    for before, after, expected in ((store, "", 0), ("", store, 1)):
        report, _ = ran(body.replace("BEFORE", before).replace("AFTER", after), policy)
        assert len(report.races) == expected


def test_a_read_without_the_wait_is_a_race() -> None:
    body = f"""{init(32)} @%p0 st.shared.b32 [%r6], %r0; @%p0 mbarrier.arrive.shared.b64 _, [%r1];
    @%p1 ld.shared.b32 %r9, [%r6];"""
    assert len(ran(body)[0].races) == 1


def test_init_must_be_ordered_before_its_use() -> None:
    body = f"@%p2 mbarrier.init.shared.b64 [%r1], 32; BAR @%p1 {waiting('L', '1')[3:]}"
    body = body.replace("@%p1 mbarrier", "@!%p1 bra E; L: mbarrier") + " E:"
    assert ran(body.replace("BAR", "bar.sync 0;"))[0].races == ()
    (race,) = ran(body.replace("BAR", ""))[0].races
    assert (race.first.kind, race.second.kind) == ("write", "read")


def probe(*steps: str) -> list[int]:
    """One thread's steps, each of which leaves a predicate %p7; their values as bits."""
    body = "@!%p2 bra END; mov.u32 %r10, 0;"
    for number, step in enumerate(steps):
        body += f"{step} selp.b32 %r11, {1 << number}, 0, %p7; or.b32 %r10, %r10, %r11;"
    _, out = ran(body + "st.global.b32 [%rd2], %r10; END:", threads=32)
    return [out[0] >> number & 1 for number in range(len(steps))]


INIT2 = "mbarrier.init.shared.b64 [%r1], 2;"
ARRIVE = "mbarrier.arrive.shared.b64 _, [%r1];"


@pytest.mark.parametrize("form", ["test_wait", "try_wait"])
def test_parity(form: str) -> None:
    """The phase before the first counts as complete; each phase takes two arrivals."""
    even = f"mbarrier.{form}.parity.shared.b64 %p7, [%r1], 0;"
    odd = f"mbarrier.{form}.parity.shared.b64 %p7, [%r1], 1;"
    steps = [INIT2 + even, odd, ARRIVE + even, odd, ARRIVE + even, odd, ARRIVE + ARRIVE + even, odd]
    assert probe(*steps) == [0, 1, 0, 1, 1, 0, 0, 1]


def test_a_count_of_arrivals() -> None:
    even = "mbarrier.test_wait.parity.shared.b64 %p7, [%r1], 0;"
    both = "mbarrier.arrive.shared.b64 _, [%r1], 2;"
    assert probe(INIT2 + even, both + even) == [0, 1]


def test_states() -> None:
    state = "mbarrier.arrive.shared.b64 %rd5, [%r1];"
    wait = "mbarrier.try_wait.shared.b64 %p7, [%r1], %rd5;"
    assert probe(INIT2 + state + wait, ARRIVE + wait) == [0, 1]
    with pytest.raises(MbarrierError, match="wait for phase 0 of an mbarrier in phase 2"):
        probe(INIT2 + state + ARRIVE * 3 + wait)


def test_expected_bytes_hold_the_phase_back() -> None:
    even = "mbarrier.try_wait.parity.shared.b64 %p7, [%r1], 0, 20;"
    expect = "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], 16;"
    both = "mbarrier.arrive.shared.b64 _, [%r1], 2;"
    assert probe(INIT2 + expect + both + even) == [0]
    last = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], BYTES;"
    assert probe(INIT2 + ARRIVE + last.replace("BYTES", "16") + even) == [0]
    assert probe(INIT2 + ARRIVE + last.replace("BYTES", "0") + even) == [1]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_wait_that_nobody_can_end_is_a_deadlock(policy: str) -> None:
    with pytest.raises(DeadlockError, match="lacks 1 of 33 arrivals and 0 bytes"):
        ran(f"{init(33)} @%p0 {ARRIVE} {waiting('L')}", policy)
    with pytest.raises(DeadlockError, match="lacks 0 of 1 arrivals and 16 bytes"):
        ran(
            f"{init(1)} @%p2 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 16; {waiting('L')}",
            policy,
        )


def test_a_bounded_number_of_tries_is_no_deadlock() -> None:
    body = f"""{init(1)} mov.u32 %r9, 0;
    L: mbarrier.test_wait.parity.shared.b64 %p7, [%r1], 0;
    add.s32 %r9, %r9, 1; setp.lt.u32 %p3, %r9, 20; @%p3 bra L; st.global.b32 [%rd2], %r9;"""
    assert ran(body)[1] == [20] * 64


@pytest.mark.parametrize("policy", POLICIES)
def test_lanes_of_the_waiting_warp_may_arrive(policy: str) -> None:
    """Lanes progress independently: lane 0 waits, further up than the lanes that arrive."""
    body = f"""{init(31)} setp.ne.u32 %p3, %r4, 0; @%p3 bra OTHERS; {waiting("L")} bra END;
    OTHERS: {ARRIVE} END: st.global.b32 [%rd2], %r0;"""
    assert ran(body, policy, threads=32)[1] == list(range(32))


def test_misuse() -> None:
    cases = {
        ARRIVE: "no mbarrier was initialised",
        INIT2 + ARRIVE.replace("[%r1]", "[%r1], 3"): "3 arrivals",
        INIT2 + "mbarrier.inval.shared.b64 [%r1];" + ARRIVE: "no mbarrier was initialised",
        INIT2 + "st.shared.b32 [%r1+4], %r0;" + ARRIVE: "overwritten",
        "mbarrier.init.shared.b64 [%r1], 0;": "counts 1 .. 1048575",
        INIT2 + "mbarrier.expect_tx.shared.b64 [%r1], 1048576;": "at most 1048575 bytes",
        INIT2 + "mbarrier.test_wait.parity.shared.b64 %p7, [%r1], 2;": "0 or 1, not 2",
    }
    for body, message in cases.items():
        with pytest.raises(MbarrierError, match=message):
            probe(body)
    with pytest.raises(MisalignedError):
        probe(INIT2.replace("%r1", "%r1+4"))
    with pytest.raises(OutOfBoundsError):
        probe(INIT2.replace("%r1", "%r1+1024"))


def test_bytes_of_a_former_mbarrier_are_free_again() -> None:
    body = f"{INIT2} mbarrier.inval.shared.b64 [%r1]; {INIT2}"
    even = "mbarrier.test_wait.parity.shared.b64 %p7, [%r1], 1;"
    assert probe(body + even) == [1]


@pytest.mark.parametrize(
    "text",
    [
        "mbarrier.arrive.noComplete.shared.b64 %rd5, [%r1], 1;",
        "mbarrier.arrive_drop.shared.b64 %rd5, [%r1];",
        "mbarrier.pending_count.b64 %r9, %rd5;",
        "mbarrier.init.b64 [%rd5], 1;",
        "mbarrier.test_wait.parity.shared.b64 %p7, [%r1], 0, 7;",
    ],
)
def test_unknown_forms_are_named(text: str) -> None:
    with pytest.raises(UnsupportedPtxError, match=re.escape(text.partition(" ")[0])):
        ran(text)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_whole_warps_wait_does_not_change_who_runs_first_later(policy: str) -> None:
    """Warp 0 waits in vain as a whole; its lanes part only afterwards, and meet at the barrier."""
    body = f"""{init(32)} @%p1 bra ARRIVE; {waiting("AGAIN")} setp.ne.u32 %p3, %r0, 0;
    @%p3 bra MEET; st.shared.b32 [%r2], %r0; MEET: bar.sync 1, 32; bra END;
    ARRIVE: mov.u32 %r9, 0; SPIN: add.s32 %r9, %r9, 1; setp.lt.u32 %p4, %r9, 100; @%p4 bra SPIN;
    mbarrier.arrive.shared.b64 _, [%r1]; END:"""
    for seed in range(3):
        assert ran(body, policy, seed=seed)[0].races == ()
