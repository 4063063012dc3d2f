"""A CTA ends after what others do to its shared memory, in every schedule: arrivals and stores of
other CTAs must be ordered before its end, or else they may still be on their way."""

from __future__ import annotations

import pytest
from lanes_kernel import kernel_text

from ptxgen.errors import InFlightError, OutOfBoundsError
from ptxgen.interp import (
    POLICIES,
    GlobalMemory,
    Launch,
    RunOptions,
    RunReport,
    Schedule,
    load_program,
    run,
)

SHARED = ".extern .shared .align 128 .b8 smem[];"
WAIT = "barrier.cluster.wait.acquire.aligned;"
BARRIER = f"barrier.cluster.arrive.release.aligned; {WAIT}"
RELAXED = f"barrier.cluster.arrive.relaxed.aligned; {WAIT}"
SETUP = f"""mov.u32 %r0, %tid.x; mov.u32 %r1, %cluster_ctarank; mov.u32 %r2, smem; mov.u32 %r3, 0;
mapa.shared::cluster.u32 %r4, %r2, %r3; shl.b32 %r5, %r0, 2; add.s32 %r6, %r4, %r5;
setp.eq.u32 %p0, %r0, 0; setp.eq.u32 %p1, %r1, 0; setp.eq.u32 %p2, %r1, 1;
setp.eq.and.u32 %p3, %r0, 0, %p2; @%p0 mbarrier.init.shared::cta.b64 [%r2], 1;
add.s32 %r7, %r2, %r5; st.shared.b32 [%r7+128], %r0; {BARRIER}
"""
"""%r4: rank 0's mbarrier, %r6+128: a thread's word there; %p1, %p2: of rank 0, of rank 1; %p3: its
thread 0."""
OWN = "setp.eq.and.u32 %p3, %r0, 0, %p1; setp.eq.u32 %p2, %r1, 0;"
"""Rank 0 does what rank 1 would."""
ARRIVE = "@%p3 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r4];"
TOGETHER = "bar.warp.sync -1;" + ARRIVE
STORE = "@%p2 st.shared::cluster.b32 [%r6+128], %r0;"
ALL_RELEASE = "fence.acq_rel.cluster;"
OWN_RELEASE = "fence.release.sync_restrict::shared::cta.cluster;"


def waited(parity: int) -> str:
    """Rank 0 waits for a phase of its mbarrier."""
    return f"""{{ .reg .pred done; @!%p1 bra on; again:
    mbarrier.try_wait.parity.shared::cta.b64 done, [%r2], {parity}; @!done bra again; on: }}"""


def ran(body: str, policy: str, seed: int, races: bool = True) -> RunReport:
    program = load_program(kernel_text(SETUP + body, 1, SHARED), "k")
    launch = Launch((2, 1, 1), (32, 1, 1), 512, (0,), (2, 1, 1))
    schedule = Schedule(seed, policy)  # type: ignore[arg-type]
    return run(program, launch, GlobalMemory(), schedule, RunOptions(races=races))


SEEN = {
    "a relaxed cluster barrier": ARRIVE + RELAXED,
    "a fence of own memory only": ARRIVE + OWN_RELEASE + RELAXED,
    "a fence before": ALL_RELEASE + ARRIVE + RELAXED,
    "another arrival than the one waited for": ARRIVE + waited(0) + RELAXED + ARRIVE + RELAXED,
    "an arrival behind the barrier that releases": ARRIVE + BARRIER + ARRIVE + RELAXED,
    "a store": STORE + RELAXED,
    "a store behind the arrival that is waited for": ARRIVE + STORE + waited(0) + RELAXED,
    "a store behind the barrier that releases": STORE + BARRIER + STORE + RELAXED,
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("what", SEEN)
def test_what_nothing_orders_before_the_end_is_found(what: str, policy: str) -> None:
    name = r"st\.shared::cluster" if "a store" in what else r"mbarrier\.arrive"
    told = rf"CTA \(0, 0, 0\) ended .*`{name}.*, warp 0 of CTA \(1, 0, 0\)\. Let it wait"
    for seed in range(3):
        with pytest.raises(InFlightError, match=told):
            ran(SEEN[what], policy, seed, races=seed > 0)


@pytest.mark.parametrize("policy", POLICIES)
def test_without_any_barrier_it_is_found_before_or_after_the_end(policy: str) -> None:
    for seed in range(3):
        with pytest.raises((InFlightError, OutOfBoundsError), match=r"CTA .* ended"):
            ran(ARRIVE, policy, seed)


FINE = {
    "a cluster barrier that releases": ARRIVE + BARRIER,
    "a fence and a relaxed one": ARRIVE + ALL_RELEASE + RELAXED,
    "two fences": ARRIVE + ALL_RELEASE + OWN_RELEASE + RELAXED,
    "the phase": ARRIVE + waited(0),
    "every phase": ARRIVE + waited(0) + RELAXED + ARRIVE + waited(1),
    "the last phase, which releases those before": ARRIVE + RELAXED + ARRIVE + waited(1),
    "stores before a barrier that releases": STORE + BARRIER,
    "stores before the arrival that is waited for": STORE + TOGETHER + waited(0),
    "reads, whose values have come": "@%p2 ld.shared::cluster.b32 %r8, [%r6+128];" + RELAXED,
    "the CTA's own memory": OWN + ARRIVE + STORE,
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("what", FINE)
def test_what_is_ordered_before_the_end_is_not(what: str, policy: str) -> None:
    for seed in range(3):
        assert ran(FINE[what], policy, seed).races == ()
