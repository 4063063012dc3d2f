"""4-bit values to 32-bit words, lowest nibble first, along columns or rows."""

from __future__ import annotations

import torch
from torch import Tensor


def pack_columns(values: Tensor) -> Tensor:
    """uint8 [R, C] of 0..15 to int32 [R, C / 8]: nibble i of word c is values[:, 8 c + i]."""
    pairs = values.contiguous().view(values.shape[0], -1, 2)
    packed = pairs[..., 0] | (pairs[..., 1] << 4)
    return packed.contiguous().view(torch.int32)


def pack_rows(values: Tensor) -> Tensor:
    """uint8 [R, C] of 0..15 to int32 [R / 8, C]: nibble i of word r is values[8 r + i]."""
    return pack_columns(values.t()).t().contiguous()
