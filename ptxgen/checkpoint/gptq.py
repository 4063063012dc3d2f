"""GPTQ: checkpoint formats "gptq" (version 1), "gptq_v2" and "gptq_p", with act-order or not."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from torch import Tensor

from ptxgen.checkpoint.act_order import permutation_of
from ptxgen.checkpoint.config import QuantizationConfig
from ptxgen.checkpoint.gptq_zeros import ZeroReading, shift_sixteens, stored_zeros
from ptxgen.checkpoint.layer import LayerWeights, LinearLayer
from ptxgen.checkpoint.layouts import Shape, check_layout
from ptxgen.checkpoint.nibbles import unpack_rows
from ptxgen.checkpoint.stored import StoredLayer, activation_dtype, check_bits, group_of
from ptxgen.errors import CheckpointError, UnsupportedFormatError

MARKER = "qweight"
SUFFIXES = ("qweight", "qzeros", "scales", "g_idx", "bias")
FORMATS = {"": 1, "gptq": 1, "gptq_v2": 2, "gptq_p": 2}
"""Version of the zero points by checkpoint_format: 1 stores them less one."""


def settings_of(name: str, config: QuantizationConfig) -> dict[str, Any]:
    """The settings of a layer: the config's, with what its `dynamic` entries change for it.

    Raises:
        CheckpointError: a pattern of `dynamic` is no regular expression.
    """
    settings = dict(config.settings)
    for pattern, changes in config.table("dynamic").items():
        if not isinstance(changes, (dict, type(None))):
            raise CheckpointError(
                f"{config.source}: dynamic[{pattern!r}] is {changes!r}, not a JSON object."
            )
        try:
            matched = re.match(pattern.removeprefix("+:").removeprefix("-:"), name)
        except re.error as error:
            raise CheckpointError(
                f"{config.source}: the pattern {pattern!r} of dynamic is no regular expression "
                f"({error})."
            ) from error
        if matched and pattern.startswith("-:"):
            raise CheckpointError(
                f"layer {name} is quantized, and {config.source} says by {pattern!r} that it is "
                f"not; one of them is wrong."
            )
        if matched:
            settings.update(changes or {})
            break
    return settings


def describe(
    stored: StoredLayer, config: QuantizationConfig, zeros: ZeroReading = "auto"
) -> LinearLayer:
    """One layer of a GPTQ checkpoint.

    Args:
        stored: its tensors.
        config: of the checkpoint.
        zeros: how zero points of version 1 are read, see ptxgen.checkpoint.gptq_zeros.

    Raises:
        CheckpointError: config and tensors contradict each other.
        UnsupportedFormatError: another number of bits or format, or groups of unequal sizes.
    """
    settings = settings_of(stored.name, config)
    check_bits(settings.get("bits"), stored.name)
    version = _version(settings, config)
    if "group_size" not in settings:
        raise CheckpointError(f"{config.source} names no group_size; a GPTQ config has one.")
    group = group_of(settings["group_size"], config.source)
    shape = check_layout(stored, group, "GPTQ", config.source)
    symmetric = settings.get("sym") is True
    if not symmetric and "qzeros" not in stored:
        raise CheckpointError(
            f"layer {stored.name} has no qzeros, and {config.source} does not say sym: true; the "
            f"checkpoint is incomplete."
        )
    permutation = _permutation(stored, shape, settings)
    read_zeros = None if symmetric else _zero_reader(stored, shape, version, zeros)
    return LinearLayer(
        name=stored.name,
        n=shape.n,
        k=shape.k,
        group_size=shape.group_size,
        dtype=activation_dtype(stored.scale_dtype(), config),
        scale_dtype=stored.scale_dtype(),
        zero="sym" if symmetric else "int",
        bias="bias" in stored,
        format=f"GPTQ v{version}",
        parts=stored.names,
        stored_bytes=stored.num_bytes,
        loader=lambda device: _load(stored, shape, permutation, read_zeros, device),
        permutation=permutation,
    )


def _load(
    stored: StoredLayer,
    shape: Shape,
    permutation: Tensor | None,
    read_zeros: Callable[[str], tuple[Tensor, tuple[str, ...]]] | None,
    device: str,
) -> LayerWeights:
    q = unpack_rows(stored.read("qweight", device), shape.k).t().contiguous()
    if permutation is not None:
        q = q[:, permutation.to(device)]
    zeros: Tensor | None = None
    notes: tuple[str, ...] = ()
    if read_zeros is not None:
        zeros, notes = read_zeros(device)
        q, zeros = shift_sixteens(q, zeros, shape.group_size, stored.name)
    return LayerWeights(
        q=q,
        scales=stored.read("scales", device).t().contiguous(),
        zeros=zeros,
        bias=stored.read_bias(device, shape.n),
        permutation=permutation,
        notes=notes,
    )


def _zero_reader(
    stored: StoredLayer, shape: Shape, version: int, reading: ZeroReading
) -> Callable[[str], tuple[Tensor, tuple[str, ...]]]:
    """What reads zero points [N, groups], and notes on them."""

    def read(device: str) -> tuple[Tensor, tuple[str, ...]]:
        words = stored.read("qzeros", device)
        zeros, notes = stored_zeros(words, shape.n, version, reading, stored.name)
        return zeros.t().contiguous(), notes

    return read


def _version(settings: dict[str, Any], config: QuantizationConfig) -> int:
    name = str(settings.get("checkpoint_format") or settings.get("format") or "").lower()
    if name not in FORMATS:
        raise UnsupportedFormatError(
            f"{config.source} says GPTQ format {name!r}; {', '.join(filter(None, FORMATS))} and "
            f"marlin are read. Save the checkpoint in one of them with the tool that wrote it."
        )
    return FORMATS[name]


def _permutation(stored: StoredLayer, shape: Shape, settings: dict[str, Any]) -> Tensor | None:
    """Groups of static_groups follow the inputs, so an absent g_idx is no contradiction there."""
    g_idx = stored.read("g_idx") if "g_idx" in stored else None
    declared = bool(settings.get("desc_act"))
    if declared and settings.get("static_groups") and (g_idx is None or not g_idx.numel()):
        return None
    return permutation_of(g_idx, shape.k, shape.group_size, declared, stored.name)
