"""cp.async: groups, zero fill, and data that is invisible until its thread has waited (PTX ISA,
"cp.async", "cp.async.commit_group", "cp.async.wait_group")."""

from __future__ import annotations

import numpy as np
import pytest
from lanes_kernel import run_text

from ptxgen.errors import MisalignedError, OutOfBoundsError, UninitializedError

SHARED = ".extern .shared .align 128 .b8 smem[];"
SOURCE = np.arange(1, 257, dtype=np.uint32)
SETUP = """mov.u32 %r0, %tid.x; ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1];
mul.wide.u32 %rd2, %r0, 16; add.s64 %rd3, %rd0, %rd2; mov.u32 %r1, smem;
shl.b32 %r2, %r0, 4; add.s32 %r3, %r1, %r2; mul.wide.u32 %rd5, %r0, 4; add.s64 %rd4, %rd1, %rd5;
"""
STORE = "ld.shared.b32 %r9, [%r3]; st.global.b32 [%rd4], %r9;"


def copied(body: str, smem_bytes: int = 2048) -> tuple[list[int], int]:
    """What a body left in the output, and how many races were seen."""
    buffers = {"in": SOURCE, "out": np.zeros(96, np.uint32)}
    report, out = run_text(SETUP + body, buffers, smem_bytes=smem_bytes, shared=SHARED)
    return out["out"].tolist(), len(report.races)


COPY = "cp.async.cg.shared.global.L2::128B [%r3], [%rd3], 16;"
COMMIT = "cp.async.commit_group;"


def test_a_copy_lands_at_its_wait() -> None:
    out, races = copied(f"{COPY}{COMMIT} cp.async.wait_group 0; {STORE}")
    assert out[:32] == SOURCE[: 32 * 4 : 4].tolist()
    assert races == 0


@pytest.mark.parametrize("wait", ["", "cp.async.wait_group 1;", "cp.async.wait_group 3;"])
def test_reading_before_the_wait_finds_nothing(wait: str) -> None:
    with pytest.raises(UninitializedError) as caught:
        copied(f"{COPY}{COMMIT}{wait}{STORE}")
    assert caught.value.races[0].first.kind == "copy"


def test_an_early_read_sees_old_bytes_and_is_reported() -> None:
    body = f"mov.u32 %r8, 7; st.shared.b32 [%r3], %r8; {COPY}{COMMIT}{STORE} cp.async.wait_group 0;"
    buffers = {"in": SOURCE, "out": np.zeros(96, np.uint32)}
    report, out = run_text(SETUP + body, buffers, smem_bytes=512, shared=SHARED)
    assert set(out["out"][:32].tolist()) == {7}
    (race,) = report.races
    assert (race.first.kind, race.second.kind) == ("copy", "read")
    assert "cp.async" in race.first.text
    assert "ld.shared" in race.second.text


def test_an_uncommitted_copy_is_in_no_group_yet_but_wait_all_waits_for_it() -> None:
    with pytest.raises(UninitializedError):
        copied(f"{COPY} cp.async.wait_group 0; {STORE}")
    out, races = copied(f"{COPY} cp.async.wait_all; {STORE}")
    assert out[:32] == SOURCE[: 32 * 4 : 4].tolist()
    assert races == 0


def test_groups_land_in_order() -> None:
    """Two groups to two places: with one pending only the older one is there."""
    second = "add.s32 %r4, %r3, 512; cp.async.ca.shared.global [%r4], [%rd3+512], 8;"
    body = f"""mov.u32 %r8, 7; add.s32 %r5, %r3, 512; st.shared.v2.b32 [%r5], {{%r8, %r8}};
    {COPY}{COMMIT}{second}{COMMIT} cp.async.wait_group 1; {STORE}
    ld.shared.b32 %r9, [%r5]; st.global.b32 [%rd4+128], %r9;
    cp.async.wait_group 0; ld.shared.b32 %r9, [%r5]; st.global.b32 [%rd4+256], %r9;"""
    out, races = copied(body)
    assert out[:32] == SOURCE[:128:4].tolist()
    assert out[32:64] == [7] * 32
    assert out[64:] == SOURCE[128::4].tolist()
    assert races == 1


def test_empty_groups_count() -> None:
    out, races = copied(f"{COPY}{COMMIT}{COMMIT}{COMMIT} cp.async.wait_group 2; {STORE}")
    assert out[:32] == SOURCE[:128:4].tolist()
    assert races == 0


def test_groups_are_counted_lane_by_lane() -> None:
    """Half of the lanes commit once more: at one pending their copies have landed."""
    body = f"""mov.u32 %r8, 7; st.shared.b32 [%r3], %r8; {COPY}{COMMIT}
    setp.lt.s32 %p0, %r0, 16; @%p0 cp.async.commit_group; cp.async.wait_group 1; {STORE}"""
    out, _ = copied(body)
    assert out[:16] == SOURCE[:64:4].tolist()
    assert out[16:32] == [7] * 16


@pytest.mark.parametrize("size", [4, 8, 16])
def test_zero_fill_beyond_the_source_size(size: int) -> None:
    """Lane i asks for i % 5 * 4 bytes; what is beyond is zero, more than the size means all."""
    mode = "cg" if size == 16 else "ca"
    body = f"""rem.u32 %r6, %r0, 5; shl.b32 %r6, %r6, 2;
    cp.async.{mode}.shared.global [%r3], [%rd3], {size}, %r6; {COMMIT} cp.async.wait_group 0;
    ld.shared.b32 %r9, [%r3]; st.global.b32 [%rd4], %r9;
    ld.shared.b32 %r9, [%r3+{size - 4}]; st.global.b32 [%rd4+128], %r9;"""
    out, _ = copied(body)
    for lane in range(32):
        words = min(lane % 5, size // 4)
        got = SOURCE[4 * lane : 4 * lane + 4].tolist()
        assert out[lane] == (got[0] if words >= 1 else 0)
        assert out[32 + lane] == (got[size // 4 - 1] if words >= size // 4 else 0)


def test_a_copy_of_no_bytes_may_point_anywhere() -> None:
    body = f"""mov.u32 %r6, 0; mov.u64 %rd3, 64; {COPY[:-1]}, %r6; {COMMIT}
    cp.async.wait_group 0; {STORE}"""
    assert copied(body)[0][:32] == [0] * 32
    with pytest.raises(OutOfBoundsError):
        copied(body.replace("%r6, 0", "%r6, 4"))


def test_a_partial_copy_reads_only_its_bytes() -> None:
    """The last lane's 16 bytes hang over the end of the buffer by 8."""
    body = f"add.s64 %rd3, %rd3, 520; mov.u32 %r6, SIZE; {COPY[:-1]}, %r6;"
    aligned = body.replace("520", "512")
    with pytest.raises(MisalignedError):
        copied(body.replace("SIZE", "16"))
    buffers = {"in": SOURCE[:254], "out": np.zeros(32, np.uint32)}
    run_text(SETUP + aligned.replace("SIZE", "8"), buffers, smem_bytes=512, shared=SHARED)
    with pytest.raises(OutOfBoundsError):
        run_text(SETUP + aligned.replace("SIZE", "12"), buffers, smem_bytes=512, shared=SHARED)


def test_misaligned_or_outside_destinations() -> None:
    with pytest.raises(MisalignedError):
        copied(f"add.s32 %r3, %r3, 8; {COPY}")
    with pytest.raises(OutOfBoundsError):
        copied(COPY, smem_bytes=496)


def test_other_lanes_need_a_barrier_after_the_wait() -> None:
    """A lane's wait makes its own copies visible to itself, not to the others."""
    read = "xor.b32 %r7, %r2, 16; add.s32 %r7, %r7, %r1; ld.shared.b32 %r9, [%r7];"
    for barrier, expected in (("", 1), ("bar.warp.sync -1;", 0), ("bar.sync 0;", 0)):
        body = f"{COPY}{COMMIT} cp.async.wait_group 0; {barrier} {read} st.global.b32 [%rd4], %r9;"
        out, races = copied(body)
        assert races == expected
        assert out[:32] == [int(SOURCE[4 * (lane ^ 1)]) for lane in range(32)]


def test_overwriting_what_another_warp_still_reads_is_reported() -> None:
    """The ring of stages without its barrier: warp 1 refills what warp 0 has not read."""
    body = f"""{SETUP} and.b32 %r4, %r0, 31; setp.lt.s32 %p0, %r0, 32; shl.b32 %r5, %r4, 4;
    add.s32 %r3, %r1, %r5; @%p0 st.shared.b32 [%r3], %r0; bar.sync 0;
    @%p0 ld.shared.b32 %r9, [%r3]; BARRIER
    @!%p0 {COPY} cp.async.wait_all;"""
    buffers = {"in": SOURCE, "out": np.zeros(64, np.uint32)}
    for barrier, expected in (("", 1), ("bar.sync 0;", 0)):
        report, _ = run_text(
            body.replace("BARRIER", barrier), buffers, threads=64, smem_bytes=512, shared=SHARED
        )
        assert len(report.races) == expected
