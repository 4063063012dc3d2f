"""Which wgmma_tma configs are worth trying for a batch size, and the default without any tuning."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from ptxgen.arch import ArchSpec
from ptxgen.config import Scalar
from ptxgen.errors import ConfigError
from ptxgen.families.wgmma_tma.config import KNOBS, WgmmaTmaConfig
from ptxgen.families.wgmma_tma.rules import violations
from ptxgen.problem import Problem

MIN_M = 17
"""Up to 16 tokens mma.sync is the faster one in every cell (H200, 2026-11-29)."""


def block_m_choices(m: int) -> tuple[int, ...]:
    """Tiles of tokens worth trying: the one that covers the batch, and those of half its size."""
    sizes = [int(choice) for choice in KNOBS["block_m"]]
    covering = min((size for size in sizes if size >= m), default=max(sizes))
    return tuple(size for size in sizes if size <= covering and size * 2 >= covering)


def default_config(problem: Problem, arch: ArchSpec, m: int, num_sms: int) -> WgmmaTmaConfig:
    """A safe, decent config for a batch of m without any tuning.

    Raises:
        ConfigError: nothing of the ladder is legal, as on an arch without wgmma.
    """
    for config in _default_ladder(problem, m, num_sms):
        if not violations(problem, config, arch):
            return config
    raise ConfigError(
        f"no default config of family 'wgmma_tma' is legal for {problem.key()} at M = {m} on "
        f"{arch.name}; run ptxtune space to see the rules."
    )


def _default_ladder(problem: Problem, m: int, num_sms: int) -> Iterator[WgmmaTmaConfig]:
    """Defaults from the most to the least demanding; the first legal one is taken."""
    block_m = min((size for size in (16, 32, 64, 128, 256) if size >= m), default=256)
    m_tiles = -(-m // block_m)

    def tiles(block_n: int) -> int:
        return m_tiles * -(-problem.n // block_n)

    wide = 128 if block_m == 256 else 256
    filling = [block_n for block_n in (wide, 128) if 4 * tiles(block_n) >= 3 * num_sms]
    block_n = filling[0] if filling else 128
    split_k = 1 if filling else (2 if tiles(128) * 4 > num_sms else 4)
    persistent = 132 if tiles(block_n) > num_sms and split_k == 1 else 0
    for split, num_stages, chunk in product((split_k, 1), (4, 3, 2), (2,)):
        yield WgmmaTmaConfig(
            block_m=block_m,
            block_n=block_n,
            warpgroups=2,
            num_stages=num_stages,
            chunk=chunk,
            split_k=split,
            min_ctas=1,
            max_ctas=persistent if split == 1 else 0,
            raster=8 if m_tiles > 4 else 1,
        )


def candidates(problem: Problem, arch: ArchSpec, m: int) -> Iterator[WgmmaTmaConfig]:
    """Every legal config worth trying for batches of up to m, in a fixed order."""
    if m < MIN_M or not arch.has_wgmma:
        return
    block_ms = block_m_choices(m)
    few_rows = m <= 4 * max(block_ms)  # few rows of tiles: all at once
    rasters: tuple[Scalar, ...] = (1,) if few_rows else (1, 8)
    knobs = {**KNOBS, "block_m": block_ms, "raster": rasters}
    for values in product(*knobs.values()):
        config = WgmmaTmaConfig.from_knobs(dict(zip(knobs, values, strict=True)))
        if not violations(problem, config, arch):
            yield config
