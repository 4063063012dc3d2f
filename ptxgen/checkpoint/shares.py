"""A rank's layers of a whole model: which modules are split along N and which along K, by name."""

from __future__ import annotations

from collections.abc import Iterable

from ptxgen.checkpoint.layer import LinearLayer
from ptxgen.checkpoint.slices import column_slice, row_slice
from ptxgen.errors import ProblemError

QUERIES = frozenset({"q_proj", "attn_q"})
KEYS_VALUES = frozenset({"k_proj", "v_proj", "attn_k", "attn_v"})
COLUMNS = QUERIES | {"gate_proj", "up_proj", "w1", "w3", "ffn_gate", "ffn_up", "fc1"}
ROWS = frozenset({"o_proj", "down_proj", "w2", "attn_output", "ffn_down", "out_proj", "fc2"})
STORED_FUSED = frozenset({"qkv_proj", "gate_up_proj", "query_key_value", "Wqkv", "attn_qkv"})
"""Fused in the checkpoint already: a rank's share takes rows of every part of it."""


def share_of(layer: LinearLayer, rank: int, tp: int, kv_heads: int | None = None) -> LinearLayer:
    """A rank's share of a layer; layers that engines replicate stay whole.

    Args:
        layer: not fused.
        rank: 0..tp - 1.
        tp: tensor-parallel size.
        kv_heads: key/value heads of the model: where there are fewer than ranks, several ranks
            hold the same ones. None: as many as ranks at least.

    Raises:
        ProblemError: the layer cannot be split so; the message names layer, tp, group and K.
    """
    last = layer.name.rpartition(".")[2]
    if tp == 1:
        return layer
    if last in STORED_FUSED:
        raise ProblemError(
            f"layer {layer.name} is stored fused, and a rank's share of tp = {tp} takes rows from "
            f"each of its parts, whose sizes the checkpoint does not name; use tp = 1, or tune the "
            f"share with --n and --k."
        )
    if last in ROWS:
        return row_slice(layer, rank, tp)
    if last in KEYS_VALUES:
        return _key_value_share(layer, rank, tp, kv_heads)
    return column_slice(layer, rank, tp) if last in COLUMNS else layer


def shares_of(
    layers: Iterable[LinearLayer], rank: int, tp: int, kv_heads: int | None = None
) -> tuple[LinearLayer, ...]:
    """share_of for every layer."""
    return tuple(share_of(layer, rank, tp, kv_heads) for layer in layers)


def _key_value_share(layer: LinearLayer, rank: int, tp: int, kv_heads: int | None) -> LinearLayer:
    if kv_heads is None or kv_heads % tp == 0:
        return column_slice(layer, rank, tp)
    if tp % kv_heads:
        raise ProblemError(
            f"layer {layer.name} has {kv_heads} key/value heads, which tp = {tp} ranks can neither "
            f"split nor share evenly; choose a tp that divides them or is a multiple."
        )
    copies = tp // kv_heads
    return column_slice(layer, rank // copies, kv_heads)
