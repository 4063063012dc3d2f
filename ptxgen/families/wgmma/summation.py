"""Which order the sums of a wgmma kernel follow: everything that fixes the bits of its results."""

from __future__ import annotations

from ptxgen.families.wgmma.config import WgmmaConfig
from ptxgen.problem import Problem


def summation_key(problem: Problem, config: WgmmaConfig) -> str:
    """Names the order in which a kernel adds up each output; see Family.summation_key.

    Scaled weights go through one accumulator in the order of K, k16 by k16, whatever the tiles are;
    only a split of K over CTAs cuts that sum. A stage always holds one packed K block.
    """
    return "wgmma in order of K" if config.split_k == 1 else f"wgmma split_k={config.split_k}"
