"""Which mma configs are worth trying for a batch size, and the default without any tuning."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from ptxgen.arch import ArchSpec
from ptxgen.families.mma.config import KNOBS, MmaConfig
from ptxgen.families.mma.rules import violations
from ptxgen.problem import Problem

MAX_TOKEN_TILE_WASTE = 2
"""A CTA's tile may be at most this many times the batch, rounded up to n8 tiles."""


def block_m_choices(m: int) -> tuple[int, ...]:
    """Tiles of tokens worth trying for batches of up to m: one tile, or the larger ones in several."""
    sizes = [int(choice) for choice in KNOBS["block_m"]]
    covering = min((size for size in sizes if size >= m), default=max(sizes))
    if covering <= 8:
        return (covering,)
    return tuple(size for size in sizes if size >= 8 and covering // 4 <= size <= covering)


def candidates(problem: Problem, arch: ArchSpec, m: int) -> Iterator[MmaConfig]:
    """Every legal config worth trying for batches of up to m, in a fixed order."""
    for config in _tiles(m):
        if not violations(problem, config, arch):
            yield config


def _tiles(m: int) -> Iterator[MmaConfig]:
    knobs = {**KNOBS, "block_m": block_m_choices(m)}
    names = tuple(knobs)
    for values in product(*(knobs[name] for name in names)):
        config = MmaConfig.from_knobs(dict(zip(names, values, strict=True)))
        if not _wasteful(config):
            yield config


def _wasteful(config: MmaConfig) -> bool:
    """Points that never won on an H200 (2026-11-29): too few or too many threads, tiny warp tiles."""
    warps = config.block_m // config.warp_m * (config.block_n // config.warp_n) * config.warps_k
    return not 2 <= warps <= 16


def default_config(problem: Problem, arch: ArchSpec, m: int, num_sms: int) -> MmaConfig:
    """A safe, decent config for a batch of m without any tuning."""
    raise NotImplementedError
