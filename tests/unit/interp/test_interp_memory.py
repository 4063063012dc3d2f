"""ld, st and atom on global and shared memory, and every fault of theirs (PTX ISA, "ld", "st",
"atom", "red")."""

from __future__ import annotations

import numpy as np
import pytest
from lanes_kernel import apply, kernel_text, run_text

from ptxgen.errors import (
    MisalignedError,
    OutOfBoundsError,
    StepLimitError,
    UninitializedError,
    UnsupportedPtxError,
)
from ptxgen.interp import GlobalMemory, Launch, RunOptions, Schedule, load_program, run

LANE = "mov.u32 %r0, %tid.x; ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1];"
AT_16 = "mul.wide.u32 %rd2, %r0, 16; add.s64 %rd3, %rd0, %rd2; add.s64 %rd4, %rd1, %rd2;"


def words(count: int, dtype: str = "u4") -> np.ndarray:
    return np.random.default_rng(5).integers(0, 255, count * 8, dtype=np.uint8).view(dtype)[:count]


@pytest.mark.parametrize("hint", ["", ".nc", ".cg", ".nc.L1::no_allocate.L2::128B"])
def test_vector_loads_and_stores(hint: str) -> None:
    source = words(128)
    body = f"""{LANE}{AT_16}
    ld.global{hint}.v4.b32 {{%r4, %r5, %r6, %r7}}, [%rd3];
    st.global.cg.v2.b32 [%rd4], {{%r5, %r4}};
    st.global.v2.f32 [%rd4+8], {{%f1, %f0}};
    """.replace("st.global.cg", "mov.b32 %f0, %r6; mov.b32 %f1, %r7; st.global.cg")
    _, out = run_text(body, {"in": source, "out": np.zeros(128, np.uint32)})
    expected = source.reshape(32, 4)[:, [1, 0, 3, 2]].reshape(-1)
    assert np.array_equal(out["out"], expected)


@pytest.mark.parametrize(
    ("kind", "load", "expected"),
    [
        ("u8", "ld.global.u8 %r4", lambda b: b.astype(np.uint32)),
        ("s8", "ld.global.s8 %r4", lambda b: b.view(np.int8).astype(np.int32).view(np.uint32)),
    ],
)
def test_bytes_are_extended(kind: str, load: str, expected: object) -> None:
    source = np.arange(32, dtype=np.uint8) * 8
    body = f"""{LANE} cvt.u64.u32 %rd2, %r0; add.s64 %rd3, %rd0, %rd2;
    mul.wide.u32 %rd5, %r0, 4; add.s64 %rd4, %rd1, %rd5; {load}, [%rd3]; st.global.b32 [%rd4], %r4;
    """
    _, out = run_text(body, {"in": source, "out": np.zeros(32, np.uint32)})
    assert np.array_equal(out["out"], expected(source))  # type: ignore[operator]


def test_narrow_stores_take_the_low_bits() -> None:
    body = f"""{LANE} mul.wide.u32 %rd2, %r0, 4; add.s64 %rd4, %rd1, %rd2;
    mov.u32 %r4, 0x12345678; st.global.u8 [%rd4], %r4; st.global.u16 [%rd4+2], %r4;
    """
    _, out = run_text(body, {"in": np.zeros(1), "out": np.zeros(32, np.uint32)})
    assert set(out["out"].tolist()) == {0x56780078}


def test_shared_memory_by_shared_and_generic_addresses() -> None:
    body = f"""{LANE} mov.u32 %r4, buffer; shl.b32 %r5, %r0, 2; add.s32 %r6, %r4, %r5;
    st.shared.b32 [%r6], %r0; bar.sync 0;
    xor.b32 %r7, %r5, 4; add.s32 %r7, %r7, %r4; cvt.u64.u32 %rd5, %r7; cvta.shared.u64 %rd6, %rd5;
    ld.b32 %r8, [%rd6]; cvt.u64.u32 %rd2, %r5; add.s64 %rd4, %rd1, %rd2; st.b32 [%rd4], %r8;
    """
    buffers = {"in": np.zeros(1), "out": np.zeros(32, np.uint32)}
    report, out = run_text(body, buffers, shared=".shared .align 16 .b8 buffer[128];")
    assert out["out"].tolist() == [lane ^ 1 for lane in range(32)]
    assert report.races == ()
    assert report.counts.bytes == {"shared_write": 128, "shared_read": 128, "global_write": 128}


def test_atomics_return_what_was_there_before_lane_by_lane() -> None:
    body = """mov.u32 %r0, %tid.x; ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1];
    mul.wide.u32 %rd2, %r0, 4; add.s64 %rd4, %rd1, %rd2;
    atom.global.add.u32 %r5, [%rd0], %r0; st.global.b32 [%rd4], %r5;
    atom.global.acq_rel.gpu.inc.u32 %r6, [%rd0+4], 4; st.global.b32 [%rd4+128], %r6;
    red.global.max.s32 [%rd0+8], %r0;
    atom.global.cas.b32 %r7, [%rd0+12], %r0, 77; st.global.b32 [%rd4+256], %r7;
    """
    state = np.array([100, 0, 0xFFFFFFF0, 3], np.uint32)
    _, out = run_text(body, {"state": state, "out": np.zeros(96, np.uint32)})
    sums = [100 + lane * (lane - 1) // 2 for lane in range(33)]
    assert out["out"][:32].tolist() == sums[:32]
    assert out["out"][32:64].tolist() == [lane % 5 for lane in range(32)]
    assert out["out"][64:].tolist() == [3] * 4 + [77] * 28
    assert out["state"].tolist() == [sums[32], 32 % 5, 31, 77]


def test_reading_past_a_buffer_is_named() -> None:
    with pytest.raises(OutOfBoundsError, match=r"line \d+.*byte 512 of 'in', which has 512"):
        run_text(
            f"{LANE}{AT_16} ld.global.v4.b32 {{%r4, %r5, %r6, %r7}}, [%rd3+16];",
            {"in": words(128), "out": np.zeros(1)},
        )


def test_a_vector_that_straddles_the_end_is_out_of_bounds() -> None:
    with pytest.raises(OutOfBoundsError, match="'in', which has 508"):
        run_text(
            f"{LANE}{AT_16} ld.global.v4.b32 {{%r4, %r5, %r6, %r7}}, [%rd3];",
            {"in": words(127), "out": np.zeros(1)},
        )


def test_null_pointers_and_guarded_lanes() -> None:
    body = f"""{LANE}{AT_16} setp.eq.s32 %p0, %r0, 40; mov.u64 %rd9, 0;
    @%p0 ld.global.b32 %r4, [%rd9];"""
    buffers = {"in": words(128), "out": np.zeros(1)}
    run_text(body, buffers)  # no lane is 40
    with pytest.raises(OutOfBoundsError, match="before every buffer"):
        run_text(body.replace("40;", "4;"), buffers)


def test_a_read_only_buffer_is_not_written() -> None:
    memory = GlobalMemory()
    address = memory.allocate("weights", np.zeros(4), readonly=True)
    program = load_program(
        kernel_text("ld.param.u64 %rd0, [p0]; st.global.b32 [%rd0], %r0;", 1), "k"
    )
    with pytest.raises(OutOfBoundsError, match=r"'weights'.*read-only"):
        run(program, Launch((1, 1, 1), (32, 1, 1), 0, (address,)), memory)


def test_misaligned_accesses() -> None:
    for offset, size in ((2, 4), (4, 8), (8, 16)):
        memory = GlobalMemory()
        address = memory.allocate("x", words(64), offset=offset)
        vector = {4: ".b32 %r1", 8: ".v2.b32 {%r1, %r2}", 16: ".v4.b32 {%r1, %r2, %r3, %r4}"}
        body = f"ld.param.u64 %rd0, [p0]; ld.global{vector[size]}, [%rd0];"
        program = load_program(kernel_text(body, 1), "k")
        with pytest.raises(MisalignedError, match=f"no multiple of the {size} bytes"):
            run(program, Launch((1, 1, 1), (32, 1, 1), 0, (address,)), memory)


def test_allocations_keep_values_offsets_and_gaps() -> None:
    memory = GlobalMemory()
    first = memory.allocate("a", np.arange(10, dtype=np.int16), offset=2)
    second = memory.allocate("b", np.arange(6, dtype=np.float32).reshape(2, 3))
    assert first % 256 == 2
    assert second % 256 == 0
    assert second >= first + 20 + 4096
    assert memory.array("a").tolist() == list(range(10))
    assert memory.array("b").shape == (2, 3)
    memory.write("b", np.ones((2, 3), np.float32))
    assert memory.array("b").sum() == 6
    assert memory.array("a").tolist() == list(range(10))
    with pytest.raises(ValueError, match="'a' exists"):
        memory.allocate("a", np.zeros(1))


SHARED = ".extern .shared .align 16 .b8 smem[];"


@pytest.mark.parametrize(
    ("address", "fault"),
    [(1024 + 64, OutOfBoundsError), (1020, OutOfBoundsError), (1026, MisalignedError)],
)
def test_shared_bounds_and_alignment(address: int, fault: type[Exception]) -> None:
    body = f"mov.u32 %r0, smem; mov.u32 %r1, {address}; st.shared.b32 [%r1], %r0;"
    with pytest.raises(fault, match="shared address"):
        run_text(body, smem_bytes=64, shared=SHARED)


POISON = f"{LANE} mov.u32 %r3, smem; ld.shared.b32 %r4, [%r3+4];"


@pytest.mark.parametrize(
    ("use", "told"),
    [
        ("st.global.b32 [%rd1], %r4;", "a store to global memory"),
        ("add.s32 %r5, %r4, 1; mul.lo.s32 %r5, %r5, %r5; st.global.b32 [%rd1], %r5;", "a store"),
        ("cvt.u64.u32 %rd5, %r4; add.s64 %rd5, %rd5, %rd1; ld.global.b32 %r6, [%rd5];", "address"),
        ("setp.eq.s32 %p0, %r4, 0; @%p0 st.global.b32 [%rd1], %r0;", "a predicate"),
        ("atom.global.add.u32 %r6, [%rd1], %r4;", "an atomic"),
        ("st.shared.b32 [%r3], %r4; ld.shared.b32 %r6, [%r3]; st.global.b32 [%rd1], %r6;", "store"),
    ],
)
def test_unwritten_shared_memory_must_not_reach_anything(use: str, told: str) -> None:
    buffers = {"in": np.zeros(8), "out": np.zeros(8)}
    with pytest.raises(UninitializedError, match=told):
        run_text(POISON + use, buffers, smem_bytes=64, shared=SHARED)


def test_poison_that_is_dropped_is_harmless() -> None:
    """A lane's select, a guarded store and an overwrite each drop it."""
    body = f"""{POISON} setp.lt.s32 %p0, %r0, 40; selp.b32 %r4, %r0, %r0, %p0;
    ld.shared.b32 %r5, [%r3+4]; setp.gt.s32 %p1, %r0, 40; @%p1 st.global.b32 [%rd1], %r5;
    st.global.b32 [%rd1], %r4;"""
    run_text(body, {"in": np.zeros(8), "out": np.zeros(8)}, smem_bytes=64, shared=SHARED)


def test_one_byte_written_does_not_make_a_word() -> None:
    body = f"""{LANE} mov.u32 %r3, smem; setp.eq.s32 %p0, %r0, 0; @%p0 st.shared.u8 [%r3], %r0;
    bar.sync 0; ld.shared.u8 %r4, [%r3]; st.global.b32 [%rd1], %r4; ld.shared.b32 %r5, [%r3];
    st.global.b32 [%rd1+4], %r5;"""
    with pytest.raises(UninitializedError, match=r"%rd1\+4"):
        run_text(body, {"in": np.zeros(8), "out": np.zeros(8)}, smem_bytes=64, shared=SHARED)


@pytest.mark.parametrize(
    "line",
    [
        "setmaxnreg.inc.sync.aligned.u32 20;",
        "setmaxnreg.inc.sync.aligned.u32 100;",
        "prefetch.global.L2 [%rd0];",
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r0], "
        "[%rd0, {%r1, %r2, %r3}], [%r4];",
        "createpolicy.range.L2::evict_first.b64 %rd0, [%rd1], 1, 2;",
        "wgmma.fence.sync;",
        "add.sat.s32 %r0, %r0, %r1;",
        "add.rz.f32 %f0, %f0, %f1;",
        "ld.global.v8.b32 {%r0, %r1}, [%rd0];",
        "cp.async.bulk.prefetch.L2.global.L2::cache_hint [%rd0], 16, %rd1;",
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f0,%f1,%f2,%f3}, {%r0,%r1}, {%r2}, "
        "{%f0,%f1,%f2,%f3};",
        "mov.u32 %r0, %clock;",
        "mov.u32 %r0, %rd0;",
        "bra NOWHERE;",
        "lop3.b32 %r0, %r1, %r2, %r3, %r4;",
    ],
)
def test_an_unknown_instruction_is_named_with_its_line(line: str) -> None:
    text = kernel_text(f"mov.u32 %r0, %tid.x;\n{line}", 0)
    number = next(n for n, row in enumerate(text.split("\n"), 1) if row == line)
    with pytest.raises(UnsupportedPtxError) as caught:
        load_program(text, "k")
    assert f"PTX line {number}" in str(caught.value)
    assert line.split(maxsplit=1)[0].rstrip(";") in str(caught.value)


def test_an_unknown_entry_and_broken_text() -> None:
    with pytest.raises(UnsupportedPtxError, match="no entry 'other'; its functions are k"):
        load_program(kernel_text("", 0), "other")
    with pytest.raises(UnsupportedPtxError, match="does not parse"):
        load_program("this is no PTX", "k")


def test_the_step_limit() -> None:
    with pytest.raises(StepLimitError, match="limit of 100"):
        run_text("AGAIN: bra AGAIN;", options=RunOptions(step_limit=100))


def test_arguments_must_fit() -> None:
    program = load_program(kernel_text("", 2), "k")
    with pytest.raises(ValueError, match="takes 2 arguments, not 1"):
        run(program, Launch((1, 1, 1), (32, 1, 1), 0, (1,)), GlobalMemory())


def test_special_registers_of_a_three_dimensional_launch() -> None:
    body = """ld.param.u64 %rd0, [p0];
    mov.u32 %r0, %tid.x; mov.u32 %r1, %tid.y; mov.u32 %r2, %tid.z;
    mov.u32 %r3, %ntid.x; mov.u32 %r4, %ntid.y; mov.u32 %r5, %ntid.z;
    mov.u32 %r6, %ctaid.x; mov.u32 %r7, %ctaid.y; mov.u32 %r8, %ctaid.z;
    mov.u32 %r9, %nctaid.x; mov.u32 %r10, %nctaid.y; mov.u32 %r11, %laneid;
    mad.lo.s32 %r12, %r2, %r4, %r1; mad.lo.s32 %r12, %r12, %r3, %r0;
    mad.lo.s32 %r13, %r8, %r10, %r7; mad.lo.s32 %r13, %r13, %r9, %r6;
    mul.lo.s32 %r14, %r3, %r4; mul.lo.s32 %r14, %r14, %r5; mad.lo.s32 %r15, %r13, %r14, %r12;
    mul.wide.u32 %rd1, %r15, 4; add.s64 %rd2, %rd0, %rd1; st.global.b32 [%rd2], %r11;
    """
    memory = GlobalMemory()
    address = memory.allocate("out", np.full(2 * 3 * 2 * 40, 99, np.uint32))
    program = load_program(kernel_text(body, 1), "k")
    launch = Launch((2, 3, 2), (5, 4, 2), 0, (address,))
    run(program, launch, memory, Schedule(3, "random", resident=4))
    assert memory.array("out").tolist() == [n % 40 % 32 for n in range(2 * 3 * 2 * 40)]


def test_apply_runs_many_ctas() -> None:
    values = np.arange(4096, dtype=np.uint32)
    assert np.array_equal(apply("add.s32 %o0, %i0, 1;", values)[0], values + np.uint32(1))
