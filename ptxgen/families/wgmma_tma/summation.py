"""Which order the sums of a wgmma_tma kernel follow: everything that fixes the bits of its results."""

from __future__ import annotations

from ptxgen.families.wgmma_tma.config import WgmmaTmaConfig
from ptxgen.problem import Problem


def summation_key(problem: Problem, config: WgmmaTmaConfig) -> str:
    """Names the order in which a kernel adds up each output; see Family.summation_key.

    The same order as the wgmma family's: one accumulator in the order of K, cut by a split of K only,
    whose parts are added in the order of the CTAs. A whole-K scale acts elsewhere: on the sum of the
    parts, where wgmma scales each part. Weights with a scale of their own are in another unit, and
    where one is a subnormal number in one of the two units only, the bits differ.
    """
    name = "wgmma" if problem.whole_k else "wgmma_tma"
    if config.stream_k:  # where a tile is cut depends on the number of tiles, so on M
        return f"{name} stream_k {config.key()}"
    if config.warpgroups_k > 1:
        turns = f"{name}, warpgroups_k={config.warpgroups_k} stages in turns"
        return f"{turns}, split_k={config.split_k}"
    if config.split_k == 1:
        return f"{name} in order of K"
    scaled = ", then scaled" if problem.whole_k else ""
    return f"{name} split_k={config.split_k}{scaled}"
