"""One tensor-parallel rank's share of a layer, with its groups checked.

Slice first and fuse afterwards: the rank's share of a fused qkv is not a contiguous part of it.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ptxgen.checkpoint.layer import LayerWeights, LinearLayer
from ptxgen.errors import ProblemError


def column_slice(layer: LinearLayer, rank: int, tp: int) -> LinearLayer:
    """A rank's output features of a column-parallel layer (q, k, v, gate, up).

    Where key/value heads are replicated over r ranks, ask for rank // r of tp // r.

    Raises:
        ProblemError: tp does not divide N, or there is no such rank.
    """
    _check_rank(layer, rank, tp)
    if layer.n % tp:
        raise ProblemError(
            f"layer {layer.name} with N = {layer.n} cannot be split over tp = {tp} ranks along N; "
            f"choose a tensor-parallel size that divides N."
        )
    n = layer.n // tp
    rows = slice(rank * n, (rank + 1) * n)
    return replace(
        layer,
        n=n,
        stored_bytes=layer.stored_bytes // tp,
        loader=lambda device: _rows(layer.load(device), rows),
    )


def row_slice(layer: LinearLayer, rank: int, tp: int) -> LinearLayer:
    """A rank's inputs of a row-parallel layer (o, down); rank 0 alone adds the bias.

    Raises:
        ProblemError: a group straddles two ranks, the layer is act-order, tp does not divide K, or
            there is no such rank.
    """
    _check_rank(layer, rank, tp)
    where = f"layer {layer.name} with K = {layer.k} and groups of {layer.group_size}"
    if tp == 1:
        return layer
    if layer.act_order:
        raise ProblemError(
            f"{where} cannot be split over tp = {tp} ranks along K: it is act-order, so that a "
            f"rank's inputs lie in the groups of all ranks. Gather the activations, or requantize "
            f"without act-order."
        )
    k = layer.k // tp
    whole = layer.group_size >= layer.k
    if layer.k % tp or (not whole and k % layer.group_size):
        raise ProblemError(
            f"{where} cannot be split over tp = {tp} ranks along K: a rank has "
            f"{layer.k / tp:g} inputs, {layer.k / tp / layer.group_size:g} groups, and a group "
            f"must not straddle two ranks. Choose another tensor-parallel size."
        )
    inputs = slice(rank * k, (rank + 1) * k)
    groups = slice(None) if whole else slice(*(at // layer.group_size for at in _ends(inputs)))
    bias = layer.bias and rank == 0
    return replace(
        layer,
        k=k,
        group_size=k if whole else layer.group_size,
        bias=bias,
        stored_bytes=layer.stored_bytes // tp,
        loader=lambda device: _columns(layer.load(device), inputs, groups, bias),
    )


def _ends(part: slice) -> tuple[int, int]:
    return int(part.start), int(part.stop)


def _rows(weights: LayerWeights, rows: slice) -> LayerWeights:
    def cut(tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else tensor[rows].clone(memory_format=torch.contiguous_format)

    return replace(
        weights,
        q=weights.q[rows].clone(),
        scales=weights.scales[rows].clone(),
        zeros=cut(weights.zeros),
        offsets=cut(weights.offsets),
        bias=cut(weights.bias),
    )


def _columns(weights: LayerWeights, inputs: slice, groups: slice, bias: bool) -> LayerWeights:
    def cut(tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else tensor[:, groups].contiguous()

    return replace(
        weights,
        q=weights.q[:, inputs].contiguous(),
        scales=weights.scales[:, groups].contiguous(),
        zeros=cut(weights.zeros),
        offsets=cut(weights.offsets),
        bias=weights.bias if bias else None,
    )


def _check_rank(layer: LinearLayer, rank: int, tp: int) -> None:
    if isinstance(tp, bool) or not isinstance(tp, int) or tp < 1 or not 0 <= rank < tp:
        raise ProblemError(
            f"rank {rank!r} of tp = {tp!r} is no share of layer {layer.name}; tp is 1 or more, "
            f"ranks are 0..tp - 1."
        )
