"""Packing against a slow per-element implementation, written from the docstring of layout.py."""

from __future__ import annotations

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
        if self.problem.whole_k:
            rows = [64 * s + 16 * r for s in range(strips) for r in range(4)]
            data += b"".join(self.scale_rows(row, 0) for row in rows)
            if self.problem.zero == "int":
                data += b"".join(self.zero_rows(row, 0) for row in rows)
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
        torch.zeros(4224, dtype=torch.int8),
        torch.zeros(8448, dtype=torch.uint8)[::2],
        torch.zeros(1, 4224, dtype=torch.uint8),
    ],
)
def test_unpack_refuses_another_tensor(packed: torch.Tensor) -> None:
    with pytest.raises(TensorError, match="4224"):
        unpack(packed, problem_of(64, 128, 128))
