"""Which wgmma configs are worth trying for a batch size, and the default without any tuning."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from ptxgen.arch import ArchSpec
from ptxgen.config import Scalar
from ptxgen.errors import ConfigError
from ptxgen.families.wgmma.config import KNOBS, WgmmaConfig
from ptxgen.families.wgmma.rules import violations
from ptxgen.problem import Problem

MIN_M = 17
"""Up to 16 tokens mma.sync is the faster one in every cell (H200, 2026-11-29)."""

CLUSTER_SPLITS = (2, 4, 8)
"""Splits that are also tried as a cluster: other sizes leave more SMs of a GPC idle."""


MAX_M = 64
"""Above it wgmma_tma was the faster one in every cell, by 10-40 % (H200, 2026-11-29)."""

WORTH_TRYING: dict[str, tuple[Scalar, ...]] = {
    "num_stages": (3, 4, 5),
    "split_k": (1, 2, 4, 8),
    "weights_first": (False,),
    "min_ctas": (1,),
    "raster": (1,),
}
"""Knobs that a search does not try in full, beside wgmma_tma."""


def block_m_choices(m: int) -> tuple[int, ...]:
    """Tiles of tokens worth trying: the one that covers the batch, and those of half its size."""
    sizes = [int(choice) for choice in KNOBS["block_m"]]
    covering = min((size for size in sizes if size >= m), default=max(sizes))
    return tuple(size for size in sizes if 16 <= size <= covering and size * 2 >= covering)


def default_config(problem: Problem, arch: ArchSpec, m: int, num_sms: int) -> WgmmaConfig:
    """A safe, decent config for a batch of m without any tuning.

    The largest tile of features that still fills the GPU; where none does, K is split as well.

    Raises:
        ConfigError: nothing of the ladder is legal, as on an arch without wgmma.
    """
    for config in _default_ladder(problem, m, num_sms):
        if not violations(problem, config, arch):
            return config
    raise ConfigError(
        f"no default config of family 'wgmma' is legal for {problem.key()} at M = {m} on "
        f"{arch.name}; run ptxtune space to see the rules."
    )


def _default_ladder(problem: Problem, m: int, num_sms: int) -> Iterator[WgmmaConfig]:
    """Defaults from the most to the least demanding; the first legal one is taken."""
    block_m = min((size for size in (16, 32, 64, 128) if size >= m), default=128)
    m_tiles = -(-m // block_m)

    def tiles(block_n: int) -> int:
        return m_tiles * -(-problem.n // block_n)

    filling = [block_n for block_n in (256, 128, 64) if 4 * tiles(block_n) >= 3 * num_sms]
    block_n = filling[0] if filling else 128
    fitting = [split for split in (4, 3, 2) if tiles(block_n) * split <= 2 * num_sms]
    splits = (1,) if filling else (*fitting, 1)
    for split_k, num_stages, narrow in product(splits, (4, 3), (block_n, 64)):
        yield WgmmaConfig(
            block_m=block_m,
            block_n=narrow,
            warpgroups=1 if narrow == 64 else 2,
            num_stages=num_stages,
            split_k=split_k,
            weights_first=False,
            min_ctas=1,
        )


def candidates(problem: Problem, arch: ArchSpec, m: int) -> Iterator[WgmmaConfig]:
    """Every legal config worth trying for batches of up to m, in a fixed order."""
    if not MIN_M <= m <= MAX_M or not arch.has_wgmma:
        return
    block_ms = block_m_choices(m)
    knobs = {**KNOBS, **WORTH_TRYING, "block_m": block_ms}
    for values in product(*knobs.values()):
        config = WgmmaConfig.from_knobs(dict(zip(knobs, values, strict=True)))
        if config.cluster and config.split_k not in CLUSTER_SPLITS:
            continue
        if not violations(problem, config, arch):
            yield config
