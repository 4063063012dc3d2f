"""From a QuantizedWeight to the packed tensor of ptxgen.weights.layout, and exactly back."""

from __future__ import annotations

import torch
from torch import Tensor

from ptxgen.errors import TensorError
from ptxgen.problem import SYMMETRIC_ZERO, Problem
from ptxgen.weights.layout import (
    BLOCK_K,
    BLOCK_ROWS,
    LAYOUT_VERSION,
    ROW_BLOCK,
    WEIGHT_BYTES,
    PackedLayout,
    packed_layout,
)
from ptxgen.weights.quantize import TORCH_DTYPES, QuantizedWeight, check_quantized
from ptxgen.weights.spread import row_factors

ROW_BLOCKS = BLOCK_ROWS // ROW_BLOCK

# Axes below are named as in layout.py: h = feature half (feature = g + 8 h), k64, step = k16 step,
# b and c = the input's upper and lower part (input = 2 t + 8 b + c). So nibble i = h + 2 b + 4 c,
# and byte b + 2 c of a word holds h = 0 in its low nibble and h = 1 in its high one.
FEATURE_AXES = (ROW_BLOCKS, 2, 8)  # row block, h, g
INPUT_AXES = (BLOCK_K // 64, 4, 2, 4, 2)  # k64, step, b, t, c
WORD_AXES = (ROW_BLOCKS, 2, 8, 4, 4, 2, 2)  # row block, k64, g, t, step, c, b


def pack(weight: QuantizedWeight, problem: Problem) -> Tensor:
    """Packs a quantized weight into the layout that every kernel reads.

    Args:
        weight: q [N, K], scales and zeros [N, groups], all on one device (CPU or GPU).
        problem: the problem they belong to.

    Returns:
        Contiguous uint8 tensor of packed_layout(problem).total_bytes on the same device.

    Raises:
        TensorError: the weight does not fit the problem, or holds NaN, inf or values above 15.
    """
    check_quantized(weight, problem)
    layout = packed_layout(problem)
    packed = torch.empty(layout.total_bytes, dtype=torch.uint8, device=weight.q.device)
    q, scales, zeros = _padded(weight, problem, layout)
    words = _weight_words(packed, layout)
    # [strip, row block, h, g, k block, k64, step, b, t, c]
    axes = q.view(layout.strips, *FEATURE_AXES, layout.k_blocks, *INPUT_AXES)
    pairs = axes[:, :, 0] | (axes[:, :, 1] << 4)
    words.copy_(pairs.permute(0, 3, 1, 4, 2, 7, 5, 8, 6))
    scale_view, zero_view = _group_views(packed, problem, layout)
    # [strip, row block, h, g, k block, group in block]
    per_block = (layout.k_blocks, layout.groups_per_block) if layout.groups_per_block else (1, 1)
    scale_view.copy_(
        scales.view(layout.strips, *FEATURE_AXES, *per_block)
        .permute(0, 4, 1, 5, 3, 2)
        .contiguous()
        .view(torch.uint8)
        .view(scale_view.shape)
    )
    if zeros is not None and zero_view is not None:
        halves = zeros.view(layout.strips, *FEATURE_AXES, *per_block)
        zero_view.copy_((halves[:, :, 0] | (halves[:, :, 1] << 4)).permute(0, 3, 1, 4, 2))
    if layout.factor_bytes:
        _put_factors(packed, scales, layout)
    return packed


def _put_factors(packed: Tensor, scales: Tensor, layout: PackedLayout) -> None:
    """Writes the table of row factors and the tag behind it."""
    factors = row_factors(scales).view(layout.strips, *FEATURE_AXES)
    ordered = factors.permute(0, 1, 3, 2).contiguous()
    tables = packed[layout.blocks_bytes :]
    tables[: layout.factor_bytes] = ordered.view(torch.uint8).flatten()
    wide = factors.view(layout.strips, -1)[:, 0] < 0
    tag = torch.zeros(layout.tag_bytes // 4, dtype=torch.int32, device=packed.device)
    tag[0], tag[1] = LAYOUT_VERSION, wide.sum()
    tables[layout.factor_bytes :] = tag.view(torch.uint8)


def unpack(packed: Tensor, problem: Problem) -> QuantizedWeight:
    """The exact inverse of pack.

    Args:
        packed: contiguous uint8 tensor of packed_layout(problem).total_bytes.
        problem: the problem it was packed for.

    Raises:
        TensorError: another dtype, size or stride.
    """
    layout = packed_layout(problem)
    check_packed(packed, problem)
    # [strip, k block, row block, k64, g, t, step, c, b] -> [strip, row block, g, k block, ...]
    pairs = _weight_words(packed, layout).permute(0, 2, 4, 1, 3, 6, 8, 5, 7)
    q = torch.stack((pairs & 15, pairs >> 4), dim=2)
    q = q.view(layout.strips * BLOCK_ROWS, layout.k_blocks * BLOCK_K)
    scale_view, zero_view = _group_views(packed, problem, layout)
    scales = scale_view.contiguous().view(TORCH_DTYPES[problem.dtype]).squeeze(-1)
    scales = scales.permute(0, 2, 5, 4, 1, 3).reshape(layout.strips * BLOCK_ROWS, -1)
    zeros = None
    if zero_view is not None:
        halves = zero_view.permute(0, 2, 4, 1, 3)
        zeros = torch.stack((halves & 15, halves >> 4), dim=2).view(layout.strips * BLOCK_ROWS, -1)
        zeros = zeros[: problem.n, : problem.num_groups].contiguous()
    return QuantizedWeight(
        q[: problem.n, : problem.k].contiguous(),
        scales[: problem.n, : problem.num_groups].contiguous(),
        zeros,
    )


def check_packed(packed: Tensor, problem: Problem) -> None:
    """Raises TensorError where a tensor cannot be the packed weight of the problem."""
    total = packed_layout(problem).total_bytes
    if packed.dtype != torch.uint8 or tuple(packed.shape) != (total,) or not packed.is_contiguous():
        raise TensorError(
            f"the packed weight is {packed.dtype} {tuple(packed.shape)}; {problem.key()} needs a "
            f"contiguous torch.uint8 tensor of ({total},) bytes. Pack the weight for this problem."
        )


def _padded(
    weight: QuantizedWeight, problem: Problem, layout: PackedLayout
) -> tuple[Tensor, Tensor, Tensor | None]:
    """q, scales and zeros with N and K padded so that the padding adds exactly nothing."""
    rows, inputs = layout.strips * BLOCK_ROWS, layout.k_blocks * BLOCK_K
    groups = layout.k_blocks * layout.groups_per_block or 1
    q, zeros = weight.q, weight.zeros
    if (rows, inputs) != tuple(q.shape):
        padded = q.new_full((rows, inputs), SYMMETRIC_ZERO)
        if problem.whole_k and zeros is not None:
            # Here padded inputs share the row's own scale, so they must equal its own zero point.
            padded[: problem.n] = zeros
        padded[: problem.n, : problem.k] = q
        q = padded
    scales = _pad_groups(weight.scales, rows, groups, 0)
    if zeros is not None:
        zeros = _pad_groups(zeros, rows, groups, SYMMETRIC_ZERO)
    return q.contiguous(), scales, zeros


def _pad_groups(value: Tensor, rows: int, groups: int, fill: int) -> Tensor:
    if tuple(value.shape) == (rows, groups):
        return value.contiguous()
    padded = value.new_full((rows, groups), fill)
    padded[: value.shape[0], : value.shape[1]] = value
    return padded


def _weight_words(packed: Tensor, layout: PackedLayout) -> Tensor:
    """View of the weight bytes: [strip, k block, *WORD_AXES]."""
    blocks = packed[: layout.blocks_bytes].view(layout.strips, layout.k_blocks, layout.block_bytes)
    return blocks[..., :WEIGHT_BYTES].view(layout.strips, layout.k_blocks, *WORD_AXES)


def _group_views(
    packed: Tensor, problem: Problem, layout: PackedLayout
) -> tuple[Tensor, Tensor | None]:
    """Views of the scale bytes [strip, k block, row block, group, g, h, 2] and of the zero bytes
    [strip, k block, row block, group, g] where there are any. Whole K is one k block of one group.
    """
    if problem.whole_k:
        table = packed[layout.blocks_bytes :]
        groups = 1
        scale_bytes = table[: layout.table_scale_bytes].view(layout.strips, 1, -1)
        zero_bytes = table[layout.table_scale_bytes :].view(layout.strips, 1, -1)
    else:
        blocks = packed[: layout.blocks_bytes]
        blocks = blocks.view(layout.strips, layout.k_blocks, layout.block_bytes)
        groups = layout.groups_per_block
        scales_end = WEIGHT_BYTES + layout.scale_bytes
        scale_bytes, zero_bytes = blocks[..., WEIGHT_BYTES:scales_end], blocks[..., scales_end:]
    scale_view = scale_bytes.view(*scale_bytes.shape[:2], ROW_BLOCKS, groups, 8, 2, 2)
    if problem.zero == "sym":
        return scale_view, None
    return scale_view, zero_bytes.view(*zero_bytes.shape[:2], ROW_BLOCKS, groups, 8)
