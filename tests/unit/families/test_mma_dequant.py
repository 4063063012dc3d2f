"""The emitted dequantization is bit-exact, and puts every weight where mma expects it."""

from __future__ import annotations

import itertools

import pytest
import torch
from dequant_text import EmittedDequantize, emitted_subnormals

from ptxgen.problem import Problem
from ptxgen.weights.pack import pack
from ptxgen.weights.quantize import QuantizedWeight

KINDS = list(itertools.product(("fp16", "bf16"), ("sym", "int")))


@pytest.mark.parametrize(("dtype", "zero"), KINDS)
def test_every_nibble_and_zero_is_exact(dtype: str, zero: str) -> None:
    emitted = EmittedDequantize(dtype, zero)
    zero_points = range(16) if zero == "int" else (8,)
    for q, z in itertools.product(range(16), zero_points):
        registers = emitted(q * 0x11111111, z * 0x11)
        assert registers == [(q - z, q - z)] * 4, (q, z)


def test_every_nibble_is_a_subnormal_of_its_own_power_of_two() -> None:
    """2^-24 of features g, 2^-20 of features g + 8, each nibble where the magic numbers put it."""
    magic = EmittedDequantize("fp16", "int")
    for place, q in itertools.product(range(8), range(16)):
        word = q << (4 * place)
        raw = emitted_subnormals(word)
        scaled = [
            tuple(v * 2.0 ** (20 if i % 2 else 24) for v in pair) for i, pair in enumerate(raw)
        ]
        assert scaled == magic(word, 0), (place, q)
        assert sum(map(sum, scaled)) == q


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_the_two_zero_points_of_a_byte_serve_their_own_rows(dtype: str) -> None:
    emitted = EmittedDequantize(dtype, "int")
    for z_0, z_8 in itertools.product(range(16), repeat=2):
        registers = emitted(0, z_0 | z_8 << 4)
        assert registers == [(-z_0, -z_0), (-z_8, -z_8)] * 2


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_a_packed_block_gives_the_fragments_of_the_manual(dtype: str) -> None:
    """PTX ISA, "Matrix Fragments for mma.m16n8k16": a0 a1 | a2 a3 | a4 a5 | a6 a7 of lane 4 g + t
    are (g, 2t..), (g + 8, 2t..), (g, 2t + 8..), (g + 8, 2t + 8..)."""
    problem = Problem(64, 128, 128, dtype, "sym")  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(3)
    q = torch.randint(0, 16, (64, 128), dtype=torch.uint8, generator=generator)
    scales = torch.ones(64, 1, dtype=torch.float16 if dtype == "fp16" else torch.bfloat16)
    words = pack(QuantizedWeight(q, scales, None), problem)[:4096].view(torch.int32)
    words = words.view(4, 2, 32, 4)  # row block, k64, lane, k16 step
    emitted = EmittedDequantize(dtype, "sym")
    for block, k64, lane, step in itertools.product(range(4), range(2), range(32), range(4)):
        word = int(words[block, k64, lane, step]) & 0xFFFFFFFF
        group, thread = lane // 4, lane % 4
        row, column = 16 * block + group, 64 * k64 + 16 * step + 2 * thread
        expected = []
        for row_offset, column_offset in ((0, 0), (8, 0), (0, 8), (8, 8)):
            pair = q[row + row_offset, column + column_offset : column + column_offset + 2]
            expected.append((float(pair[0]) - 8, float(pair[1]) - 8))
        assert emitted(word, 0x88) == expected, (block, k64, lane, step)
