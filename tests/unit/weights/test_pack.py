"""Packing against a slow per-element implementation, written from the docstring of layout.py."""

from __future__ import annotations

import math
import struct
import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxgen.errors import TensorError
from ptxgen.problem import Problem
from ptxgen.weights.layout import packed_layout
from ptxgen.weights.pack import pack, unpack
from ptxgen.weights.quantize import TORCH_DTYPES, QuantizedWeight
from ptxgen.weights.spread import row_factors, spread, wide_rows

WHOLE_K = -1


def problem_of(n: int, k: int, group: int, zero: str = "sym", dtype: str = "fp16") -> Problem:
    return Problem(n, k, k if group == WHOLE_K else group, dtype, zero)  # type: ignore[arg-type]


def random_weight(problem: Problem, seed: int = 0) -> QuantizedWeight:
    generator = torch.Generator().manual_seed(seed)
    groups = (problem.n, problem.num_groups)
    q = torch.randint(0, 16, (problem.n, problem.k), generator=generator, dtype=torch.uint8)
    scales = torch.randn(groups, generator=generator).to(TORCH_DTYPES[problem.dtype])
    zeros = torch.randint(0, 16, groups, generator=generator, dtype=torch.uint8)
    return QuantizedWeight(q, scales, zeros if problem.zero == "int" else None)


def is_wide(sizes: list[float]) -> bool:
    """A product with the fast way's f could be a subnormal number, and f is no help."""
    sizes = [size for size in sizes if size]
    f = fast_factor(max(sizes, default=0.0))
    return f < 1 and min(sizes) * f < 2.0**-14


def fast_factor(largest: float) -> float:
    """f of a row whose largest scale has this size, by floating-point functions alone."""
    _, exponent = math.frexp(largest)  # largest is in [2^(exponent - 1), 2^exponent)
    return 2.0 ** (min(3, -8 - exponent) if largest else 3)


def factor_of(sizes: list[float]) -> float:
    """2^12 * f of a row with scales of these sizes."""
    if not is_wide(sizes):
        return 2.0**12 * fast_factor(max(sizes, default=0.0))
    middle = max(sizes) >= 4096 and min(size for size in sizes if size) >= 2.0**-10
    return 2.0**8 if middle else 2.0**12


def half_bytes(value: torch.Tensor) -> bytes:
    """Two little-endian bytes of one scale."""
    return struct.pack("<h", int(value.view(torch.int16)))


class SlowPacker:
    """The docstring of layout.py, element by element, with plain Python integers."""

    def __init__(self, weight: QuantizedWeight, problem: Problem) -> None:
        self.problem = problem
        self.q = weight.q.tolist()
        self.scales = weight.scales
        self.zeros = weight.zeros.tolist() if weight.zeros is not None else None

    def zero(self, feature: int, group: int) -> int:
        if self.zeros is None or feature >= self.problem.n or group >= self.problem.num_groups:
            return 8
        return int(self.zeros[feature][group])

    def nibble(self, feature: int, k: int) -> int:
        if feature < self.problem.n and k < self.problem.k:
            return int(self.q[feature][k])
        return self.zero(feature, 0 if self.problem.whole_k else k // self.problem.group_size)

    def scale(self, feature: int, group: int) -> bytes:
        if feature >= self.problem.n or group >= self.problem.num_groups:
            return b"\0\0"
        return half_bytes(self.scales[feature, group])

    def sizes(self, feature: int) -> list[float]:
        if feature >= self.problem.n:
            return []
        return self.scales[feature].double().abs().tolist()

    def wide(self, strip: int) -> bool:
        return any(is_wide(self.sizes(feature)) for feature in range(64 * strip, 64 * strip + 64))

    def factor(self, feature: int) -> bytes:
        sign = -1 if self.wide(feature // 64) else 1
        return struct.pack("<e", sign * factor_of(self.sizes(feature)))

    def word(self, feature0: int, k0: int, lane: int) -> int:
        g, t = lane // 4, lane % 4
        return sum(
            self.nibble(feature0 + g + 8 * (i % 2), k0 + 2 * t + 8 * (i // 2 % 2) + i // 4) << 4 * i
            for i in range(8)
        )

    def scale_rows(self, feature0: int, group: int) -> bytes:
        return b"".join(
            self.scale(feature0 + g, group) + self.scale(feature0 + g + 8, group) for g in range(8)
        )

    def zero_rows(self, feature0: int, group: int) -> bytes:
        return bytes(
            self.zero(feature0 + g, group) | self.zero(feature0 + g + 8, group) << 4
            for g in range(8)
        )

    def block(self, strip: int, k_block: int) -> bytes:
        words = [
            self.word(64 * strip + 16 * row_block, 128 * k_block + 64 * k64 + 16 * step, lane)
            for row_block in range(4)
            for k64 in range(2)
            for lane in range(32)
            for step in range(4)
        ]
        data = struct.pack(f"<{len(words)}I", *words)
        if self.problem.whole_k:
            return data
        per_block = 128 // self.problem.group_size
        order = [
            (64 * strip + 16 * row_block, per_block * k_block + group)
            for row_block in range(4)
            for group in range(per_block)
        ]
        data += b"".join(self.scale_rows(*where) for where in order)
        if self.problem.zero == "int":
            data += b"".join(self.zero_rows(*where) for where in order)
        return data

    def pack(self) -> bytes:
        strips, k_blocks = -(-self.problem.n // 64), -(-self.problem.k // 128)
        data = b"".join(self.block(s, b) for s in range(strips) for b in range(k_blocks))
        rows = [64 * s + 16 * r for s in range(strips) for r in range(4)]
        if self.problem.whole_k:
            data += b"".join(self.scale_rows(row, 0) for row in rows)
            if self.problem.zero == "int":
                data += b"".join(self.zero_rows(row, 0) for row in rows)
        elif self.problem.dtype == "fp16":
            pairs = [(row + g, row + g + 8) for row in rows for g in range(8)]
            data += b"".join(self.factor(low) + self.factor(high) for low, high in pairs)
            data += struct.pack("<4I", 3, sum(map(self.wide, range(strips))), 0, 0)
        return data


SHAPES = [(64, 128), (48, 96), (232, 64), (48, 2752), (1440, 64), (8, 32), (72, 7392), (128, 384)]
CASES = [
    (n, k, group)
    for n, k in SHAPES
    for group in (32, 64, 128, WHOLE_K)
    if group == WHOLE_K or k % group == 0
]


@pytest.mark.parametrize("zero", ["sym", "int"])
@pytest.mark.parametrize(("n", "k", "group"), CASES)
def test_every_byte_is_as_the_docstring_says(n: int, k: int, group: int, zero: str) -> None:
    problem = problem_of(n, k, group, zero)
    weight = random_weight(problem, seed=n + k)
    packed = pack(weight, problem)
    expected = SlowPacker(weight, problem).pack()
    assert len(expected) == packed_layout(problem).total_bytes
    assert bytes(packed.tolist()) == expected
    assert_same(unpack(packed, problem), weight)


@pytest.mark.parametrize("zero", ["sym", "int"])
@pytest.mark.parametrize("group", [32, 128, WHOLE_K])
def test_every_byte_of_bf16_too(group: int, zero: str) -> None:
    """No row factors there, and none where the group is the whole K."""
    problem = problem_of(72, 384, group, zero, "bf16")
    weight = random_weight(problem)
    assert bytes(pack(weight, problem).tolist()) == SlowPacker(weight, problem).pack()


def wide_weight(problem: Problem) -> QuantizedWeight:
    """Scales of all signs and sizes: each row up to a largest size of its own, from 0 on."""
    weight = random_weight(problem)
    generator = torch.Generator().manual_seed(5)
    shape = (problem.n, problem.num_groups)
    limits = torch.linspace(0, 0x7BFF, problem.n).view(-1, 1)
    bits = (limits * torch.rand(shape, generator=generator)).round().to(torch.int16)
    bits[:, 1:2] = limits.to(torch.int16)
    signs = torch.randint(0, 2, shape, generator=generator, dtype=torch.bool)
    bits = torch.where(signs, bits | -0x8000, bits)
    return QuantizedWeight(weight.q, bits.view(torch.float16), weight.zeros)


@pytest.mark.parametrize("zero", ["sym", "int"])
def test_row_factors_of_every_size_lie_behind_the_blocks(zero: str) -> None:
    problem = problem_of(200, 192, 64, zero)
    weight, layout = wide_weight(problem), packed_layout(problem)
    packed = pack(weight, problem)
    assert bytes(packed.tolist()) == SlowPacker(weight, problem).pack()
    table = packed[layout.blocks_bytes : -16].view(torch.float16)
    assert table.shape == (256,)
    factors = row_factors(weight.scales)
    found = factors.abs().log2()
    assert {8, 12, 15} <= set(found.tolist())  # of wide rows, and the largest
    assert found[~wide_rows(weight.scales)].min() < 0
    for n in range(256):  # [strip][row block][g][2], as one number
        where = n // 64 * 64 + n % 64 // 16 * 16 + n % 8 * 2 + n % 16 // 8
        assert table[where].abs() == (factors[n].abs() if n < problem.n else 2.0**15)
        assert (table[where] < 0) == bool(wide_rows(weight.scales)[n // 64 * 64 :][:64].any())


@pytest.mark.parametrize("zero", ["sym", "int"])
def test_wide_rows_are_counted_and_their_strips_marked(zero: str) -> None:
    """One row too far apart by a hair, in the second of four strips."""
    problem = problem_of(200, 192, 64, zero)
    weight = random_weight(problem)
    weight.scales[:] = 0.02
    weight.scales[70] = torch.tensor([2.0**-3, -(2.0**-8), 0.0])
    found = spread(weight)
    assert (found.wide_rows, found.rows, found.wide_strips, found.strips) == (0, 200, 0, 4)
    weight.scales[70, 1] = torch.nextafter(weight.scales[70, 1], torch.tensor(0.0).half())
    found = spread(weight)
    assert (found.wide_rows, found.rows, found.wide_strips, found.strips) == (1, 200, 1, 4)
    packed = pack(weight, problem)
    assert bytes(packed.tolist()) == SlowPacker(weight, problem).pack()
    table = packed[packed_layout(problem).blocks_bytes : -16].view(torch.float16)
    assert (table < 0).tolist() == [64 <= n < 128 for n in range(256)]
    assert packed[-16:].view(torch.int32).tolist() == [3, 1, 0, 0]


def rounded(value: int, least: int) -> int:
    """To 11 bits, to nearest even, and multiples of 2^least; all numbers are in units of 2^-60."""
    step = 1 << max(value.bit_length() - 11, least + 60, 0)
    whole, rest = divmod(value, step)
    return step * (whole + (2 * rest > step or (2 * rest == step and whole % 2 == 1)))


@pytest.mark.parametrize("field", range(31))
def test_narrow_rows_round_every_weight_as_promised_or_finer(field: int) -> None:
    """Every fp16 scale, every q - zero, the factor of every row that is narrow: by whole numbers.

    The rounding of (q - zero) * scale * f, over f, is that of (q - zero) * scale, or has a step of
    fewer than 2^-24 and is nearer to the product.
    """
    mantissas = range(1024)
    scales = [(m << 36 if field == 0 else (1024 + m) << 35 + field) for m in mantissas]  # x 2^60
    # Of the largest scale's exponent field all that a narrow row may have with this one.
    for top in range(field, 31):
        stored = torch.tensor([[field << 10 | 512, top << 10 | 512]], dtype=torch.int16)
        scale_pair = stored.view(torch.float16)
        if bool(wide_rows(scale_pair)[0]):
            continue
        f = round(math.log2(float(row_factors(scale_pair)[0]))) - 12
        for scale in scales[:: 1 if top - field < 2 else 7]:
            for steps in range(1, 16):
                product = steps * scale
                promised = rounded(product, -24)
                got = rounded(product, -24 - f)  # a step of 2^-24 there is one of 2^-24 / f here
                assert got == promised or (
                    f > 0 and abs(got - product) <= abs(promised - product)
                ), (scale, steps, f)


def test_unpack_does_not_look_at_row_factors() -> None:
    problem = problem_of(72, 256, 64, "int")
    weight = random_weight(problem)
    packed = pack(weight, problem)
    packed[packed_layout(problem).blocks_bytes :] = 0xEE
    assert_same(unpack(packed, problem), weight)


FIELDS = range(31)
MANTISSAS = (0, 1, 0x155, 0x200, 0x3FE, 0x3FF)


@pytest.mark.parametrize("sign", [0, 0x8000])
def test_a_row_factor_brings_the_largest_scale_into_its_binade(sign: int) -> None:
    """Of every finite exponent field, zero and subnormal scales among them."""
    sizes = [field << 10 | mantissa for field in FIELDS for mantissa in MANTISSAS]
    bits = torch.tensor([sign | size for size in sizes]).to(torch.int16)
    largest = bits.view(torch.float16)
    scales = torch.zeros(len(sizes), 5, dtype=torch.float16)
    scales[:, 3], scales[:, 1] = largest, -largest / 2
    for scale, stored in zip(largest.tolist(), row_factors(scales).tolist(), strict=True):
        mantissa, exponent = math.frexp(stored)
        factor = stored / 2**12
        assert mantissa == 0.5
        assert 2.0**-12 <= stored <= 2.0**15
        assert stored == factor_of([abs(scale), abs(scale) / 2])
        if factor == 2.0**3:
            assert abs(scale) * factor < 2.0**-8
        else:
            assert 2.0**-9 <= abs(scale) * factor < 2.0**-8
    assert exponent == 1 - 12


def assert_same(found: QuantizedWeight, expected: QuantizedWeight) -> None:
    assert found.q.dtype == torch.uint8
    assert torch.equal(found.q, expected.q)
    assert found.scales.dtype == expected.scales.dtype
    # bits, so that -0.0 and 0.0 differ
    assert torch.equal(found.scales.view(torch.int16), expected.scales.view(torch.int16))
    assert (found.zeros is None) == (expected.zeros is None)
    if found.zeros is not None and expected.zeros is not None:
        assert torch.equal(found.zeros, expected.zeros)


@settings(max_examples=60, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 30), st.integers(1, 24)),
    group=st.sampled_from([32, 64, 128, WHOLE_K]),
    zero=st.sampled_from(["sym", "int"]),
    dtype=st.sampled_from(["fp16", "bf16"]),
    seed=st.integers(0, 2**31),
)
def test_round_trip(shape: tuple[int, int], group: int, zero: str, dtype: str, seed: int) -> None:
    n, k = 8 * shape[0], 32 * shape[1]
    if group != WHOLE_K:
        k = -(-k // group) * group
    problem = problem_of(n, k, group, zero, dtype)
    weight = random_weight(problem, seed)
    packed = pack(weight, problem)
    assert packed.shape == (packed_layout(problem).total_bytes,)
    assert_same(unpack(packed, problem), weight)


def test_fragment_registers_of_a_word() -> None:
    """(word >> 4 j) & 0x000f000f is A register j of mma.m16n8k16 as the PTX manual numbers it."""
    problem = problem_of(64, 128, 128)
    q = torch.zeros(64, 128, dtype=torch.uint8)
    q[:16, :16] = torch.arange(256).view(16, 16) % 16
    weight = QuantizedWeight(q, torch.ones(64, 1, dtype=torch.float16))
    words = pack(weight, problem)[:4096].view(torch.int32).view(4, 2, 32, 4)
    for lane in range(32):
        word = int(words[0, 0, lane, 0]) & 0xFFFFFFFF
        for register in range(4):
            row = lane // 4 + 8 * (register % 2)
            col = lane % 4 * 2 + 8 * (register // 2)
            pair = word >> 4 * register & 0x000F000F
            assert pair & 0xF == int(q[row, col])
            assert pair >> 16 == int(q[row, col + 1])


@pytest.mark.parametrize("group", [64, WHOLE_K])
def test_padding_adds_nothing(group: int) -> None:
    """Read as a larger problem, the packed bytes are the weight and exact zeros around it."""
    problem = problem_of(40, 192, group, "int")
    weight = random_weight(problem)
    packed = pack(weight, problem)
    wide = Problem(64, 256, 256 if group == WHOLE_K else group, "fp16", "int")
    whole = unpack(packed, wide)
    assert whole.zeros is not None
    groups = wide.num_groups
    steps = whole.q.view(64, groups, -1).float() - whole.zeros.unsqueeze(-1).float()
    values = (steps * whole.scales.unsqueeze(-1).float()).view(64, 256)
    assert torch.count_nonzero(values[40:]) == 0
    assert torch.count_nonzero(values[:, 192:]) == 0


def test_strided_views_pack_as_their_values() -> None:
    problem = problem_of(64, 256, 64, "int")
    weight = random_weight(problem)
    assert weight.zeros is not None
    strided = QuantizedWeight(
        weight.q.t().contiguous().t(),
        weight.scales.t().contiguous().t(),
        weight.zeros.t().contiguous().t(),
    )
    assert torch.equal(pack(strided, problem), pack(weight, problem))


def test_a_large_weight_packs_in_seconds() -> None:
    problem = problem_of(28672, 4096, 128, "int")
    q = torch.full((28672, 4096), 7, dtype=torch.uint8)
    groups = (28672, 32)
    weight = QuantizedWeight(
        q, torch.ones(groups, dtype=torch.float16), torch.zeros(groups, dtype=torch.uint8)
    )
    start = time.perf_counter()
    pack(weight, problem)
    assert time.perf_counter() - start < 20  # some 1 s alone; others may share the cores


@pytest.mark.parametrize(
    "packed",
    [
        torch.zeros(10, dtype=torch.uint8),
        torch.zeros(4224, dtype=torch.uint8),
        torch.zeros(4352, dtype=torch.uint8),  # layout version 2
        torch.zeros(4368, dtype=torch.int8),
        torch.zeros(8736, dtype=torch.uint8)[::2],
        torch.zeros(1, 4368, dtype=torch.uint8),
    ],
)
def test_unpack_refuses_another_tensor(packed: torch.Tensor) -> None:
    with pytest.raises(TensorError, match=r"\(4368,\) bytes"):
        unpack(packed, problem_of(64, 128, 128))
