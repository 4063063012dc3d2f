"""torchao's int4 weight-only tensors as its safetensors support writes them: w = (q - 8) s + z."""

from __future__ import annotations

import json
from typing import Any

from torch import Tensor

from ptxgen.checkpoint.config import QuantizationConfig
from ptxgen.checkpoint.layer import LayerWeights, LinearLayer
from ptxgen.checkpoint.layouts import Shape
from ptxgen.checkpoint.nibbles import nibbles_of
from ptxgen.checkpoint.stored import StoredLayer, activation_dtype
from ptxgen.errors import CheckpointError, UnsupportedFormatError

MARKER = "_weight_qdata"
SUFFIXES = (
    MARKER,
    "_weight_scale",
    "_weight_zero_point",
    "_weight_scale_and_zero",
    "_weight_act_pre_scale",
    "bias",
)
PLAIN = "Int4Tensor"
TILED = "Int4TilePackedTo4dTensor"
MIDDLE = 8


def describe(stored: StoredLayer, config: QuantizationConfig) -> LinearLayer:
    """One layer of a torchao checkpoint.

    Raises:
        CheckpointError: the tensors contradict the file's metadata.
        UnsupportedFormatError: another tensor class, or activations that are scaled first.
    """
    kind, shape = _metadata(stored)
    if "_weight_act_pre_scale" in stored:
        raise UnsupportedFormatError(
            f"layer {stored.name} scales its activations first (act_pre_scale), which no kernel "
            f"here does."
        )
    scales = "_weight_scale" if kind == PLAIN else "_weight_scale_and_zero"
    if not _fits(stored, kind, shape):
        raise CheckpointError(
            f"layer {stored.name} contradicts its metadata: {kind} of {shape.n} x {shape.k} with "
            f"groups of {shape.group_size}, and the tensors are {stored.words()}."
        )
    scale_dtype = stored.scale_dtype(scales)
    return LinearLayer(
        name=stored.name,
        n=shape.n,
        k=shape.k,
        group_size=shape.group_size,
        dtype=activation_dtype(scale_dtype, config),
        scale_dtype=scale_dtype,
        zero="float",
        bias="bias" in stored,
        format=f"torchao {kind}",
        parts=stored.names,
        stored_bytes=stored.num_bytes,
        loader=lambda device: _load(stored, kind, shape, device),
        notes=("offset = zero - 8 * scale, in FP32; torchao's own kernels round it to BF16",),
    )


def unpack_plain(values: Tensor) -> Tensor:
    """int8 [N, K / 2] of signed pairs, even input low, to uint8 [N, K] of q + 8."""
    return nibbles_of(values).flatten(-2) ^ MIDDLE


def unpack_tiles(words: Tensor, n: int, k: int) -> Tensor:
    """int32 [N / 8, K / (16 T), 32, T / 2] in the B fragments of mma.m16n8k16 to uint8 [N, K].

    Lane 4 a + t of word j holds feature a of the tile; nibble i = 4 c + 2 s + b is input
    2 t + c + 8 b of k-tile 2 j + s.
    """
    tiles, blocks, lanes, pairs = words.shape
    # [tile, block, a, t, j, c, s, b] -> [tile, a, block, j, s, b, t, c]
    values = nibbles_of(words).view(tiles, blocks, 8, lanes // 8, pairs, 2, 2, 2)
    ordered = values.permute(0, 2, 1, 4, 6, 7, 3, 5).reshape(8 * tiles, 32 * blocks * pairs)
    return ordered[:n, :k].contiguous()


def _load(stored: StoredLayer, kind: str, shape: Shape, device: str) -> LayerWeights:
    groups = shape.k // shape.group_size
    data = stored.read(MARKER, device)
    if kind == PLAIN:
        q = unpack_plain(data)
        scales = stored.read("_weight_scale", device).t()
        zeros = stored.read("_weight_zero_point", device).t()
    else:
        q = unpack_tiles(data, shape.n, shape.k)
        both = stored.read("_weight_scale_and_zero", device)[:groups, : shape.n]
        scales, zeros = both[..., 0].t(), both[..., 1].t()
    scales = scales.contiguous()
    return LayerWeights(
        q=q,
        scales=scales,
        offsets=zeros.float() - MIDDLE * scales.float(),
        bias=stored.read_bias(device, shape.n),
    )


def _fits(stored: StoredLayer, kind: str, shape: Shape) -> bool:
    if shape.k % shape.group_size:
        return False
    groups = shape.k // shape.group_size
    if kind == PLAIN:
        return (
            stored.dtype(MARKER) in ("I8", "U8")
            and stored.shape(MARKER) == (shape.n, shape.k // 2)
            and stored.shape("_weight_scale") == (groups, shape.n)
            and stored.shape("_weight_zero_point") == (groups, shape.n)
            and stored.dtype("_weight_zero_point") == stored.dtype("_weight_scale")
        )
    tiles, blocks, lanes, pairs = stored.need(MARKER, 4).shape
    padded_n, padded_k = 8 * tiles, 32 * blocks * pairs
    return (
        stored.dtype(MARKER) == "I32"
        and lanes == 32
        and pairs in (1, 2, 4)
        and 0 <= padded_n - shape.n < padded_n
        and 0 <= padded_k - shape.k < padded_k
        and stored.shape("_weight_scale_and_zero") == (padded_k // shape.group_size, padded_n, 2)
    )


def _metadata(stored: StoredLayer) -> tuple[str, Shape]:
    """Class and shape of a weight from the file's header."""
    name = f"{stored.name}.weight"
    text = stored.files.metadata.get(name)
    if text is None:
        raise CheckpointError(
            f"layer {stored.name} has torchao's tensors, but the file's metadata has no entry "
            f"{name!r}, which names their class and groups; save the model again with torchao."
        )
    try:
        document = json.loads(text)
        kind = str(document["_type"])
        block = _plain(document["_data"]["block_size"])
        n, k = (int(size) for size in _plain(document["_data"]["shape"]))
        rows, group = (int(size) for size in block)
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"the metadata of {name!r} is not that of a torchao weight of two dimensions "
            f"({error!r})."
        ) from error
    if kind not in (PLAIN, TILED):
        raise UnsupportedFormatError(
            f"layer {stored.name} is a torchao {kind}; {PLAIN} and {TILED} are read."
        )
    if rows != 1 or not 0 < group <= k:
        raise UnsupportedFormatError(
            f"layer {stored.name} has blocks of {list(block)}; groups of one row are read."
        )
    return kind, Shape(n, k, group)


def _plain(value: Any) -> Any:
    """A list, which may be wrapped as {"_type": ..., "_data": [...]}."""
    return value["_data"] if isinstance(value, dict) else value
