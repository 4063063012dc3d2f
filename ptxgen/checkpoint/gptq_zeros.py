"""Zero points of GPTQ files. Version 1 stores them less one, and there are two readings of that.

Most tools subtract 0x11111111 from whole words. A zero point of 0 then borrows from its neighbour,
and only adding 0x11111111 to the whole word gives all of them back. A tool that subtracted from
each nibble alone writes other words: 15 then stands for 0 with the word reading, 16 with the other.
Old AutoGPTQ also wrote words of 0xFFFFFFFF where a zero point of 0 destroyed its seven neighbours.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ptxgen.checkpoint.nibbles import unpack_columns
from ptxgen.errors import CheckpointError, UnsupportedFormatError

ZeroReading = Literal["auto", "word", "nibble"]
SIXTEEN = 16


def stored_zeros(
    words: Tensor, n: int, version: int, reading: ZeroReading, name: str
) -> tuple[Tensor, tuple[str, ...]]:
    """Zero points of every group and output feature.

    Args:
        words: [groups, ceil(N / nibbles in a word)] integers.
        n: output features.
        version: 1 or 2.
        reading: of version 1: "word", "nibble", or "auto", which reads words and refuses those
            that may be destroyed.
        name: the layer, for messages.

    Returns:
        uint8 [groups, N], 0..15, and 16 with reading "nibble"; and notes.

    Raises:
        CheckpointError: reading "auto" met a word that may be destroyed.
    """
    if version != 1:
        return unpack_columns(words, n), ()
    stored = unpack_columns(words, n)
    if reading == "nibble":
        return stored + 1, ("zero points read nibble by nibble",)
    if reading == "auto" and bool((words == -1).any()):
        count = int((words == -1).sum())
        raise CheckpointError(
            f"layer {name}: {count} words of zero points have all bits set. That is how old "
            f"AutoGPTQ destroyed the neighbours of a zero point 0, but it may also be right. Make "
            f"the checkpoint again, or say how to read it: gptq_zeros='word' or 'nibble'."
        )
    borrowed = int((stored == 15).sum())
    notes: tuple[str, ...] = ()
    if borrowed:
        notes = (
            f"{borrowed} stored zero points are 15 and were read as 0 with their word's borrow; "
            f"gptq_zeros='nibble' reads 16 instead",
        )
    return unpack_columns(words + _ones(words.dtype), n), notes


def shift_sixteens(q: Tensor, zeros: Tensor, group_size: int, name: str) -> tuple[Tensor, Tensor]:
    """Groups of zero point 16 with every value and the zero point one lower: the same weights.

    Args:
        q: uint8 [N, K].
        zeros: uint8 [N, groups], 0..16.
        group_size: inputs of a group.
        name: the layer, for messages.

    Raises:
        UnsupportedFormatError: such a group holds a 0, so that it needs 17 values.
    """
    sixteen = zeros == SIXTEEN
    if not bool(sixteen.any()):
        return q, zeros
    spread = sixteen.repeat_interleave(min(group_size, q.shape[1]), dim=1)[:, : q.shape[1]]
    stuck = spread & (q == 0)
    if bool(stuck.any()):
        raise UnsupportedFormatError(
            f"layer {name}: groups with a zero point of 16 hold {int(stuck.sum())} values of 0, "
            f"and no zero point of 0..15 stands for that exactly. Read the zero points by word "
            f"(gptq_zeros='word') if the tool wrote them so, or requantize the layer."
        )
    return q - spread.to(torch.uint8), zeros - sixteen.to(torch.uint8)


def _ones(dtype: torch.dtype) -> int:
    """0x1...1 of a word."""
    return int("1" * (2 * dtype.itemsize), 16)
