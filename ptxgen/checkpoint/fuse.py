"""Layers that engines run as one: q, k, v as qkv and gate, up as gate_up, concatenated along N."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ptxgen.checkpoint.layer import LayerWeights, LinearLayer
from ptxgen.errors import CheckpointError

FAMILIES: tuple[tuple[tuple[str, ...], str], ...] = (
    (("q_proj", "k_proj", "v_proj"), "qkv_proj"),
    (("gate_proj", "up_proj"), "gate_up_proj"),
    (("w1", "w3"), "w13"),
    (("attn_q", "attn_k", "attn_v"), "attn_qkv"),
    (("ffn_gate", "ffn_up"), "ffn_gate_up"),
)
"""Last parts of module names, in the order in which they are concatenated, and the fused name."""


@dataclass(frozen=True, slots=True)
class NotFused:
    """Layers that an engine would fuse, and why they cannot be."""

    names: tuple[str, ...]
    reason: str


def why_not_fused(layers: Sequence[LinearLayer]) -> str:
    """Why layers cannot be one; empty where they can."""
    first = layers[0]
    for other in layers[1:]:
        for what, one, two in (
            ("K", first.k, other.k),
            ("group size", first.group_size, other.group_size),
            ("zero points", first.zero, other.zero),
            ("scales of", first.scale_dtype, other.scale_dtype),
            ("act-order", first.act_order, other.act_order),
        ):
            if one != two:
                return f"{first.name} has {what} {one}, and {other.name} {two}"
        if not _same_order(first.permutation, other.permutation):
            return (
                f"{first.name} and {other.name} permute their inputs differently (act-order), so "
                f"they cannot share one activation"
            )
    return ""


def fuse(layers: Sequence[LinearLayer], name: str) -> LinearLayer:
    """One layer whose output features are those of all layers, in their order.

    A layer without a bias gets one of zeros where another has one.

    Raises:
        CheckpointError: they cannot be fused; the message says why.
    """
    if not layers:
        raise CheckpointError(f"layer {name} cannot be fused of no layers.")
    reason = why_not_fused(layers)
    if reason:
        raise CheckpointError(f"{name} cannot be fused: {reason}. Run the layers one by one.")
    parts = tuple(layers)
    formats = tuple(dict.fromkeys(layer.format for layer in parts))
    return replace(
        parts[0],
        name=name,
        n=sum(layer.n for layer in parts),
        bias=any(layer.bias for layer in parts),
        format=" + ".join(formats),
        fused_from=tuple(member for layer in parts for member in layer.members),
        parts=tuple(part for layer in parts for part in layer.parts),
        stored_bytes=sum(layer.stored_bytes for layer in parts),
        notes=tuple(dict.fromkeys(note for layer in parts for note in layer.notes)),
        loader=lambda device: concatenated([layer.load(device) for layer in parts]),
    )


def fuse_layers(
    layers: Iterable[LinearLayer],
) -> tuple[tuple[LinearLayer, ...], tuple[NotFused, ...]]:
    """Fuses every family of layers that may be fused.

    Args:
        layers: of a checkpoint.

    Returns:
        The layers in their order, a fused one in the place of its first part; and the families
        that stay apart, with the reason. Layers of which a sibling is missing stay as they are.
    """
    by_name = {layer.name: layer for layer in layers}
    result: dict[str, LinearLayer] = {}
    apart: list[NotFused] = []
    done: set[str] = set()
    for name, layer in by_name.items():
        if name in done:
            continue
        family = _family(name, by_name)
        if family is None:
            result[name] = layer
            continue
        members, fused = family
        done.update(member.name for member in members)
        reason = why_not_fused(members)
        if reason:
            apart.append(NotFused(tuple(member.name for member in members), reason))
            result.update((member.name, member) for member in members)
        else:
            result[fused] = fuse(members, fused)
    return tuple(result.values()), tuple(apart)


def concatenated(parts: Sequence[LayerWeights]) -> LayerWeights:
    """Loaded values of layers that may be fused, along N."""
    biased = any(part.bias is not None for part in parts)
    biases = [_bias(part, parts) for part in parts] if biased else []
    return LayerWeights(
        q=torch.cat([part.q for part in parts]),
        scales=torch.cat([part.scales for part in parts]),
        zeros=_joined([part.zeros for part in parts]),
        offsets=_joined([part.offsets for part in parts]),
        bias=torch.cat(biases) if biased else None,
        permutation=parts[0].permutation,
        notes=tuple(dict.fromkeys(note for part in parts for note in part.notes)),
    )


def _family(
    name: str, layers: dict[str, LinearLayer]
) -> tuple[tuple[LinearLayer, ...], str] | None:
    """The siblings of a layer and their fused name, where all of them are there."""
    parent, dot, last = name.rpartition(".")
    for members, fused in FAMILIES:
        siblings = [layers.get(f"{parent}{dot}{member}") for member in members]
        found = tuple(sibling for sibling in siblings if sibling is not None)
        if last in members and len(found) == len(members):
            return found, f"{parent}{dot}{fused}"
    return None


def _same_order(one: Tensor | None, two: Tensor | None) -> bool:
    if one is None or two is None:
        return one is two
    return torch.equal(one, two)


def _joined(tensors: Sequence[Tensor | None]) -> Tensor | None:
    present = [tensor for tensor in tensors if tensor is not None]
    return torch.cat(present) if present else None


def _bias(part: LayerWeights, parts: Sequence[LayerWeights]) -> Tensor:
    if part.bias is not None:
        return part.bias
    dtype = next(other.bias.dtype for other in parts if other.bias is not None)
    return torch.zeros(part.q.shape[0], dtype=dtype, device=part.q.device)
