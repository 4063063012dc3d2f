"""ldmatrix, stmatrix, movmatrix and mma.sync against matrices built element by element from the
manual's fragment tables (PTX ISA, "Warp-Level Matrix Instructions")."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from lanes_kernel import apply, run_text

from ptxgen.errors import (
    DivergenceError,
    MisalignedError,
    UninitializedError,
    UnsupportedPtxError,
)

SHARED = ".extern .shared .align 128 .b8 smem[];"


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("trans", ["", ".trans"])
def test_ldmatrix(count: int, trans: str) -> None:
    """Lane l gets elements 2 (l % 4) and the next of row l / 4 (transposed: of column l / 4)."""
    source = np.random.default_rng(0).integers(0, 65536, (4, 8, 8), dtype=np.uint16)
    registers = ", ".join(f"%r{10 + n}" for n in range(count))
    stores = " ".join(f"st.global.b32 [%rd4+{128 * n}], %r{10 + n};" for n in range(count))
    # Rows are stored in a scrambled order (row r of all 32 at place 5 r + 3 mod 32).
    body = f"""mov.u32 %r0, %tid.x; ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1];
    mul.wide.u32 %rd2, %r0, 16; add.s64 %rd3, %rd0, %rd2; mul.wide.u32 %rd5, %r0, 4;
    add.s64 %rd4, %rd1, %rd5; mov.u32 %r1, smem; mad.lo.s32 %r2, %r0, 5, 3; and.b32 %r2, %r2, 31;
    shl.b32 %r2, %r2, 4; add.s32 %r2, %r2, %r1; ld.global.v4.b32 {{%r4, %r5, %r6, %r7}}, [%rd3];
    st.shared.v4.b32 [%r2], {{%r4, %r5, %r6, %r7}}; bar.sync 0;
    setp.lt.s32 %p0, %r0, {8 * count}; selp.b32 %r2, %r2, 4, %p0;
    ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{registers}}}, [%r2]; {stores}
    """
    buffers = {"in": source, "out": np.zeros((count, 32), np.uint32)}
    report, out = run_text(body, buffers, smem_bytes=512, shared=SHARED)
    halves = out["out"].view(np.uint16).reshape(count, 32, 2)
    for matrix in range(count):
        for lane in range(32):
            for half in (0, 1):
                row, column = lane // 4, 2 * (lane % 4) + half
                if trans:
                    row, column = column, row
                assert halves[matrix, lane, half] == source[matrix, row, column]
    assert report.races == ()
    assert report.counts.bytes["shared_read"] == 128 * count


def fragments(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> list[np.ndarray]:
    """The ten input registers of m16n8k16, lane by lane as the manual's figures have them."""
    registers = np.zeros((6, 32, 2), np.uint16)
    sums = np.zeros((4, 32), np.float32)
    for lane in range(32):
        group, thread = lane // 4, lane % 4
        for i in range(8):
            row = group if i < 2 or 4 <= i < 6 else group + 8
            column = thread * 2 + (i & 1) + (8 if i >= 4 else 0)
            registers[i // 2, lane, i % 2] = a[row, column]
        for i in range(4):
            row = thread * 2 + (i & 1) + (8 if i >= 2 else 0)
            registers[4 + i // 2, lane, i % 2] = b[row, group]
        for i in range(4):
            sums[i, lane] = c[group if i < 2 else group + 8, thread * 2 + (i & 1)]
    words = registers.view(np.uint32)[..., 0]
    return [*words, *sums.view(np.uint32)]


def matrix_of(results: list[np.ndarray]) -> np.ndarray:
    d = np.zeros((16, 8), np.float32)
    for i, values in enumerate(results):
        for lane in range(32):
            row = lane // 4 + (8 if i >= 2 else 0)
            d[row, lane % 4 * 2 + (i & 1)] = values.view(np.float32)[lane]
    return d


MMA = """mma.sync.aligned.m16n8k16.row.col.f32.{0}.{0}.f32 {{%f0, %f1, %f2, %f3}},
{{%i0, %i1, %i2, %i3}}, {{%i4, %i5}}, {{%i6, %i7, %i8, %i9}};
mov.b32 %o0, %f0; mov.b32 %o1, %f1; mov.b32 %o2, %f2; mov.b32 %o3, %f3;"""


@pytest.mark.parametrize(("kind", "dtype"), [("f16", torch.float16), ("bf16", torch.bfloat16)])
@pytest.mark.parametrize("seed", range(4))
def test_mma_is_the_exact_sum_rounded_once(kind: str, dtype: torch.dtype, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    a = torch.randn(16, 16, generator=generator).to(dtype)
    b = torch.randn(16, 8, generator=generator).to(dtype)
    c = torch.randn(16, 8, generator=generator) * 10.0 ** (seed - 2)
    bits = [t.view(torch.int16).numpy().view(np.uint16) for t in (a, b)]
    results = apply(MMA.format(kind), *fragments(*bits, c.numpy()), outputs=(np.uint32,) * 4)
    exact = a.double() @ b.double() + c.double()
    assert np.array_equal(matrix_of(results), exact.float().numpy())


def test_mma_gives_infinities_and_the_canonical_nan() -> None:
    a, b, c = np.zeros((16, 16), np.uint16), np.zeros((16, 8), np.uint16), np.zeros((16, 8))
    a[3, 4], b[4, 5], a[9, 2], b[2, 1] = 0x7C00, 0x3C00, 0x7C00, 0x0000
    results = apply(MMA.format("f16"), *fragments(a, b, c), outputs=(np.uint32,) * 4)
    d = matrix_of(results)
    assert d[3, 5] == np.inf
    assert np.isnan(d[9]).all()  # inf * 0 in the whole row
    assert 0x7FFFFFFF in {int(word) for register in results for word in register}
    d[[3, 9]] = 0
    assert not d.any()


def test_whole_warp_instructions_refuse_missing_lanes() -> None:
    body = """mov.u32 %r0, %tid.x; mov.u32 %r1, smem; setp.lt.s32 %p0, %r0, 31; bar.sync 0;
    @%p0 ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r4}, [%r1];"""
    with pytest.raises(DivergenceError, match="ldmatrix"):
        run_text(body, smem_bytes=512, shared=SHARED)
    with pytest.raises(DivergenceError, match="ldmatrix"):
        run_text(body.replace("@%p0 ", ""), threads=48, smem_bytes=512, shared=SHARED)


POISONED = """mov.u32 %r0, %tid.x; ld.param.u64 %rd0, [p0]; mul.wide.u32 %rd1, %r0, 4;
add.s64 %rd2, %rd0, %rd1; mov.u32 %r1, smem; shl.b32 %r2, %r0, 4; add.s32 %r3, %r1, %r2;
mov.u32 %r4, 0; setp.ne.s32 %p0, %r0, {missing};
@%p0 st.shared.v4.b32 [%r3], {{%r4, %r4, %r4, %r4}}; bar.sync 0;
ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%r10, %r11, %r12, %r13}}, [%r3];
mov.f32 %f0, 0f00000000;
mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {{%f4, %f5, %f6, %f7}}, {fragments},
{{%f0, %f0, %f0, %f0}};
shr.u32 %r20, %r0, 2; and.b32 %r21, %r0, 3; setp.{keep} %p1, {which}, {index};
@%p1 st.global.f32 [%rd2], {value};
"""
B_OPERAND = "{%r4, %r4, %r4, %r4}, {%r10, %r11}"
A_OPERAND = "{%r10, %r11, %r12, %r13}, {%r4, %r4}"


@pytest.mark.parametrize(
    ("operand", "which", "index", "value"),
    [
        # Row 6 of B^T unwritten: column 6 is lanes with thread 3, first register.
        (B_OPERAND, "%r21", 3, "%f4"),
        # Row 6 of A's upper left quarter: row 6 is lanes of group 6, registers 0 and 1.
        (A_OPERAND, "%r20", 6, "%f4"),
        (A_OPERAND, "%r20", 6, "%f5"),
    ],
)
def test_poison_spoils_a_row_or_a_column_of_the_product(
    operand: str, which: str, index: int, value: str
) -> None:
    def body(keep: str) -> str:
        return POISONED.format(
            missing=6, fragments=operand, which=which, index=index, value=value, keep=keep
        )

    buffers = {"out": np.ones(32, np.float32)}
    _, out = run_text(body("ne.s32"), buffers, smem_bytes=512, shared=SHARED)
    kept = out["out"] == 0
    assert kept.sum() == 32 - (8 if which == "%r21" else 4)
    with pytest.raises(UninitializedError):
        run_text(body("eq.s32"), buffers, smem_bytes=512, shared=SHARED)


def test_poison_in_the_other_columns_of_a_register_pair_stays_there() -> None:
    """Column 6 is register 0 of thread 3; its register 1 is column 7, which was written."""
    body = POISONED.format(
        missing=6, fragments=B_OPERAND, which="%r21", index=3, value="%f5", keep="eq.s32"
    )
    run_text(body, {"out": np.ones(32, np.float32)}, smem_bytes=512, shared=SHARED)


def test_movmatrix_transposes() -> None:
    """Lane l holds elements 2 (l % 4) and the next of row l / 4, then of column l / 4."""
    source = np.random.default_rng(1).integers(0, 65536, (8, 8), dtype=np.uint16)
    body = "movmatrix.sync.aligned.m8n8.trans.b16 %o0, %i0;"
    (found,) = apply(body, np.ascontiguousarray(source).view(np.uint32).reshape(-1))
    halves = found.view(np.uint16).reshape(32, 2)
    for lane in range(32):
        for half in (0, 1):
            assert halves[lane, half] == source[2 * (lane % 4) + half, lane // 4]


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("trans", ["", ".trans"])
def test_stmatrix_stores_rows_where_the_lanes_say(count: int, trans: str) -> None:
    """Lane l's register m: elements 2 (l % 4) and the next of row, or column, l / 4 of matrix m.

    Lane 8 m + r names row r of matrix m; the rows go to memory in the reverse order here.
    """
    source = np.random.default_rng(2).integers(0, 65536, (4, 8, 8), dtype=np.uint16)
    words = np.ascontiguousarray(source).view(np.uint32).reshape(4, 32)
    names = ", ".join(f"%r{10 + n}" for n in range(count))
    loads = "".join(f"ld.global.b32 %r{10 + n}, [%rd2+{128 * n}];" for n in range(4))
    body = f"""mov.u32 %r0, %tid.x; ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1];
    mul.wide.u32 %rd3, %r0, 4; add.s64 %rd2, %rd0, %rd3;
    {loads}
    mov.u32 %r1, smem; sub.s32 %r2, 31, %r0; shl.b32 %r2, %r2, 4; add.s32 %r2, %r1, %r2;
    stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 [%r2], {{{names}}};
    bar.warp.sync 0xffffffff;
    setp.ge.u32 %p0, %r0, {8 * count}; @%p0 bra done;
    ld.shared.v4.b32 {{%r3, %r4, %r5, %r6}}, [%r2];
    mul.wide.u32 %rd3, %r0, 16; add.s64 %rd2, %rd1, %rd3;
    st.global.v4.b32 [%rd2], {{%r3, %r4, %r5, %r6}};
    done:"""
    buffers = {"source": words, "out": np.zeros((32, 4), np.uint32)}
    _, found = run_text(body, buffers, smem_bytes=512, shared=SHARED)
    rows = found["out"].view(np.uint16).reshape(4, 8, 8)[:count]
    expected = source.transpose(0, 2, 1) if trans else source
    assert np.array_equal(rows, expected[:count])


def test_stmatrix_needs_the_whole_warp_and_its_rows_aligned() -> None:
    half = """mov.u32 %r0, %tid.x; mov.u32 %r1, smem; setp.lt.u32 %p0, %r0, 31;
    @%p0 stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r1], {%r0};"""
    with pytest.raises(DivergenceError):
        run_text(half, smem_bytes=512, shared=SHARED)
    odd = """mov.u32 %r0, %tid.x; mov.u32 %r1, smem; add.s32 %r1, %r1, 8;
    stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r1], {%r0};"""
    with pytest.raises(MisalignedError):
        run_text(odd, smem_bytes=512, shared=SHARED)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r0}, [%r1];", "1 registers for .x2"),
        ("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r1], {%r0, %r0};", "2 registers for .x4"),
        ("stmatrix.sync.aligned.m8n8.x3.shared.b16 [%r1], {%r0};", "only stmatrix.sync.aligned"),
        ("ldmatrix.sync.aligned.m16n16.x1.shared.b8 {%r0}, [%r1];", "only ldmatrix.sync.aligned"),
    ],
)
def test_other_forms_are_refused(text: str, reason: str) -> None:
    with pytest.raises(UnsupportedPtxError, match=reason):
        run_text(text, smem_bytes=512, shared=SHARED)


@pytest.mark.parametrize(("trans", "spoiled"), [("", 1), (".trans", 32)])
def test_poison_goes_through_stmatrix(trans: str, spoiled: int) -> None:
    """What a lane did not know is a word of a row; transposed, it may be anywhere of the matrix."""
    body = f"""mov.u32 %r0, %tid.x; ld.param.u64 %rd0, [p0]; mov.u32 %r1, smem;
    setp.eq.u32 %p0, %r0, 5; mov.u32 %r3, 7; @%p0 ld.shared.b32 %r3, [%r1];
    shl.b32 %r2, %r0, 4; add.s32 %r2, %r1, %r2;
    stmatrix.sync.aligned.m8n8.x1{trans}.shared.b16 [%r2], {{%r3}};
    bar.warp.sync 0xffffffff;
    shl.b32 %r2, %r0, 2; add.s32 %r2, %r1, %r2; ld.shared.b32 %r4, [%r2];
    setp.eq.u32 %p0, %r0, LANE; @%p0 st.global.b32 [%rd0], %r4;"""
    clean = 0
    for lane in range(32):
        buffers = {"out": np.zeros(1, np.uint32)}
        try:
            run_text(body.replace("LANE", str(lane)), buffers, smem_bytes=512, shared=SHARED)
            clean += 1
        except UninitializedError:
            pass
    assert 32 - clean == spoiled


def test_movmatrix_needs_the_whole_warp() -> None:
    body = """mov.u32 %r0, %tid.x; setp.lt.u32 %p0, %r0, 31;
    @%p0 movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r0;"""
    with pytest.raises(DivergenceError):
        run_text(body)


def test_poison_of_one_lane_spoils_a_transposed_matrix() -> None:
    body = """mov.u32 %r0, %tid.x; ld.param.u64 %rd0, [p0]; mov.u32 %r1, smem;
    setp.eq.u32 %p0, %r0, 5; @%p0 ld.shared.b32 %r0, [%r1];
    movmatrix.sync.aligned.m8n8.trans.b16 %r2, %r0; st.global.b32 [%rd0], %r2;"""
    with pytest.raises(UninitializedError, match=r"st\.global"):
        run_text(body, {"out": np.zeros(1, np.uint32)}, smem_bytes=16, shared=SHARED)
