"""Nibbles of the 32-bit words that engines hold their weights in, after their own loaders."""

from __future__ import annotations

import torch
from torch import Tensor

NIBBLES = 8
SHIFTS = tuple(range(0, 32, 4))


def nibbles_down(words: Tensor) -> Tensor:
    """Words [R, C], eight values of a column in each, low nibble first: uint8 [8 R, C]."""
    return _nibbles(words).permute(0, 2, 1).reshape(words.shape[0] * NIBBLES, words.shape[1])


def nibbles_along(words: Tensor) -> Tensor:
    """Words [R, C], eight values of a row in each, low nibble first: uint8 [R, 8 C]."""
    return _nibbles(words).reshape(words.shape[0], words.shape[1] * NIBBLES)


def _nibbles(words: Tensor) -> Tensor:
    """[R, C] of int32 to uint8 [R, C, 8]. A shift of int32 keeps its sign: masked after it."""
    found = torch.empty((*words.shape, NIBBLES), dtype=torch.uint8, device=words.device)
    for index, shift in enumerate(SHIFTS):
        found[..., index] = (words >> shift) & 15
    return found
