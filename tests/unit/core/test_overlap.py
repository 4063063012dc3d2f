"""Outputs that overlap an input are told from those that do not, byte by byte."""

from __future__ import annotations

import itertools
import random

import pytest
import torch

from ptxgen.errors import TensorError
from ptxgen.overlap import check_apart, shares_memory


def bytes_of(tensor: torch.Tensor) -> set[int]:
    size, found = tensor.element_size(), set()
    for index in itertools.product(*map(range, tensor.shape)):
        at = tensor.data_ptr() + size * sum(
            i * s for i, s in zip(index, tensor.stride(), strict=True)
        )
        found |= set(range(at, at + size))
    return found


def test_every_stride_and_offset_against_the_bytes_themselves() -> None:
    rng = random.Random(0)  # noqa: S311
    memory = torch.zeros(160, dtype=torch.float16)
    raw = memory.view(torch.uint8)
    seen = {True: 0, False: 0}
    for _ in range(3000):
        shape = [rng.randint(1, 4) for _ in range(rng.randint(1, 3))]
        strides = [rng.choice([0, 1, 1, 2, 3, 8, 9, 20]) for _ in shape]
        reach = sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        x = memory.as_strided(shape, strides, rng.randint(0, 160 - 1 - reach))
        start = rng.randint(0, 300)
        out = raw[start : start + rng.randint(1, 20)]
        expected = bool(bytes_of(x) & bytes_of(out))
        assert shares_memory(x, out) == expected, (shape, strides, start)
        seen[expected] += 1
    assert min(seen.values()) > 300


def test_a_layer_that_writes_over_its_input_is_refused() -> None:
    x = torch.zeros(4, 64, dtype=torch.float16)
    packed = torch.zeros(4096, dtype=torch.uint8)
    for out, name in (
        (x, "x"),
        (x.view(-1)[8:72].view(1, 64), "x"),
        (packed[-128:].view(torch.float16).view(1, 64), "packed"),
    ):
        with pytest.raises(TensorError, match=f"out overlaps {name} in memory"):
            check_apart(out, {"x": x, "packed": packed, "bias": None})
    bias = torch.zeros(64, dtype=torch.float16)
    with pytest.raises(TensorError, match="out overlaps bias"):
        check_apart(bias.view(1, 64), {"x": x, "packed": packed, "bias": bias})


def test_what_lies_beside_or_between_the_rows_of_x_is_not() -> None:
    memory = torch.zeros(8, 128, dtype=torch.float16)
    x = memory[1:7, :64]
    for out in (memory[0], memory[7:], memory[3, 64:], memory[6, 64:]):
        check_apart(out, {"x": x})
    with pytest.raises(TensorError, match="out overlaps x"):
        check_apart(memory[3, 56:120], {"x": x})
    check_apart(memory[:0], {"x": x})
