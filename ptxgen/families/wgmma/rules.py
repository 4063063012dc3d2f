"""The one statement of which wgmma configs are legal, and why the others are not."""

from __future__ import annotations

from collections.abc import Iterator

from ptxgen.arch import ArchSpec
from ptxgen.families.choices import choice_violations, feature_share_violations
from ptxgen.families.mma.rules import MAX_GRID_Y, cluster_violations, resource_violations
from ptxgen.families.wgmma.config import KNOBS, WgmmaConfig
from ptxgen.families.wgmma.shape import WgmmaShape
from ptxgen.problem import Problem

MAX_ACCUMULATORS = 128
MIN_STAGES = 3


def violations(problem: Problem, config: WgmmaConfig, arch: ArchSpec) -> list[str]:
    """Why the config is illegal for the problem on the arch; empty where it is legal."""
    found = [*_choice_violations(config, arch)]
    if found:
        return found
    shape = WgmmaShape(problem, config)
    return [
        *_shape_violations(shape),
        *cluster_violations(config, arch),
        *resource_violations(shape, arch, MAX_ACCUMULATORS),
    ]


def _choice_violations(config: WgmmaConfig, arch: ArchSpec) -> Iterator[str]:
    if not arch.has_wgmma:
        yield f"wgmma needs sm_90a; {arch.name} does not have it"
    yield from choice_violations(config, KNOBS)
    yield from feature_share_violations(config.block_n, config.warpgroups)


def _shape_violations(shape: WgmmaShape) -> Iterator[str]:
    config = shape.config
    if config.split_k > shape.total_stages:
        yield f"split_k = {config.split_k} is more than the {shape.total_stages} stages of K"
    if shape.n_tiles > MAX_GRID_Y:
        yield f"{shape.n_tiles} tiles along N are more than the grid's {MAX_GRID_Y}"
