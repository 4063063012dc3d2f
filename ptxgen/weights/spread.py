"""Row factors of fp16 weights, and which strips have too wide a spread of scales for them.

A kernel that multiplies scales by a row factor f (ptxgen.weights.layout) has (q - zero) * scale *
f, rounded once to fp16, where (q - zero) * scale rounded once is promised. But for f both are the
same, or the first is the finer one, where the row is *narrow*:

- f >= 1. The numbers of fp16 divided by f include all those of the same size that are not, and a
  subnormal product has more bits. Nothing is too large: |q - zero| * scale * f < 15 * 2^-8.
- Or |scale * f| >= 2^-14 for every scale but 0. Then scale * f is a normal number and exact, and
  every product but 0 is one, which is rounded to 11 bits whatever f is; (q - zero) * scale rounded
  once has as many, or fewer where it is subnormal.

As f brings the largest scale to [2^-9, 2^-8), the second holds where the exponent of the largest
scale is at most SPREAD above that of the smallest one but 0. A strip with another row is *wide*:
all its factors are negative, by which kernels know to take the way that needs no small scales.
There f is 1 in that row, so that weights are rounded as promised. It is 2^-4 where the scales lie
in [2^-10, 65504] and reach 4096: all products are normal there too, and none is too large, as 15 *
4368 would be. Narrow rows of such a strip keep their factors, with which that way rounds to the
same bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ptxgen.weights.layout import BLOCK_ROWS
from ptxgen.weights.quantize import QuantizedWeight

SPREAD = 5
"""Powers of two between a narrow row's largest scale and its smallest but 0, where f is below 1."""

_ONE, _SIXTEENTH = 27, 23
"""Exponent fields of 2^12 * f for f = 1 and f = 2^-4."""
_FROM_4096, _FROM_2_TO_MINUS_10 = 27, 5
"""Exponent fields of scales."""
_WIDE = -0x8000


@dataclass(frozen=True, slots=True)
class Spread:
    """How many rows and strips of a weight are wide.

    Attributes:
        wide_rows: output features whose scales spread too far for the fast dequantization.
        rows: all output features.
        wide_strips: strips of 64 features with such a row: they take 13 instructions for 8 weights.
        strips: all strips.
    """

    wide_rows: int
    rows: int
    wide_strips: int
    strips: int


def spread(weight: QuantizedWeight) -> Spread:
    """Counts the wide rows and strips of a weight; there are none in bf16 or with a single group.

    Args:
        weight: scales [N, groups] on any device.
    """
    scales = weight.scales
    rows, strips = scales.shape[0], -(-scales.shape[0] // BLOCK_ROWS)
    if scales.dtype != torch.float16 or scales.shape[1] == 1:
        return Spread(0, rows, 0, strips)
    wide = wide_rows(scales)
    return Spread(int(wide.sum()), rows, int(strips_of(wide).any(dim=1).sum()), strips)


def wide_rows(scales: Tensor) -> Tensor:
    """Which rows are wide.

    Args:
        scales: [N, groups], fp16.

    Returns:
        [N], bool.
    """
    largest, smallest = _exponents(scales)
    return (33 - largest < _ONE) & (largest - smallest > SPREAD)


def row_factors(scales: Tensor) -> Tensor:
    """What multiplies the scales of each row: 2^12 * f, negative in wide strips.

    A float's exponent field is all that counts: field(2^12 f) = 33 - field(largest scale), and at
    most 30, that of f = 2^3.

    Args:
        scales: [N, groups], fp16; N may be any number, the last strip is filled up with narrow
            rows.

    Returns:
        [N], fp16: powers of two from 2^-12 to 2^15, times -1 in wide strips.
    """
    largest, smallest = _exponents(scales)
    wide = wide_rows(scales)
    middle = (largest >= _FROM_4096) & (smallest >= _FROM_2_TO_MINUS_10)
    fields = (33 - largest).clamp(max=30)
    fields = torch.where(wide, torch.where(middle, _SIXTEENTH, _ONE), fields)
    marks = strips_of(wide).any(dim=1).repeat_interleave(BLOCK_ROWS)[: scales.shape[0]]
    bits = (fields << 10) + torch.where(marks, _WIDE, 0)
    return bits.to(torch.int16).view(torch.float16)


def strips_of(rows: Tensor) -> Tensor:
    """A bool of each row as [strips, 64], False where there is no row."""
    missing = -rows.shape[0] % BLOCK_ROWS
    return torch.nn.functional.pad(rows, (0, missing)).view(-1, BLOCK_ROWS)


def _exponents(scales: Tensor) -> tuple[Tensor, Tensor]:
    """Exponent fields of each row's largest scale and of its smallest one but 0, [N] int32 each.

    A row of zeros has 0 and 31.
    """
    sizes = scales.view(torch.int16) & 0x7FFF
    smallest = torch.where(sizes == 0, 0x7FFF, sizes).amin(dim=1)
    return (sizes.amax(dim=1) >> 10).int(), (smallest >> 10).int()
