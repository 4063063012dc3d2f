"""Nibbles of 32-bit words: golden words, and every value in every place."""

from __future__ import annotations

import torch

from ptxtune.engines.gptq_words import nibbles_along, nibbles_down


def signed(word: int) -> int:
    return word - (1 << 32) if word >= 1 << 31 else word


def test_golden_words() -> None:
    """0x62fc9630 holds 0, 3, 6, 9, 12, 15, 2, 6 from the low nibble on."""
    expected = [0, 3, 6, 9, 12, 15, 2, 6]
    words = torch.tensor([[signed(0x62FC9630)]], dtype=torch.int32)
    assert nibbles_down(words)[:, 0].tolist() == expected
    assert nibbles_along(words)[0].tolist() == expected


def test_every_value_in_every_place() -> None:
    q = (torch.arange(32 * 24).view(32, 24) * 7 + torch.arange(24) * 3) % 16
    down = torch.zeros(4, 24, dtype=torch.int64)
    along = torch.zeros(32, 3, dtype=torch.int64)
    for k in range(32):
        for n in range(24):
            value = int(q[k, n])
            down[k // 8, n] |= value << 4 * (k % 8)
            along[k, n // 8] |= value << 4 * (n % 8)
    to_int32 = torch.tensor([[signed(int(v)) for v in row] for row in down], dtype=torch.int32)
    assert torch.equal(nibbles_down(to_int32), q.to(torch.uint8))
    to_int32 = torch.tensor([[signed(int(v)) for v in row] for row in along], dtype=torch.int32)
    assert torch.equal(nibbles_along(to_int32), q.to(torch.uint8))
