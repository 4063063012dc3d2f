"""4-bit values out of integer words, one value a byte. Nibble i of a word is (word >> 4 i) & 15."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""Nibble i of an AWQ word holds feature AWQ_ORDER[i]; the word of 0..7 is 0x75316420."""


def nibbles_of(words: Tensor) -> Tensor:
    """uint8 [..., n] of the n nibbles of each integer word, lowest first, sign bit or not.

    Args:
        words: any shape, int8 to int64 or uint8.
    """
    pairs = words.contiguous().unsqueeze(-1).view(torch.uint8)  # little-endian, as stored
    return torch.stack((pairs & 15, pairs >> 4), dim=-1).flatten(-2)


def unpack_columns(words: Tensor, columns: int | None = None) -> Tensor:
    """[R, C] words to uint8 [R, nibbles * C]: value 8 c + i of a row is nibble i of its word c.

    Args:
        words: integer words.
        columns: how many of the values are meant; those after it are padding and dropped.
    """
    values = nibbles_of(words).flatten(-2)
    return values if columns is None else values[:, :columns].contiguous()


def unpack_rows(words: Tensor, rows: int | None = None) -> Tensor:
    """[R, C] words to uint8 [nibbles * R, C]: value 8 r + i of a column is nibble i of word r."""
    return unpack_columns(words.t(), rows).t()


def unpack_awq(words: Tensor) -> Tensor:
    """[R, C] int32 in AWQ order to uint8 [R, 8 C] in feature order."""
    return reordered(nibbles_of(words), AWQ_ORDER).flatten(-2)


def reordered(values: Tensor, order: Sequence[int]) -> Tensor:
    """[..., n] so that output order[i] is input i."""
    inverse = sorted(range(len(order)), key=order.__getitem__)
    return values[..., inverse]
