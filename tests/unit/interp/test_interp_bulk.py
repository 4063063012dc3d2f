"""cp.async.bulk: loads that an mbarrier completes, stores in groups (PTX ISA, "cp.async.bulk")."""

from __future__ import annotations

import re

import numpy as np
import pytest
from lanes_kernel import run_text

from ptxgen.errors import (
    InFlightError,
    MbarrierError,
    MisalignedError,
    OutOfBoundsError,
    UninitializedError,
    UnsupportedPtxError,
)
from ptxgen.interp import POLICIES, RunReport, Schedule

SHARED = ".extern .shared .align 128 .b8 smem[];"
SOURCE = np.arange(1, 513, dtype=np.uint32)
SETUP = """mov.u32 %r0, %tid.x; ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1];
mov.u32 %r1, smem; add.s32 %r2, %r1, 256; and.b32 %r4, %r0, 31; shl.b32 %r5, %r0, 2;
add.s32 %r6, %r2, %r5; mul.wide.u32 %rd3, %r0, 4; add.s64 %rd4, %rd1, %rd3;
setp.eq.u32 %p2, %r0, 0; setp.ge.u32 %p1, %r0, 32;
"""
"""%r1: mbarriers; %r2: the slot; %r6: a thread's word of it; %p2: thread 0; %rd4: its output."""
INIT = (
    "@%p2 mbarrier.init.shared.b64 [%r1], 1; @%p2 mbarrier.init.shared.b64 [%r1+8], 2; bar.sync 0;"
)
EXPECT = "@%p2 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 256;"
TO_SHARED = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
LOAD = f"@%p2 {TO_SHARED} [%r2], [%rd0], 256, [%r1];"
WAIT = "L: mbarrier.try_wait.parity.shared::cta.b64 %p7, [%r1], 0; @!%p7 bra L;"
OLD = "mov.u32 %r8, 7; st.shared.b32 [%r6], %r8; bar.sync 0;"
TAKE = "ld.shared.b32 %r9, [%r6]; st.global.b32 [%rd4], %r9;"


def ran(
    body: str, policy: str = "round_robin", seed: int = 0, smem_bytes: int = 2048
) -> tuple[RunReport, list[int]]:
    """Two warps."""
    report, out = run_text(
        SETUP + body,
        {"in": SOURCE, "out": np.zeros(64, np.uint32)},
        threads=64,
        smem_bytes=smem_bytes,
        shared=SHARED,
        schedule=Schedule(seed, policy),  # type: ignore[arg-type]
    )
    return report, out["out"].tolist()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("first", [EXPECT + LOAD, LOAD + EXPECT])
def test_a_load_lands_at_the_wait(policy: str, first: str) -> None:
    """Bytes may be announced before or after the copy; the arrival comes with them."""
    for seed in range(2):
        report, out = ran(f"{INIT}{first}{WAIT}{TAKE}", policy, seed)
        assert out == SOURCE[:64].tolist()
        assert report.races == ()
        assert report.counts.bytes["async_copy"] == 256


@pytest.mark.parametrize("policy", POLICIES)
def test_reading_without_the_wait_is_a_race(policy: str) -> None:
    """Whether the copy lands before or after it; the copy's warp and line are told."""
    report, _ = ran(f"{INIT}{OLD}{EXPECT}{LOAD} @%p1 {TAKE} {WAIT}", policy)
    (race,) = report.races
    kinds = [(race.first.kind, race.first.warp), (race.second.kind, race.second.warp)]
    assert sorted(kinds) == [("copy", 0), ("read", 1)]
    assert any("cp.async.bulk" in access.text for access in (race.first, race.second))


@pytest.mark.parametrize("policy", ["reverse", "one_ahead"])
def test_an_early_read_finds_nothing(policy: str) -> None:
    with pytest.raises(UninitializedError):
        ran(f"{INIT}{EXPECT}{LOAD}{TAKE}{WAIT}", policy)


@pytest.mark.parametrize("policy", POLICIES)
def test_one_warp_waits_and_a_barrier_tells_the_other(policy: str) -> None:
    body = f"""{INIT}{OLD}{EXPECT}{LOAD} @%p1 bra TOLD; {WAIT} TOLD: {{}}
    @!%p1 bra END; {TAKE} END:"""
    report, out = ran(body.format("bar.sync 0;"), policy)
    assert report.races == ()
    assert out[32:] == SOURCE[32:64].tolist()
    assert len(ran(body.format(""), policy)[0].races) == 1


@pytest.mark.parametrize("policy", POLICIES)
def test_the_wait_for_another_mbarrier_does_not_do(policy: str) -> None:
    """Two loads with an mbarrier each; the second one's data are read after the first's wait."""
    other = f"""@%p2 mbarrier.arrive.expect_tx.shared.b64 _, [%r1+8], 256;
    @%p2 {TO_SHARED} [%r2+256], [%rd0+256], 256, [%r1+8];
    @%p2 mbarrier.arrive.shared.b64 _, [%r1+8];
    """
    zero = "mov.u32 %r8, 7; st.shared.b32 [%r6+256], %r8; bar.sync 0;"
    late = WAIT.replace("L", "M").replace("[%r1]", "[%r1+8]")
    body = f"{INIT}{zero}{EXPECT}{LOAD}{other}{WAIT}{{}} ld.shared.b32 %r9, [%r6+256]; {{}}"
    assert len(ran(body.format("", late), policy)[0].races) >= 1
    assert ran(body.format(late, ""), policy)[0].races == ()


@pytest.mark.parametrize("policy", POLICIES)
def test_a_load_over_what_another_warp_reads(policy: str) -> None:
    """The second fill of a slot needs the readers' arrival."""
    second = """@%p2 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 256;""" + LOAD
    end = "N: mbarrier.try_wait.parity.shared.b64 %p7, [%r1], 1; @!%p7 bra N;"
    body = f"{INIT}{EXPECT}{LOAD}{WAIT} ld.shared.b32 %r9, [%r6]; {{}} {second} {end}"
    report, _ = ran(body.format(""), policy)
    assert report.races
    assert ran(body.format("bar.sync 0;"), policy)[0].races == ()


def test_sizes_and_addresses() -> None:
    cases = [
        ("256,", "24,", MisalignedError, "multiple of 16"),
        ("256,", "0,", MisalignedError, "multiple of 16"),
        ("[%r2]", "[%r2+8]", MisalignedError, "16 bytes"),
        ("[%rd0]", "[%rd0+8]", MisalignedError, "16 bytes"),
        ("[%r2]", "[%r2+1552]", OutOfBoundsError, "shared"),
        ("[%rd0]", "[%rd0+1808]", OutOfBoundsError, "global"),
        ("[%r1]", "[%r1+16]", MbarrierError, "no mbarrier"),
    ]
    for old, new, error, message in cases:
        with pytest.raises(error, match=message):
            ran(INIT + EXPECT + LOAD.replace(old, new) + WAIT)
    edge = LOAD.replace("[%r2]", "[%r2+1536]").replace("[%rd0]", "[%rd0+1792]")
    ran(INIT + EXPECT + edge + WAIT)


def test_a_prefetch_changes_nothing_and_must_be_inside() -> None:
    prefetch = "@%p2 cp.async.bulk.prefetch.L2.global [%rd0], 256; "
    report, out = ran(f"{INIT}{prefetch}{EXPECT}{LOAD}{WAIT}{TAKE}")
    assert out == SOURCE[:64].tolist()
    assert report.races == ()
    ran(INIT + prefetch.replace("[%rd0]", "[%rd0+1792]"))
    cases = [
        ("256;", "24;", MisalignedError, "multiple of 16"),
        ("256;", "0;", MisalignedError, "multiple of 16"),
        ("[%rd0]", "[%rd0+8]", MisalignedError, "16 bytes"),
        ("[%rd0]", "[%rd0+1808]", OutOfBoundsError, "global"),
    ]
    for old, new, error, message in cases:
        with pytest.raises(error, match=message):
            ran(INIT + prefetch.replace(old, new))


@pytest.mark.parametrize("policy", POLICIES)
def test_the_end_comes_after_the_copies(policy: str) -> None:
    """Also where they have landed by chance."""
    idle = "mov.u32 %r9, 0; M: add.s32 %r9, %r9, 1; setp.lt.u32 %p3, %r9, 99; @%p3 bra M;"
    for body in (f"{INIT}{EXPECT}{LOAD}", f"{INIT}{EXPECT}{LOAD}{idle}"):
        with pytest.raises(InFlightError, match=r"CTA \(0, 0, 0\) ended .* `cp\.async\.bulk"):
            ran(body, policy)


def test_an_mbarrier_stays_until_its_copies_have_landed() -> None:
    with pytest.raises(MbarrierError, match="invalidated"):
        ran(f"{INIT}{LOAD} @%p2 mbarrier.inval.shared.b64 [%r1]; bar.sync 0;")


FILL = "add.s32 %r8, %r0, 5; st.shared.b32 [%r6], %r8;"
FENCE = "fence.proxy.async.shared::cta; bar.sync 0;"
STORE = "@%p2 cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r2], 256;"
COMMIT = "@%p2 cp.async.bulk.commit_group;"


@pytest.mark.parametrize("read", ["", ".read"])
def test_a_store(read: str) -> None:
    report, out = ran(f"{FILL}{FENCE}{STORE}{COMMIT} @%p2 cp.async.bulk.wait_group{read} 0;")
    assert out == list(range(5, 69))
    assert report.races == ()
    assert report.counts.bytes["global_write"] == 256


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("fence", ["", "bar.sync 0;", "fence.proxy.async; bar.warp.sync -1;"])
def test_a_store_needs_fence_and_barrier(fence: str, policy: str) -> None:
    body = f"{OLD}{FILL}{fence}{STORE}{COMMIT} @%p2 cp.async.bulk.wait_group 0;"
    races = ran(body, policy)[0].races
    assert {access.kind for race in races for access in (race.first, race.second)} == {
        "read",
        "write",
    }
    assert any("fence.proxy.async" in str(race) for race in races) or fence != "bar.sync 0;"


def test_a_store_that_is_not_waited_for() -> None:
    wait = "@%p2 cp.async.bulk.wait_group.read 0;"
    with pytest.raises(InFlightError, match="warp ended"):
        ran(f"{FILL}{FENCE}{STORE}{COMMIT}")
    with pytest.raises(InFlightError, match="warp ended"):
        ran(f"{FILL}{FENCE}{STORE}{COMMIT}{wait.replace(' 0;', ' 1;')}")
    body = f"{FILL}{FENCE}{STORE}{COMMIT}{{}} bar.sync 0; st.shared.b32 [%r6], %r8; {{}}"
    assert ran(body.format("", wait))[0].races
    assert ran(body.format(wait, ""))[0].races == ()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("read", "seen"), [("", 5), (".read", 0)])
def test_a_store_is_in_memory_behind_the_wait_for_its_write_only(
    read: str, seen: int, policy: str
) -> None:
    """What its thread reads of its first word, and puts behind the others."""
    look = "@%p2 ld.global.b32 %r9, [%rd1]; @%p2 st.global.b32 [%rd1+256], %r9;"
    report, out = run_text(
        f"{SETUP}{FILL}{FENCE}{STORE}{COMMIT} @%p2 cp.async.bulk.wait_group{read} 0; {look}",
        {"in": SOURCE, "out": np.zeros(65, np.uint32)},
        threads=64,
        smem_bytes=2048,
        shared=SHARED,
        schedule=Schedule(0, policy),  # type: ignore[arg-type]
    )
    assert out["out"].tolist() == [*range(5, 69), seen]
    assert report.races == ()


@pytest.mark.parametrize(
    "text",
    [
        "cp.async.bulk.prefetch.L2.global.L2::cache_hint [%rd0], 16, %rd1;",
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
        "[%r2], [%r1], 16, [%r1];",
        f"{TO_SHARED}.multicast::cluster [%r2], [%rd0], 16, [%r1], %h0;",
    ],
)
def test_unknown_forms_are_named(text: str) -> None:
    with pytest.raises(UnsupportedPtxError, match=re.escape(text.partition(" ")[0])):
        ran(text)
