"""Which order the sums of an mma kernel follow: everything that fixes the bits of its results."""

from __future__ import annotations

from ptxgen.families.mma.config import MmaConfig
from ptxgen.families.mma.shape import Shape
from ptxgen.problem import Problem
from ptxgen.weights.layout import BLOCK_K


def summation_key(problem: Problem, config: MmaConfig) -> str:
    """Names the order in which a kernel adds up each output; see Family.summation_key.

    A token is a column of mma, so what other tokens do does not reach it, and neither do tiles
    along M and N, stages, residency or triggers. What does: which warp and which CTA adds which
    packed K blocks (split_k, warps_k, and how many a stage holds), whether scales act on weights or
    on sums, where zero points are taken off, and how many sums of a group take turns. The last one
    depends on the warp's tile.
    """
    shape = Shape(problem, config)
    order = f"mma scale_on={config.scale_on} chains={shape.chains}"
    if shape.subnormal:
        order += " dequant=subnormal"
    one_sum = config.split_k == 1 and config.warps_k == 1
    if one_sum and not shape.k_block_tail:
        return f"{order} in order of K"  # whatever a stage holds
    return (
        f"{order} block_k={config.block_k // BLOCK_K}x{BLOCK_K} warps_k={config.warps_k} "
        f"split_k={config.split_k}"
    )
