"""Which mma configs are worth trying for a batch size, and the default without any tuning."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product, takewhile

from ptxgen.arch import ArchSpec
from ptxgen.config import Scalar
from ptxgen.errors import ConfigError
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
    for tile in _tiles(m):
        for scale_on in KNOBS["scale_on"]:
            yield from _legal_of(tile, str(scale_on), problem, arch)


def _tiles(m: int) -> Iterator[MmaConfig]:
    """One config a tile: the least demanding one, with the fewest stages and CTAs."""
    least = {"num_stages": 2, "split_k": 1, "scale_on": "weights"}
    rest = {"weights_first": False, "min_ctas": 1}
    tile_knobs = {name: KNOBS[name] for name in KNOBS if name not in {**least, **rest}}
    tile_knobs["block_m"] = block_m_choices(m)
    for values in product(*tile_knobs.values()):
        tile = dict(zip(tile_knobs, values, strict=True))
        config = MmaConfig.from_knobs({**tile, **least, **rest})
        if not _wasteful(config):
            yield config


def _legal_of(
    tile: MmaConfig, scale_on: str, problem: Problem, arch: ArchSpec
) -> Iterator[MmaConfig]:
    """The legal configs of a tile.

    The product has millions of points, so this relies on the rules being monotonic: more stages,
    splits or CTAs never make an illegal config legal, splits are independent of the other two, and
    weights_first plays no part.
    """

    least = {name: getattr(tile, name) for name in KNOBS} | {"scale_on": scale_on}

    def legal(**knobs: Scalar) -> bool:
        return not violations(problem, MmaConfig(**{**least, **knobs}), arch)

    if not legal():
        return
    splits = list(takewhile(lambda split: legal(split_k=split), KNOBS["split_k"]))
    for stages in takewhile(lambda count: legal(num_stages=count), KNOBS["num_stages"]):
        ctas = [n for n in KNOBS["min_ctas"] if legal(num_stages=stages, min_ctas=n)]
        for rest in product(splits, KNOBS["weights_first"], ctas):
            split_k, weights_first, min_ctas = rest
            yield MmaConfig(
                tile.block_m, tile.warp_m, tile.block_n, tile.warp_n, tile.block_k, tile.warps_k,
                int(stages), int(split_k), scale_on, bool(weights_first), int(min_ctas),
            )  # fmt: skip


def _wasteful(config: MmaConfig) -> bool:
    """Points that never won on an H200 (2026-11-29): too few or too many threads, tiny warp tiles."""
    warps = config.block_m // config.warp_m * (config.block_n // config.warp_n) * config.warps_k
    return not 2 <= warps <= 16


def default_config(problem: Problem, arch: ArchSpec, m: int, num_sms: int) -> MmaConfig:
    """A safe, decent config for a batch of m without any tuning.

    Raises:
        ConfigError: nothing of the ladder below is legal (no such problem is known).
    """
    for config in _default_ladder(problem, m, num_sms):
        if not violations(problem, config, arch):
            return config
    raise ConfigError(
        f"no default config of family 'mma' is legal for {problem.key()} at M = {m} on {arch.name}; "
        f"run ptxtune space to see the rules."
    )


def _default_ladder(problem: Problem, m: int, num_sms: int) -> Iterator[MmaConfig]:
    """Defaults from the most to the least demanding; the first legal one is taken."""
    scale_on = "accumulators" if problem.whole_k or m <= 16 else "weights"
    if m <= 16:
        block_m = min(size for size in (1, 2, 4, 8, 16) if size >= m or size == 16)
        tiles = problem.n // 64
        narrow, wide = (32, 64) if tiles < num_sms else (64, 32)
        for warp_n, warps_k, num_stages in product((narrow, wide, 16), (8, 4, 2, 1), (4, 3, 2)):
            yield MmaConfig(
                block_m, block_m, warp_n, warp_n, 128 * warps_k, warps_k, num_stages, 1,
                scale_on, True, 1,
            )  # fmt: skip
        return
    block_m = min(size for size in (32, 64, 128) if size >= m or size == 128)
    for block_n, num_stages in product((128, 64), (3, 2)):
        yield MmaConfig(
            block_m, 32, block_n, 32, 128, 1, num_stages, 1, scale_on, True, 1
        )  # fmt: skip
