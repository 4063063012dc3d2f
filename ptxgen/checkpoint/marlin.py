"""GPTQ checkpoints in the Marlin format: symmetric, weights in the tile order of its kernel."""

from __future__ import annotations

from torch import Tensor

from ptxgen.checkpoint.config import QuantizationConfig
from ptxgen.checkpoint.layer import LayerWeights, LinearLayer
from ptxgen.checkpoint.nibbles import nibbles_of
from ptxgen.checkpoint.stored import (
    WHOLE_K,
    StoredLayer,
    activation_dtype,
    check_bits,
    group_of,
)
from ptxgen.errors import CheckpointError

MARKER = "B"
SUFFIXES = ("B", "s", "bias")
SLAB = 64
GROUPED = tuple(i + 8 * j for i in range(8) for j in range(8))
CHANNEL = tuple(2 * i + j for i in range(4) for j in (0, 1, 8, 9, 16, 17, 24, 25))
"""Stored scale p of a run of 64 (of 32 where there is one group) is scale ORDER[p] of the run."""


def is_marlin(config: QuantizationConfig) -> bool:
    """True where a GPTQ config says that its weights are in the Marlin format."""
    named = config.text("checkpoint_format", "format") == "marlin" or config.method == "marlin"
    return named or config.first("is_marlin_format") is True


def describe(stored: StoredLayer, config: QuantizationConfig) -> LinearLayer:
    """One layer of a checkpoint in the Marlin format.

    Raises:
        CheckpointError: config and tensors contradict each other.
        UnsupportedFormatError: another number of bits.
    """
    check_bits(config.first("bits"), stored.name)
    group = group_of(config.first("group_size"), config.source)
    tiles, double_n = stored.need("B", 2).shape
    groups, n = stored.need("s", 2).shape
    k = 16 * tiles
    size = k if group == WHOLE_K else group
    fits = stored.dtype("B") == "I32" and double_n == 2 * n and n % SLAB == 0 and groups * size == k
    if not fits:
        raise CheckpointError(
            f"layer {stored.name} contradicts {config.source}: Marlin weights with group size "
            f"{group} are B int32 [K / 16, 2 N] and s [K / {group if group > 0 else 'K'}, N] with "
            f"N a multiple of {SLAB}, and the layer has {stored.words()}."
        )
    if config.first("sym") is False or config.first("desc_act"):
        raise CheckpointError(
            f"{config.source} says sym: false or desc_act: true, and the Marlin format has "
            f"neither zero points nor act-order; one of them is wrong."
        )
    scale_dtype = stored.scale_dtype("s")
    return LinearLayer(
        name=stored.name,
        n=n,
        k=k,
        group_size=size,
        dtype=activation_dtype(scale_dtype, config),
        scale_dtype=scale_dtype,
        zero="sym",
        bias="bias" in stored,
        format="GPTQ Marlin",
        parts=stored.names,
        stored_bytes=stored.num_bytes,
        loader=lambda device: LayerWeights(
            q=unpack_marlin(stored.read("B", device)),
            scales=unpermuted(stored.read("s", device)).t().contiguous(),
            bias=stored.read_bias(device, n),
        ),
    )


def unpack_marlin(words: Tensor) -> Tensor:
    """int32 [K / 16, 2 N] to uint8 [N, K].

    Of a slab of 64 features, word 4 l + j (lane l = 4 a + t, tile j) holds features 16 j + a and
    8 above, inputs 2 t, 2 t + 1 and 8 above. Nibble i = 4 c + 2 h + b is feature half h, input
    half b, and c the lower or upper of the two inputs.
    """
    tiles, double_n = words.shape
    slabs = double_n // 128
    # [tile, slab, a, t, j, c, h, b] -> [slab, j, h, a, tile, b, t, c]
    values = nibbles_of(words).view(tiles, slabs, 8, 4, 4, 2, 2, 2)
    return values.permute(1, 4, 6, 2, 0, 7, 3, 5).reshape(double_n // 2, 16 * tiles)


def unpermuted(scales: Tensor) -> Tensor:
    """[groups, N] scales in the order of features."""
    order = GROUPED if scales.shape[0] > 1 else CHANNEL
    runs = scales.reshape(-1, len(order))
    inverse = sorted(range(len(order)), key=order.__getitem__)
    return runs[:, inverse].reshape(scales.shape)
