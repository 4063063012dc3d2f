"""shfl.sync against the manual's pseudocode, lane by lane (PTX ISA, "shfl.sync")."""

from __future__ import annotations

import numpy as np
import pytest
from lanes_kernel import apply, random_words, run_text

from ptxgen.errors import DivergenceError, UninitializedError

FULL = "0xffffffff"


def source(mode: str, lane: int, b: int, c: int) -> int:
    """The manual's pseudocode for one lane."""
    b_value, c_value, segment_mask = b & 31, c & 31, c >> 8 & 31
    most = (lane & segment_mask) | (c_value & ~segment_mask)
    least = lane & segment_mask
    if mode == "up":
        j = lane - b_value
        valid = j >= most
    elif mode == "down":
        j = lane + b_value
        valid = j <= most
    elif mode == "bfly":
        j = lane ^ b_value
        valid = j <= most
    else:
        j = least | (b_value & ~segment_mask)
        valid = j <= most
    return j if valid else lane


@pytest.mark.parametrize("segment", [32, 16, 8, 2])
@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
def test_each_mode_and_segment(mode: str, segment: int) -> None:
    clamp = 0 if mode == "up" else 31
    control = (32 - segment) << 8 | clamp
    words = random_words(32 * 40)
    distances = np.repeat(np.arange(40, dtype=np.uint32), 32)  # those above 31 wrap around
    body = f"shfl.sync.{mode}.b32 %o0, %i0, %i1, {control}, {FULL};"
    (found,) = apply(body, words, distances)
    for first in range(0, len(words), 32):
        for lane in range(32):
            wanted = source(mode, lane, int(distances[first]), control)
            assert found[first + lane] == words[first + wanted]


def test_every_lane_may_ask_another() -> None:
    words, asked = random_words(64), random_words(64, 1)
    (found,) = apply(f"shfl.sync.idx.b32 %o0, %i0, %i1, 31, {FULL};", words, asked)
    assert found.tolist() == [words[n // 32 * 32 + (int(asked[n]) & 31)] for n in range(64)]


SETUP = "mov.u32 %r0, %tid.x; setp.lt.u32 %p0, %r0, 8; mov.u32 %r1, 5;"


@pytest.mark.parametrize(
    ("guard", "lane", "members", "told"),
    [
        ("@%p0 ", "3", FULL, "exactly the lanes that its mask names"),
        ("", "3", "0xff", "exactly the lanes that its mask names"),
        ("@%p0 ", "9", "0xff", "reads from a lane that does not take part"),
    ],
)
def test_lanes_that_are_missing(guard: str, lane: str, members: str, told: str) -> None:
    with pytest.raises(DivergenceError, match=told):
        run_text(f"{SETUP} {guard}shfl.sync.idx.b32 %r2, %r1, {lane}, 31, {members};")


def test_some_lanes_among_themselves() -> None:
    run_text(f"{SETUP} @%p0 shfl.sync.idx.b32 %r2, %r1, 3, 31, 0xff;")


def test_lanes_that_have_ended_are_not_waited_for() -> None:
    run_text(f"{SETUP} @!%p0 exit; shfl.sync.idx.b32 %r2, %r1, 3, 31, {FULL};")


def test_what_nobody_wrote_goes_with_the_value() -> None:
    body = f"""{SETUP} ld.param.u64 %rd0, [p0]; mov.u32 %r3, smem; setp.eq.u32 %p1, %r0, 0;
    mov.u32 %r4, 7;
    @%p1 ld.shared.b32 %r4, [%r3]; shfl.sync.idx.b32 %r5, %r4, LANE, 31, {FULL};
    st.global.b32 [%rd0], %r5;"""
    shared = ".extern .shared .align 16 .b8 smem[];"
    buffers = {"out": np.zeros(1, np.uint32)}
    _, after = run_text(body.replace("LANE", "1"), buffers, shared=shared, smem_bytes=32)
    assert after["out"].tolist() == [7]
    with pytest.raises(UninitializedError, match=r"st\.global"):
        run_text(body.replace("LANE", "0"), buffers, shared=shared, smem_bytes=32)


def test_lanes_that_take_another_way_are_waited_for() -> None:
    """Some lanes jump back to the shuffle while the others come to it from further behind."""
    body = f"""{SETUP} ld.param.u64 %rd0, [p0]; mov.u32 %r6, 0; bra START;
    LOOP: shfl.sync.idx.b32 %r5, %r0, 9, 31, {FULL}; add.u32 %r6, %r6, %r5;
    setp.ge.u32 %p1, %r6, 27; @%p1 bra DONE;
    START: @%p0 bra LOOP;
    add.u32 %r1, %r1, 1; bra LOOP;
    DONE: st.global.b32 [%rd0], %r6;"""
    _, after = run_text(body, {"out": np.zeros(1, np.uint32)})
    assert after["out"].tolist() == [27]


def test_lanes_at_two_shuffles_wait_for_each_other_in_vain() -> None:
    shuffle = f"shfl.sync.idx.b32 %r2, %r1, 3, 31, {FULL};"
    with pytest.raises(DivergenceError, match="exactly the lanes that its mask names"):
        run_text(f"{SETUP} @%p0 bra ELSE; {shuffle} bra DONE; ELSE: {shuffle} DONE: ret;")


@pytest.mark.parametrize("mode", ["any", "all", "uni"])
@pytest.mark.parametrize("sign", ["", "!"])
def test_each_vote_of_every_count_of_lanes(mode: str, sign: str) -> None:
    """Warp n has n lanes that say yes; PTX ISA, "vote.sync"."""
    yes = np.array([lane < warp for warp in range(33) for lane in range(32)], dtype=np.uint32)
    yes = np.resize(yes, 36 * 32)
    body = (
        f"setp.ne.u32 %p0, %i0, 0; vote.sync.{mode}.pred %p1, {sign}%p0, {FULL};"
        " selp.u32 %o0, 1, 0, %p1;"
    )
    (found,) = apply(body, yes)
    for first in range(0, 33 * 32, 32):
        votes = [bool(vote) is not (sign == "!") for vote in yes[first : first + 32]]
        wanted = {"any": any(votes), "all": all(votes), "uni": len(set(votes)) == 1}[mode]
        assert found[first : first + 32].tolist() == [int(wanted)] * 32


def test_a_vote_without_a_lane_that_it_names_is_refused() -> None:
    vote = f"@%p0 vote.sync.any.pred %p1, %p0, {FULL};"
    with pytest.raises(DivergenceError, match="exactly the lanes that its mask names"):
        run_text(f"{SETUP} {vote}")


def test_a_vote_of_what_nobody_wrote_is_refused() -> None:
    body = f"""mov.u32 %r3, smem; ld.shared.b32 %r4, [%r3]; setp.lt.u32 %p0, %r4, 8;
    vote.sync.any.pred %p1, %p0, {FULL};"""
    shared = ".extern .shared .align 16 .b8 smem[];"
    with pytest.raises(UninitializedError):
        run_text(body, shared=shared, smem_bytes=32)
