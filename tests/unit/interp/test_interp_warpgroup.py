"""wgmma: fragments and swizzled descriptors against matrices built element by element, and every
order that it needs (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions", "Matrix
Descriptor Format")."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from lanes_kernel import run_text

from ptxgen.errors import DivergenceError, InFlightError, UninitializedError
from ptxgen.interp import POLICIES, Race, Schedule

SHARED = ".extern .shared .align 1024 .b8 smem[];"
BASE = 1024
N = 16
ROWS = {1: 128, 2: 64, 3: 32}


def physical(row: int, byte: int, mode: int) -> int:
    """Offset of a byte of a K-major operand, from the manual's swizzle figures.

    Chunks of 16 bytes; 128-byte swizzle: chunk c of row r of an 8-row atom lies at chunk c ^ r. 64:
    two rows share a 128-byte line, chunks go by c ^ (r / 2); 32: four rows, c ^ (r / 4). Without a
    swizzle: 8 rows of 16 bytes are one core matrix, and the next along K follows 1024 bytes later.
    """
    atom, in_atom, chunk = row // 8, row % 8, byte // 16
    if mode == 0:
        return atom * 128 + in_atom * 16 + chunk * 1024 + byte % 16
    turned = chunk ^ {1: in_atom, 2: in_atom // 2, 3: in_atom // 4}[mode]
    return atom * 8 * ROWS[mode] + in_atom * ROWS[mode] + turned * 16 + byte % 16


def descriptor(mode: int) -> int:
    stride = 128 if mode == 0 else 8 * ROWS[mode]
    leading = 1024 if mode == 0 else 16
    return BASE >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | mode << 62


PRODUCT = """mov.u32 %r0, %tid.x; ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1];
ld.param.u64 %rd2, [p2]; ld.param.u64 %rd9, [p3]; mov.u32 %r1, smem;
mul.wide.u32 %rd3, %r0, 16; add.s64 %rd4, %rd0, %rd3; shl.b32 %r2, %r0, 4; add.s32 %r3, %r1, %r2;
ld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%rd4]; FILL
FENCE_PROXY BARRIER
add.s64 %rd5, %rd1, %rd3; ld.global.v4.b32 {%r10, %r11, %r12, %r13}, [%rd5];
mul.wide.u32 %rd6, %r0, 32; add.s64 %rd7, %rd2, %rd6;
ld.global.v4.f32 {%f0, %f1, %f2, %f3}, [%rd7]; ld.global.v4.f32 {%f4, %f5, %f6, %f7}, [%rd7+16];
FENCE
WGMMA COMMIT TOUCH WAIT
OVERWRITE
st.global.v4.f32 [%rd7], {%f0, %f1, %f2, %f3}; st.global.v4.f32 [%rd7+16], {%f4, %f5, %f6, %f7};
"""
PIECES = {
    "FILL": "st.shared.v4.b32 [%r3], {%r4, %r5, %r6, %r7};",
    "FENCE_PROXY": "fence.proxy.async.shared::cta;",
    "BARRIER": "bar.sync 0;",
    "FENCE": "wgmma.fence.sync.aligned;",
    "WGMMA": "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 "
    "{%f0, %f1, %f2, %f3, %f4, %f5, %f6, %f7}, {%r10, %r11, %r12, %r13}, %rd9, 1, 1, 1, 0;",
    "COMMIT": "wgmma.commit_group.sync.aligned;",
    "TOUCH": "",
    "WAIT": "wgmma.wait_group.sync.aligned 0;",
    "OVERWRITE": "",
}


class Product:
    """Operands of one m64n16k16 and the kernel that multiplies them, with pieces replaced."""

    def __init__(self, mode: int = 1) -> None:
        generator = torch.Generator().manual_seed(mode)
        self.a = torch.randn(64, 16, generator=generator).half()
        self.b = torch.randn(N, 16, generator=generator).half()
        self.c = torch.randn(64, N, generator=generator)
        self.mode = mode

    def run(
        self, policy: str = "round_robin", **pieces: str
    ) -> tuple[np.ndarray, tuple[Race, ...]]:
        body = PRODUCT
        for name, text in (PIECES | pieces).items():
            body = body.replace(f"{name} ", f"{text} ").replace(f"{name}\n", f"{text}\n")
        report, out = run_text(
            body.replace("%rd9, [p3]", f"%rd9, [p3]; mov.u64 %rd9, {descriptor(self.mode):#x}"),
            {"b": self._shared(), "a": self._a(), "c": self._c(), "unused": np.zeros(1)},
            threads=128,
            smem_bytes=2048,
            shared=SHARED,
            schedule=Schedule(1, policy),  # type: ignore[arg-type]
        )
        return self._matrix(out["c"]), report.races

    @property
    def expected(self) -> np.ndarray:
        return (self.a.double() @ self.b.double().T + self.c.double()).float().numpy()

    def _shared(self) -> np.ndarray:
        image = np.zeros(2048, np.uint8)
        raw = self.b.numpy().view(np.uint8)
        for row in range(N):
            for byte in range(32):
                image[physical(row, byte, self.mode)] = raw[row, byte]
        return image

    def _a(self) -> np.ndarray:
        """Warp w holds rows 16 w ..; registers as for mma.m16n8k16."""
        words = np.zeros((128, 4, 2), np.float16)
        for thread in range(128):
            lane, first = thread % 32, thread // 32 * 16
            for i in range(8):
                row = first + lane // 4 + (8 if i // 2 % 2 else 0)
                column = lane % 4 * 2 + i % 2 + (8 if i >= 4 else 0)
                words[thread, i // 2, i % 2] = self.a[row, column]
        return words

    def _places(self) -> list[tuple[int, int, int, int]]:
        """(thread, register, row, column) of every accumulator."""
        return [
            (
                thread,
                i,
                thread // 32 * 16 + thread % 32 // 4 + 8 * (i // 2 % 2),
                i // 4 * 8 + thread % 4 * 2 + i % 2,
            )
            for thread in range(128)
            for i in range(N // 2)
        ]

    def _c(self) -> np.ndarray:
        registers = np.zeros((128, N // 2), np.float32)
        for thread, i, row, column in self._places():
            registers[thread, i] = self.c[row, column]
        return registers

    def _matrix(self, registers: np.ndarray) -> np.ndarray:
        matrix = np.zeros((64, N), np.float32)
        for thread, i, row, column in self._places():
            matrix[row, column] = registers[thread, i]
        return matrix


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
def test_every_swizzle_gives_the_exact_sum_rounded_once(mode: int) -> None:
    product = Product(mode)
    matrix, races = product.run()
    assert np.array_equal(matrix, product.expected)
    assert races == ()


@pytest.mark.parametrize("policy", POLICIES)
def test_a_lost_proxy_fence_is_a_race_under_every_schedule(policy: str) -> None:
    races = Product().run(policy, FENCE_PROXY="")[1]
    assert races
    assert all("fence.proxy.async" in str(race) for race in races)
    assert all(race.second.text.startswith("wgmma") for race in races)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_lost_barrier_is_a_race_or_a_read_of_nothing(policy: str) -> None:
    try:
        races = Product().run(policy, BARRIER="")[1]
    except UninitializedError:  # the reader came first
        return
    assert races


def test_the_result_is_not_there_before_the_wait() -> None:
    product = Product()
    for early in ("", "wgmma.wait_group.sync.aligned 1;"):
        matrix, _ = product.run(WAIT=early)
        assert np.array_equal(matrix, product.c.numpy())


def test_an_uncommitted_product_is_in_no_group() -> None:
    product = Product()
    assert np.array_equal(product.run(COMMIT="")[0], product.c.numpy())


def test_products_on_the_same_accumulators_follow_each_other() -> None:
    product = Product()
    twice = f"{PIECES['WGMMA']} {PIECES['COMMIT']} {PIECES['WGMMA']}"
    matrix, races = product.run(WGMMA=twice)
    first = torch.from_numpy(product.expected).double()
    expected = (product.a.double() @ product.b.double().T + first).float().numpy()
    assert np.array_equal(matrix, expected)
    assert races == ()
    between, _ = product.run(WGMMA=twice, WAIT="wgmma.wait_group.sync.aligned 1;")
    assert np.array_equal(between, product.c.numpy())


@pytest.mark.parametrize(
    "touch", ["mov.f32 %f3, %f7;", "add.s32 %r12, %r12, 1;", "mov.u32 %r10, %r11;"]
)
def test_registers_of_a_product_in_flight_must_not_be_written(touch: str) -> None:
    with pytest.raises(InFlightError, match="before the wait"):
        Product().run(TOUCH=touch)
    Product().run(WAIT=PIECES["WAIT"] + touch)


@pytest.mark.parametrize("late", ["mov.f32 %f3, %f7;", "mov.u32 %r13, %r12;"])
def test_registers_need_a_fence_before_the_product(late: str) -> None:
    with pytest.raises(InFlightError, match=r"wgmma\.fence"):
        Product().run(FENCE="")
    with pytest.raises(InFlightError, match=r"wgmma\.fence"):
        Product().run(FENCE=PIECES["FENCE"] + late)
    Product().run(FENCE=late + PIECES["FENCE"])


def test_shared_memory_is_read_until_the_wait_and_the_next_barrier() -> None:
    overwrite = "st.shared.b32 [%r3], %r4;"
    product = Product()
    cases = {
        (PIECES["WAIT"], "bar.sync 0;"): False,
        (PIECES["WAIT"], ""): True,  # other warps may not have waited
        ("", "bar.sync 0;"): True,  # the barrier says nothing about wgmma
    }
    for (wait, barrier), racy in cases.items():
        _, races = product.run("reverse", WAIT=wait, OVERWRITE=barrier + overwrite)
        kinds = {(race.first.kind, race.second.kind) for race in races}
        assert (("read", "write") in kinds) == racy, (wait, barrier)


def test_unwritten_rows_of_b_spoil_their_columns_alone() -> None:
    """Row 9 is not written; only results of column 9 are, which are then stored or not."""
    fill = """shr.u32 %r20, %r0, 3; setp.ne.u32 %p0, %r20, 9;
    @%p0 st.shared.v4.b32 [%r3], {%r4, %r5, %r6, %r7};"""
    with pytest.raises(UninitializedError, match="store"):
        Product().run(FILL=fill)
    clean = "mov.f32 %f5, 0f00000000;"  # register 5 of threads with lane % 4 = 0 is column 9
    drop = f"and.b32 %r21, %r0, 3; setp.eq.u32 %p1, %r21, 0; @%p1 {clean} @%p1 mov.f32 %f7, %f5;"
    product = Product()
    matrix, _ = product.run(FILL=fill, OVERWRITE=drop)
    others = [column for column in range(N) if column != 9]
    assert np.array_equal(matrix[:, others], product.expected[:, others])
    assert not matrix[:, 9].any()


def test_a_whole_warp_is_needed() -> None:
    guard = "setp.lt.u32 %p0, %r0, 16; @%p0 "
    with pytest.raises(DivergenceError, match="wgmma"):
        Product().run(WGMMA=guard + PIECES["WGMMA"])
