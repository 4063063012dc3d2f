"""Clusters: ranks, the cluster barrier, and the shared memory of other CTAs (PTX ISA,
"barrier.cluster", "mapa", "%cluster_ctarank")."""

from __future__ import annotations

import numpy as np
import pytest
from lanes_kernel import kernel_text

from ptxgen.errors import (
    DeadlockError,
    DivergenceError,
    OutOfBoundsError,
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
SETUP = """mov.u32 %r0, %tid.x; ld.param.u64 %rd0, [p0]; mov.u32 %r1, %cluster_ctarank;
mov.u32 %r2, %cluster_nctarank; mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ntid.x;
mad.lo.u32 %r5, %r3, %r4, %r0; mul.wide.u32 %rd1, %r5, 4; add.s64 %rd2, %rd0, %rd1;
mov.u32 %r6, smem; shl.b32 %r7, %r0, 2; add.s32 %r8, %r6, %r7; add.s32 %r9, %r1, 1;
setp.eq.u32 %p0, %r9, %r2; selp.b32 %r9, 0, %r9, %p0; mapa.shared::cluster.u32 %r10, %r8, %r9;
"""
"""%r1: rank; %r8: a thread's word; %r10: that of the next rank; %rd2: the thread's output."""
BARRIER = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;"


def ran(
    body: str,
    policy: str = "round_robin",
    cluster: tuple[int, int, int] = (2, 1, 1),
    grid: tuple[int, int, int] = (4, 1, 1),
    resident: int = 1,
) -> tuple[RunReport, list[int]]:
    memory = GlobalMemory()
    out = memory.allocate("out", np.zeros(64 * grid[0] * grid[1] * grid[2], np.uint32))
    program = load_program(kernel_text(SETUP + body, 1, SHARED), "k")
    launch = Launch(grid, (64, 1, 1), 512, (out,), cluster)
    schedule = Schedule(1, policy, resident)  # type: ignore[arg-type]
    return run(program, launch, memory, schedule), memory.array("out").tolist()


EXCHANGE = """st.shared.b32 [%r8], %r5; {first}
ld.shared::cluster.b32 %r11, [%r10]; st.global.b32 [%rd2], %r11; {last}"""


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("resident", [1, 4])
def test_reading_the_next_ctas_memory(policy: str, resident: int) -> None:
    report, out = ran(EXCHANGE.format(first=BARRIER, last=BARRIER), policy, resident=resident)
    assert report.races == ()
    assert out == [(n + 64) % 128 + n // 128 * 128 for n in range(256)]
    assert report.counts.bytes["cluster_read"] == 1024


@pytest.mark.parametrize("policy", POLICIES)
def test_writing_into_it(policy: str) -> None:
    body = """{} st.shared::cluster.b32 [%r10], %r5; {}
    ld.shared.b32 %r11, [%r8]; st.global.b32 [%rd2], %r11;"""
    report, out = ran(body.format(BARRIER, BARRIER), policy, (4, 1, 1))
    assert report.races == ()
    assert out == [(n - 64) % 256 for n in range(256)]


RELEASE = "fence.release.sync_restrict::shared::cta.cluster;"
RELAXED = BARRIER.replace(".release", ".relaxed")


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("fence", [RELEASE, "fence.acq_rel.cluster;"])
def test_a_fence_before_a_relaxed_arrival_releases(policy: str, fence: str) -> None:
    report, out = ran(EXCHANGE.format(first=fence + RELAXED, last=BARRIER), policy, resident=4)
    assert report.races == ()
    assert out == [(n + 64) % 128 + n // 128 * 128 for n in range(256)]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_fence_releases_only_what_came_before_it(policy: str) -> None:
    late = RELEASE + "st.shared.b32 [%r8], %r5;" + RELAXED
    body = f"{late} ld.shared::cluster.b32 %r11, [%r10]; st.global.b32 [%rd2], %r11; {BARRIER}"
    assert ran("mov.u32 %r12, 7; st.shared.b32 [%r8], %r12;" + body, policy)[0].races


@pytest.mark.parametrize("policy", POLICIES)
def test_a_fence_of_some_lanes_releases_nothing(policy: str) -> None:
    some = f"setp.lt.u32 %p1, %r0, 16; @!%p1 bra ON; {RELEASE} ON: {RELAXED}"
    settle = "mov.u32 %r12, 7; st.shared.b32 [%r8], %r12;" + BARRIER
    assert ran(settle + EXCHANGE.format(first=some, last=BARRIER), policy)[0].races


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("weak", [BARRIER.replace(".release", ".relaxed"), "bar.sync 0;"])
def test_what_is_no_cluster_barrier_orders_nothing(policy: str, weak: str) -> None:
    """A relaxed arrival and the CTA's own barrier; ranks of both sides are told."""
    settle = "mov.u32 %r12, 7; st.shared.b32 [%r8], %r12;" + BARRIER
    races = ran(settle + EXCHANGE.format(first=weak, last=BARRIER), policy, grid=(2, 1, 1))[0].races
    assert races
    assert {race.first.rank for race in races} | {race.second.rank for race in races} == {0, 1}
    assert "of rank 1" in str(races[0])


def test_ranks_and_positions() -> None:
    names = ["%cluster_ctaid.x", "%cluster_ctaid.y", "%clusterid.x", "%clusterid.y",
             "%cluster_nctaid.x", "%nclusterid.y"]  # fmt: skip
    body = "mov.u32 %r11, %ctaid.y; mad.lo.u32 %r12, %r11, 4, %r3; mul.lo.u32 %r12, %r12, 256;"
    body += "cvt.u64.u32 %rd3, %r12; add.s64 %rd4, %rd0, %rd3; setp.ne.u32 %p1, %r0, 0; @%p1 ret;"
    for number, name in enumerate(["%cluster_ctarank", "%cluster_nctarank", *names]):
        body += f"mov.u32 %r13, {name}; st.global.b32 [%rd4+{4 * number}], %r13;"
    _, out = ran(body, cluster=(2, 2, 1), grid=(4, 4, 1))
    for y in range(4):
        for x in range(4):
            got = out[64 * (4 * y + x) : 64 * (4 * y + x) + 8]
            assert got == [x % 2 + y % 2 * 2, 4, x % 2, y % 2, x // 2, y // 2, 2, 2]


@pytest.mark.parametrize("policy", POLICIES)
def test_an_mbarrier_of_another_cta(policy: str) -> None:
    """Every thread writes its word to the next CTA and arrives at the mbarrier there."""
    body = f"""setp.eq.u32 %p2, %r0, 0; @%p2 mbarrier.init.shared.b64 [%r6+256], 64;
    fence.mbarrier_init.release.cluster; {BARRIER}
    st.shared::cluster.b32 [%r10], %r5; mapa.shared::cluster.u32 %r12, %r6, %r9;
    mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r12+256];
    L: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p3, [%r6+256], 0; @!%p3 bra L;
    ld.shared.b32 %r11, [%r8]; st.global.b32 [%rd2], %r11; {BARRIER}"""
    report, out = ran(body, policy)
    assert report.races == ()
    assert out == [(n + 64) % 128 + n // 128 * 128 for n in range(256)]


def test_memory_of_a_cta_that_has_ended() -> None:
    body = f"""{BARRIER} setp.eq.u32 %p1, %r1, 1; @%p1 ret; mov.u32 %r12, 0;
    L: add.s32 %r12, %r12, 1; setp.lt.u32 %p1, %r12, 200; @%p1 bra L;
    ld.shared::cluster.b32 %r11, [%r10];"""
    with pytest.raises(OutOfBoundsError, match="rank 1 has ended"):
        ran(body)


def test_addresses_outside() -> None:
    with pytest.raises(OutOfBoundsError, match="rank 2 lies outside"):
        ran("mov.u32 %r9, 2; mapa.shared::cluster.u32 %r10, %r8, %r9;")
    with pytest.raises(OutOfBoundsError, match="outside the CTA's shared memory"):
        ran(f"ld.shared::cluster.b32 %r11, [%r10+512]; {BARRIER}")
    with pytest.raises(OutOfBoundsError):
        ran(f"ld.shared.b32 %r11, [%r10]; {BARRIER}")


def test_barrier_misuse() -> None:
    arrive, wait = BARRIER.replace("; ", ";|").split("|")
    with pytest.raises(DivergenceError, match="twice"):
        ran(arrive + arrive)
    with pytest.raises(DivergenceError, match="without having arrived"):
        ran(wait)
    with pytest.raises(DeadlockError, match="the cluster barrier"):
        ran(f"setp.eq.u32 %p1, %r1, 1; @%p1 bra ALONE; {BARRIER} ALONE: bar.sync 1, 96;")


def test_ctas_that_have_ended_are_not_waited_for() -> None:
    _, out = ran(f"setp.eq.u32 %p1, %r1, 1; @%p1 ret; {BARRIER} st.global.b32 [%rd2], %r5;")
    assert out == [n if n // 64 % 2 == 0 else 0 for n in range(256)]


@pytest.mark.parametrize("cluster", [(3, 1, 1), (0, 1, 1), (1, 2, 1), (17, 1, 1)])
def test_clusters_that_do_not_fit(cluster: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="no whole number of clusters"):
        ran("", cluster=cluster, grid=(34, 1, 1) if cluster[0] == 17 else (4, 1, 1))


@pytest.mark.parametrize(
    "text",
    [
        "barrier.cluster.arrive.acquire;",
        "mapa.u64 %rd1, %rd2, %r0;",
        "mbarrier.init.shared::cluster.b64 [%r10], 1;",
        "getctarank.shared::cluster.u32 %r0, %r1;",
    ],
)
def test_unknown_forms_are_named(text: str) -> None:
    with pytest.raises(UnsupportedPtxError, match=text.partition(" ")[0].rstrip(";")):
        ran(text)


def test_a_kernel_may_state_its_cluster_itself() -> None:
    text = kernel_text(
        SETUP + EXCHANGE.format(first=BARRIER, last=BARRIER),
        1,
        SHARED,
        ".explicitcluster .reqnctapercluster 2, 1, 1",
    )
    program = load_program(text, "k")
    assert program.entry.cluster == (2, 1, 1)
    results = []
    for cluster in ((1, 1, 1), (2, 1, 1)):
        memory = GlobalMemory()
        out = memory.allocate("out", np.zeros(256, np.uint32))
        run(program, Launch((4, 1, 1), (64, 1, 1), 512, (out,), cluster), memory)
        results.append(memory.array("out").tolist())
    assert results == [[(n + 64) % 128 + n // 128 * 128 for n in range(256)]] * 2
    with pytest.raises(ValueError, match=r"clusters of \(4, 1, 1\) CTAs, and the kernel states"):
        run(program, Launch((4, 1, 1), (64, 1, 1), 512, (0,), (4, 1, 1)), GlobalMemory())
    with pytest.raises(ValueError, match="no whole number of clusters"):
        run(program, Launch((3, 1, 1), (64, 1, 1), 512, (0,)), GlobalMemory())
