"""compressed-tensors, format pack-quantized: signed values, zero points packed along N."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ptxgen.checkpoint.act_order import permutation_of
from ptxgen.checkpoint.config import QuantizationConfig
from ptxgen.checkpoint.layer import LayerWeights, LinearLayer
from ptxgen.checkpoint.layouts import Shape
from ptxgen.checkpoint.nibbles import unpack_columns, unpack_rows
from ptxgen.checkpoint.stored import StoredLayer, activation_dtype, check_bits, group_of
from ptxgen.errors import CheckpointError, UnsupportedFormatError

MARKER = "weight_packed"
ZEROS = "weight_zero_point"
SUFFIXES = ("weight_packed", "weight_scale", ZEROS, "weight_g_idx", "weight_shape", "bias")
FORMAT = "pack-quantized"
LINEAR = "Linear"
PERMUTED = ("group", "dynamic")
"""Values of actorder that leave a g_idx; weight and static permute nothing at run time."""


def describe(stored: StoredLayer, config: QuantizationConfig) -> LinearLayer:
    """One layer of a pack-quantized checkpoint.

    Raises:
        CheckpointError: config and tensors contradict each other.
        UnsupportedFormatError: another number of bits, strategy or format, or quantized
            activations.
    """
    weights = weight_settings(stored.name, config)
    shape = _shape(stored, weights, config)
    symmetric = weights.get("symmetric", True) is not False
    if not symmetric and ZEROS not in stored:
        raise CheckpointError(
            f"layer {stored.name} has no {ZEROS}, and {config.source} says symmetric: false; the "
            f"checkpoint is incomplete."
        )
    if ZEROS in stored:
        _check_zero_shape(stored, shape)
    actorder = str(weights.get("actorder") or "").lower()
    permutation = permutation_of(
        stored.read("weight_g_idx") if "weight_g_idx" in stored else None,
        shape.k,
        shape.group_size,
        actorder in PERMUTED,
        stored.name,
    )
    scale_dtype = stored.scale_dtype("weight_scale")
    return LinearLayer(
        name=stored.name,
        n=shape.n,
        k=shape.k,
        group_size=shape.group_size,
        dtype=activation_dtype(scale_dtype, config),
        scale_dtype=scale_dtype,
        zero="sym" if symmetric else "int",
        bias="bias" in stored,
        format=f"compressed-tensors {FORMAT}",
        parts=stored.names,
        stored_bytes=stored.num_bytes,
        loader=_loader(stored, shape, symmetric, permutation),
        permutation=permutation,
    )


def weight_settings(name: str, config: QuantizationConfig) -> dict[str, Any]:
    """The `weights` entry of the config group that a layer belongs to.

    Raises:
        CheckpointError: the layer belongs to no group.
        UnsupportedFormatError: its group is not 4-bit integers in the pack-quantized format with
            unquantized activations.
    """
    group = _group(name, config)
    weights = group.get("weights")
    if not isinstance(weights, dict):
        raise CheckpointError(f"{config.source}: the config group of {name} names no weights.")
    layout = str(group.get("format") or config.first("format") or "")
    if layout != FORMAT:
        raise UnsupportedFormatError(
            f"layer {name} is in the compressed-tensors format {layout!r}; {FORMAT} is read."
        )
    check_bits(weights.get("num_bits"), name)
    if weights.get("type", "int") != "int":
        raise UnsupportedFormatError(
            f"layer {name} has 4-bit values of type {weights.get('type')!r}; kernels take integers."
        )
    if group.get("input_activations") is not None:
        raise UnsupportedFormatError(
            f"layer {name} quantizes its activations too; ptxtune's kernels take FP16 or BF16 "
            f"activations, which would compute something else."
        )
    transforms = config.first("transform_config")
    if isinstance(transforms, dict) and transforms.get("config_groups"):
        raise UnsupportedFormatError(
            f"{config.source} has a transform_config: activations of {name} may have to be "
            f"rotated first, which no kernel here does."
        )
    return weights


def _group(name: str, config: QuantizationConfig) -> dict[str, Any]:
    """The config group of a layer: by its name, then by a pattern, then by its class."""
    groups = config.table("config_groups").values()
    found = [group for group in groups if isinstance(group, dict)]
    for matches in (_by_name, _by_pattern, _by_class):
        for group in found:
            targets = group.get("targets")
            targets = targets if isinstance(targets, list) else []
            if any(matches(str(target), name) for target in targets):
                return group
    raise CheckpointError(
        f"layer {name} has packed weights, and no config group of {config.source} targets it; the "
        f"config belongs to another checkpoint."
    )


def _by_name(target: str, name: str) -> bool:
    return target == name


def _by_pattern(target: str, name: str) -> bool:
    if not target.startswith("re:"):
        return False
    try:
        return re.match(target[3:], name) is not None
    except re.error as error:
        raise CheckpointError(f"target {target!r} is no regular expression ({error}).") from error


def _by_class(target: str, name: str) -> bool:
    return target == LINEAR


def _shape(stored: StoredLayer, weights: dict[str, Any], config: QuantizationConfig) -> Shape:
    n, words = stored.need("weight_packed", 2).shape
    scale_rows, groups = stored.need("weight_scale", 2).shape
    stored.need("weight_shape", 1)
    said = tuple(int(value) for value in stored.read("weight_shape"))
    strategy = str(weights.get("strategy") or "").lower()
    size = group_of(weights.get("group_size"), config.source)
    if strategy not in ("group", "channel"):
        raise UnsupportedFormatError(
            f"layer {stored.name} has scales by {strategy or 'no strategy'!r}; group and channel "
            f"are read."
        )
    k = said[1] if len(said) == 2 else 0
    group = k if strategy == "channel" or size < 0 else size
    fits = (
        stored.dtype("weight_packed") == "I32"
        and len(said) == 2
        and said[0] == n == scale_rows
        and k > 0
        and -(-k // 8) == words
        and -(-k // group) == groups
    )
    if not fits:
        raise CheckpointError(
            f"layer {stored.name} contradicts itself or {config.source}: weight_shape is "
            f"{list(said)}, the strategy {strategy} with group size {weights.get('group_size')}, "
            f"and the tensors {stored.words()}."
        )
    return Shape(n, k, group)


def _check_zero_shape(stored: StoredLayer, shape: Shape) -> None:
    groups = -(-shape.k // shape.group_size)
    packed = ("I32", (-(-shape.n // 8), groups))
    plain = ("I8", (shape.n, groups))
    if (stored.dtype(ZEROS), stored.shape(ZEROS)) not in (packed, plain):
        raise CheckpointError(
            f"layer {stored.name}: zero points are int32 [N / 8, groups] = {list(packed[1])} "
            f"or int8 [N, groups] = {list(plain[1])}, and the layer has {stored.words()}."
        )


def _loader(
    stored: StoredLayer, shape: Shape, symmetric: bool, permutation: Tensor | None
) -> Callable[[str], LayerWeights]:
    def load(device: str) -> LayerWeights:
        q = unpack_columns(stored.read("weight_packed", device), shape.k)
        if permutation is not None:
            q = q[:, permutation.to(device)]
        zeros = _zeros(stored, shape, device)
        if symmetric and zeros is not None:
            if bool((zeros != 8).any()):
                raise CheckpointError(
                    f"layer {stored.name} is symmetric by its config, and has zero points other "
                    f"than 0; which of them holds cannot be told."
                )
            zeros = None
        return LayerWeights(
            q=q,
            scales=stored.read("weight_scale", device).contiguous(),
            zeros=zeros,
            bias=stored.read_bias(device, shape.n),
            permutation=permutation,
        )

    return load


def _zeros(stored: StoredLayer, shape: Shape, device: str) -> Tensor | None:
    """uint8 [N, groups], 0..15 (the format's signed zero points plus 8)."""
    if ZEROS not in stored:
        return None
    zeros = stored.read(ZEROS, device)
    if stored.dtype(ZEROS) == "I32":
        return unpack_rows(zeros, shape.n).contiguous()
    if bool((zeros < -8).any()) or bool((zeros > 7).any()):
        raise CheckpointError(
            f"layer {stored.name} has zero points of {int(zeros.min())}..{int(zeros.max())}; "
            f"4-bit ones are -8..7."
        )
    return (zeros + 8).to(torch.uint8)
