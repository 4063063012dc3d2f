"""Act-order: from a group index for each input to a permutation with contiguous groups."""

from __future__ import annotations

import torch
from torch import Tensor

from ptxgen.errors import CheckpointError, UnsupportedFormatError


def permutation_of(
    g_idx: Tensor | None, k: int, group_size: int, declared: bool, name: str
) -> Tensor | None:
    """The stable order of inputs in which groups are contiguous.

    Args:
        g_idx: [K] integers, the group of each input; empty, None, all 0 or all -1 where the file
            holds none.
        k: inputs.
        group_size: inputs of a group; the last group may be shorter.
        declared: whether the config says that groups are permuted.
        name: the layer, for messages.

    Returns:
        int64 [K], or None where groups follow the inputs.

    Raises:
        CheckpointError: g_idx contradicts the config, or names groups that do not exist.
        UnsupportedFormatError: groups of unequal sizes.
    """
    groups = -(-k // group_size)
    index = _stored(g_idx, k, groups, name)
    if index is None:
        if declared:
            raise CheckpointError(
                f"layer {name} is act-order by its config, but holds no g_idx that says which "
                f"input is in which group; its weights cannot be read without."
            )
        return None
    plain = torch.arange(k) // group_size
    if torch.equal(index, plain):
        return None
    if not declared:
        raise CheckpointError(
            f"layer {name}: g_idx permutes its groups, but the config says that nothing is "
            f"permuted (desc_act, actorder); correct the one that is wrong."
        )
    counts = torch.bincount(index, minlength=groups)
    if not torch.equal(counts, torch.bincount(plain, minlength=groups)):
        raise UnsupportedFormatError(
            f"layer {name}: its {groups} groups hold {int(counts.min())} to {int(counts.max())} "
            f"inputs instead of {group_size} each; no order of inputs makes them contiguous groups."
        )
    return torch.argsort(index, stable=True)


def _stored(g_idx: Tensor | None, k: int, groups: int, name: str) -> Tensor | None:
    """The index as int64 on the CPU; None where it is absent or a placeholder."""
    if g_idx is None or not g_idx.numel():
        return None
    index = g_idx.to("cpu", torch.int64).flatten()
    if index.numel() != k:
        raise CheckpointError(
            f"layer {name}: g_idx has {index.numel()} entries for {k} inputs; the file is damaged."
        )
    if bool((index == -1).all()) or (groups > 1 and bool((index == 0).all())):
        return None
    low, high = int(index.min()), int(index.max())
    if low < 0 or high >= groups:
        raise CheckpointError(
            f"layer {name}: g_idx names groups {low}..{high}, and there are {groups} (0.."
            f"{groups - 1}); the group size of the config is not that of the file."
        )
    return index
