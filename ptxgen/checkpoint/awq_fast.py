"""AutoAWQ gemv_fast, which is llm-awq's second layout: 16-bit words over four interleaved rows."""

from __future__ import annotations

import torch
from torch import Tensor

from ptxgen.checkpoint.layer import LayerWeights
from ptxgen.checkpoint.layouts import Shape
from ptxgen.checkpoint.nibbles import nibbles_of
from ptxgen.checkpoint.stored import StoredLayer
from ptxgen.errors import UnsupportedFormatError
from ptxgen.problem import SYMMETRIC_ZERO

NOTES = (
    "zero points are stored multiplied by their scale and rounded; the integers they came from are "
    "recovered, and checked to give the stored value",
)


def load(stored: StoredLayer, shape: Shape, device: str) -> LayerWeights:
    """The values of a gemv_fast layer.

    Raises:
        UnsupportedFormatError: a stored offset is not -(scale * z) of an integer z.
    """
    groups = shape.k // shape.group_size
    scales = stored.without_padding(stored.read("scales", device).t(), groups)
    zeros = "scaled_zeros" if "scaled_zeros" in stored else "qzeros"
    offsets = stored.read(zeros, device)[:groups].t().contiguous()
    return LayerWeights(
        q=unpack_fast(stored.read("qweight", device)),
        scales=scales,
        zeros=integer_zeros(scales, offsets, stored.name),
        bias=stored.read_bias(device, shape.n),
    )


def unpack_fast(words: Tensor) -> Tensor:
    """int16 [N / 4, K] to uint8 [N, K].

    Nibble i of word [r, 64 c + 16 j + 8 h + u] (j < 4, h < 2, u < 8) is row 4 r + j, input
    64 c + 32 h + 8 i + u.
    """
    rows, k = words.shape
    # [r, c, j, h, u, i] -> [r, j, c, h, i, u]
    values = nibbles_of(words).view(rows, k // 64, 4, 2, 8, 4)
    return values.permute(0, 2, 1, 3, 5, 4).reshape(4 * rows, k)


def integer_zeros(scales: Tensor, offsets: Tensor, name: str) -> Tensor:
    """uint8 zero points z with offsets == -(scales * z) as the format rounds it.

    Args:
        scales: [N, groups].
        offsets: [N, groups], the stored products.
        name: the layer, for messages.
    """
    ratio = -offsets.float() / scales.float()
    nearest = torch.nan_to_num(ratio, nan=SYMMETRIC_ZERO).round().clamp(0, 15)
    again = -(scales.float() * nearest).to(offsets.dtype)
    different = again != offsets
    if bool(different.any()):
        count = int(different.sum())
        raise UnsupportedFormatError(
            f"layer {name}: {count} of {different.numel()} stored offsets are not -(scale * z) of "
            f"an integer zero point z in 0..15; the layer was not written by AutoAWQ's quantizer. "
            f"Requantize it."
        )
    return nearest.to(torch.uint8)
