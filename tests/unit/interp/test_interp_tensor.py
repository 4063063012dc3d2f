"""cp.async.bulk.tensor: boxes, swizzle, zeros outside, bytes counted, faults and races (PTX ISA,
"cp.async.bulk.tensor", "Swizzling modes")."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from lanes_kernel import HEADER, REGISTERS
from numpy.typing import NDArray

from ptxgen.errors import (
    DeadlockError,
    KernelFaultError,
    MisalignedError,
    OutOfBoundsError,
    TensorMapError,
    UnsupportedPtxError,
)
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
from ptxgen.interp.tensor_maps import decode_map
from ptxgen.tensor_map import TensorMapRecipe

Array = NDArray[Any]

COPY = "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
WAIT = """{ .reg .pred done; again:
mbarrier.try_wait.parity.shared::cta.b64 done, [%r1], 0; @!done bra again; }"""
SETUP = """ld.param.u64 %rd0, [p0]; ld.param.u32 %r20, [p1]; ld.param.u32 %r21, [p2];
mov.b64 %rd1, p3; cvta.param.u64 %rd2, %rd1; mov.u32 %r0, %tid.x; mov.u32 %r1, smem;
add.s32 %r2, %r1, 1024; setp.eq.u32 %p0, %r0, 0;
@%p0 mbarrier.init.shared::cta.b64 [%r1], 1; fence.mbarrier_init.release.cluster; bar.sync 0;
"""
"""%rd0: out; %r20, %r21: coordinates; %rd2: the map; %r1: mbarrier; %r2: the box."""


def expect(nbytes: int) -> str:
    return f"@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], {nbytes};"


ISSUE = f"prefetch.tensormap [%rd2]; @%p0 {COPY} [%r2], [%rd2, {{%r20, %r21}}], [%r1];"


def copy_out(nbytes: int) -> str:
    """The box's bytes as they lie in shared memory, thread by thread."""
    return f"""mov.u32 %r3, %r0;
    OUT: setp.ge.u32 %p1, %r3, {nbytes // 16}; @%p1 bra END;
    shl.b32 %r4, %r3, 4; add.s32 %r5, %r2, %r4;
    ld.shared.v4.b32 {{%r6, %r7, %r8, %r9}}, [%r5];
    cvt.u64.u32 %rd3, %r4; add.s64 %rd4, %rd0, %rd3;
    st.global.v4.b32 [%rd4], {{%r6, %r7, %r8, %r9}};
    add.s32 %r3, %r3, 32; bra OUT; END:"""


def whole(tokens: int) -> str:
    nbytes = tokens * 128
    return SETUP + expect(nbytes) + ISSUE + WAIT + copy_out(nbytes)


def ran(
    body: str,
    x: Array,
    inputs: int,
    box: tuple[int, int],
    at: tuple[int, int] = (0, 0),
    *,
    threads: int = 32,
    schedule: Schedule | None = None,
    encoded: bytes | None = None,
) -> tuple[RunReport, Array]:
    """Runs a body on the map of x[:, :inputs], at coordinates `at`; out as [tokens, 64]."""
    memory = GlobalMemory()
    address = memory.allocate("x", x, readonly=True)
    out = memory.allocate("out", np.zeros((box[1], 64), np.uint16))
    recipe = TensorMapRecipe(address, inputs, len(x), x.strides[0], box)
    params = ".param .u64 p0, .param .u32 p1, .param .u32 p2, .param .align 64 .b8 p3[128]"
    text = f"{HEADER}.extern .shared .align 1024 .b8 smem[];\n.visible .entry k({params})\n"
    program = load_program(f"{text}{{\n{REGISTERS}\n{body}\nret;\n}}\n", "k")
    args = (out, at[0] & 0xFFFFFFFF, at[1] & 0xFFFFFFFF, encoded or encode_map(recipe))
    launch = Launch((1, 1, 1), (threads, 1, 1), 1024 + box[1] * 128 + 128, args)
    return run(program, launch, memory, schedule), memory.array("out")


def expected(x: Array, inputs: int, box: tuple[int, int], at: tuple[int, int]) -> Array:
    """Element by element: where each of the box's elements lies in shared memory."""
    found = np.zeros(box[1] * 64, np.uint16)
    for token in range(box[1]):
        for column in range(64):
            row, k = at[1] + token, at[0] + column
            value = x[row, k] if 0 <= row < len(x) and 0 <= k < inputs else 0
            chunk, within = divmod(column, 8)
            found[token * 64 + (chunk ^ (token % 8)) * 8 + within] = value
    return found.reshape(box[1], 64)


def numbers(tokens: int, width: int) -> Array:
    return np.arange(1, tokens * width + 1, dtype=np.uint16).reshape(tokens, width)


@pytest.mark.parametrize(
    "at", [(0, 0), (64, 0), (128, 16), (176, 8), (3, 5), (-8, -3), (192, 40), (256, 0), (0, 100)]
)
@pytest.mark.parametrize("tokens", [1, 7, 8, 24])
def test_a_box_lands_swizzled_with_zeros_outside(tokens: int, at: tuple[int, int]) -> None:
    x = numbers(41, 208)  # 8 elements of each row lie behind K
    box = (64, tokens)
    report, out = ran(whole(tokens), x, 200, box, at)
    assert np.array_equal(out, expected(x, 200, box, at))
    assert report.races == ()
    assert report.counts.bytes["async_copy"] == tokens * 128


def test_a_k_tail_within_sixteen_bytes() -> None:
    x = numbers(8, 104)
    _, out = ran(whole(8), x, 101, (64, 8), (64, 0))
    assert np.array_equal(out, expected(x, 101, (64, 8), (64, 0)))


def test_the_swizzle_follows_the_address_and_not_the_row() -> None:
    body = SETUP + "add.s32 %r2, %r2, 128;" + expect(1024) + ISSUE + WAIT
    body += copy_out(1024)
    x = numbers(8, 64)
    _, out = ran(body, x, 64, (64, 8))
    shifted = np.zeros((8, 64), np.uint16)
    for token in range(8):
        for chunk in range(8):
            at = (chunk ^ ((token + 1) % 8)) * 8
            shifted[token, at : at + 8] = x[token, chunk * 8 : chunk * 8 + 8]
    assert np.array_equal(out, shifted)


@pytest.mark.parametrize("policy", POLICIES)
def test_every_schedule_gives_the_same(policy: Any) -> None:
    x = numbers(16, 64)
    for seed in range(5):
        report, out = ran(whole(16), x, 64, (64, 16), schedule=Schedule(seed, policy))
        assert np.array_equal(out, expected(x, 64, (64, 16), (0, 0)))
        assert report.races == ()


def test_a_read_before_the_wait_is_a_race_or_finds_nothing() -> None:
    body = SETUP + expect(1024) + ISSUE + copy_out(1024).replace("END:", "END:" + WAIT)
    x = numbers(8, 64)
    with pytest.raises(KernelFaultError) as caught:
        ran(body, x, 64, (64, 8), schedule=Schedule(0, "one_ahead"))
    races = [str(race) for race in caught.value.races]
    assert any("copy by warp 0" in race and "read by warp 0" in race for race in races)


@pytest.mark.parametrize("missing", [-16, 16])
def test_all_bytes_of_the_box_are_counted(missing: int) -> None:
    """Outside the tensor too: here only one token of eight exists."""
    body = SETUP + expect(1024 + missing) + ISSUE + WAIT
    with pytest.raises(DeadlockError, match="bytes"):
        ran(body, numbers(1, 64), 64, (64, 8))


def test_a_box_at_an_odd_address_is_refused() -> None:
    body = SETUP + "add.s32 %r2, %r2, 64;" + expect(1024) + ISSUE + WAIT
    with pytest.raises(MisalignedError, match="must be a multiple of 128"):
        ran(body, numbers(8, 64), 64, (64, 8))


def test_a_box_beyond_shared_memory_is_refused() -> None:
    body = SETUP + "add.s32 %r2, %r2, 256;" + expect(1024) + ISSUE + WAIT
    with pytest.raises(OutOfBoundsError, match="outside the CTA's shared memory"):
        ran(body, numbers(8, 64), 64, (64, 8))


def test_a_tensor_beyond_its_buffer_is_refused() -> None:
    memory = GlobalMemory()
    address = memory.allocate("x", numbers(8, 64))
    recipe = TensorMapRecipe(address, 64, 9, 128, (64, 16))
    with pytest.raises(OutOfBoundsError):
        ran(whole(16), numbers(8, 64), 64, (64, 16), encoded=encode_map(recipe))


@pytest.mark.parametrize("change", ["add.s64 %rd2, %rd2, 64;", "mov.b64 %rd2, %rd1;"])
def test_an_address_without_a_map_is_refused(change: str) -> None:
    with pytest.raises(OutOfBoundsError, match="no parameter of the kernel"):
        ran(SETUP + change + ISSUE, numbers(8, 64), 64, (64, 8))


def test_bytes_that_are_no_map_are_refused() -> None:
    with pytest.raises(TensorMapError, match="no tensor map"):
        ran(whole(8), numbers(8, 64), 64, (64, 8), encoded=b"\1" * 128)


def test_an_argument_of_the_wrong_size_is_refused() -> None:
    for wrong in (b"\0" * 64, 5):
        with pytest.raises(ValueError, match="must be 128 bytes"):
            ran(whole(8), numbers(8, 64), 64, (64, 8), encoded=wrong)  # type: ignore[arg-type]


def test_the_interpreters_map_has_an_inverse() -> None:
    for recipe in (
        TensorMapRecipe(0x7000_0000_0100, 4096, 1, 8192, (64, 256)),
        TensorMapRecipe(16, 1, 2**32, 2**40 - 16, (64, 1)),
    ):
        assert len(encode_map(recipe)) == 128
        assert decode_map(encode_map(recipe)) == recipe


@pytest.mark.parametrize("source", ["[%rd2]", "[%rd2, {%r20}]", "[%r2, {%r20, %r21}]"])
def test_malformed_sources_are_named(source: str) -> None:
    with pytest.raises(UnsupportedPtxError, match=r"\[map, \{input, token\}\]|coordinates"):
        ran(f"{COPY} [%r2], {source}, [%r1];", numbers(8, 64), 64, (64, 8))


def test_constant_coordinates() -> None:
    x = numbers(20, 128)
    issue = ISSUE.replace("%r20, %r21", "64, 3")
    body = SETUP + expect(1024) + issue + WAIT + copy_out(1024)
    assert np.array_equal(ran(body, x, 128, (64, 8))[1], expected(x, 128, (64, 8), (64, 3)))
