"""Which mma configs are worth trying for a batch size, and the default without any tuning."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from ptxgen.arch import ArchSpec
from ptxgen.config import Scalar
from ptxgen.errors import ConfigError
from ptxgen.families.mma.config import KNOBS, MmaConfig
from ptxgen.families.mma.rules import violations
from ptxgen.problem import Problem

MIN_WARPS, MAX_WARPS = 4, 16

# What follows prunes by measurement: an H200, 2026-11-29, some 8,000 configs over seven layers, cold L2
# (docs/kernel-log.md). A choice is left out where its best config lost 5 % or more in every cell.
CLUSTER_MIN_M = 5
"""Below, a cluster that splits K gained nothing on an H200 (2026-11-29)."""

SUBNORMAL_MAX_M = 8
"""Above, raw nibbles gained nothing: two n8 tiles want two more mma a k16 step (2026-11-30)."""

LARGE = 192
"""Features an SM of a layer that is better cut into many small CTAs."""

DECODE_MAX_M = 16
SKINNY_MAX_M = 64

DECODE: dict[str, tuple[Scalar, ...]] = {
    "warps_m": (1,),
    "warps_n": (1, 2),
    "warp_n": (16, 32, 48, 64, 80, 112),
    "warps_k": (2, 4, 8, 16),
    "warp_k": (128, 256),
    "num_stages": (2, 3, 4, 6),
    "split_k": (1, 2, 4),
    "scale_on": ("accumulators",),
    "weights_first": (False, True),
    "min_ctas": (1, 2),
    "trigger": ("start", "waited"),
}
SKINNY: dict[str, tuple[Scalar, ...]] = {
    "warps_m": (1, 2),
    "warps_n": (1, 2, 4, 8),
    "warp_n": (16, 32, 64),
    "warps_k": (1, 2, 4, 8),
    "warp_k": (128,),
    "num_stages": (2, 3, 4),
    "split_k": (1, 2, 4),
    "scale_on": ("accumulators", "weights"),
    "weights_first": (True,),
    "min_ctas": (1, 2),
    "trigger": ("start", "waited"),
}
WIDE: dict[str, tuple[Scalar, ...]] = {
    "warps_m": (1, 2),
    "warps_n": (2, 4, 8),
    "warp_n": (16, 32, 64),
    "warps_k": (1, 2),
    "warp_k": (128,),
    "num_stages": (2, 3, 4),
    "split_k": (1, 2, 4),
    "scale_on": ("weights",),
    "weights_first": (True,),
    "min_ctas": (1, 2),
    "trigger": ("start",),
}


def block_m_choices(m: int) -> tuple[int, ...]:
    """Tiles of tokens worth trying for batches of up to m: one tile that covers it, or half of that.

    Above 64 tokens a tile of 64 won in every cell, so 128 is the largest that is tried.
    """
    sizes = [int(choice) for choice in KNOBS["block_m"]]
    covering = min((size for size in sizes if size >= m), default=max(sizes))
    if covering < 8:
        return (covering, 8)
    halves = tuple(size for size in sizes if 8 < size < covering and size * 2 >= covering)
    return (*halves, covering)


def candidates(problem: Problem, arch: ArchSpec, m: int) -> Iterator[MmaConfig]:
    """Every legal config worth trying for batches of up to m, in a fixed order.

    None above SKINNY_MAX_M where there is wgmma, which took 16 % less time or better in every cell.
    """
    if arch.has_wgmma and m > SKINNY_MAX_M:
        return
    regime = DECODE if m <= DECODE_MAX_M else SKINNY if m <= SKINNY_MAX_M else WIDE
    if problem.whole_k:
        regime = {**regime, "scale_on": ("accumulators",)}
    clusters = (False, True) if arch.has_clusters and m >= CLUSTER_MIN_M else (False,)
    raw = problem.dtype == "fp16" and not problem.whole_k and m <= SUBNORMAL_MAX_M
    dequant = ("magic", "subnormal") if raw else ("magic",)
    regime = {**regime, "cluster": clusters, "dequant": dequant}
    names = tuple(regime)
    for block_m in block_m_choices(m):
        for values in product(*regime.values()):
            config = _from_regime(block_m, dict(zip(names, values, strict=True)))
            if config is not None and not violations(problem, config, arch):
                yield config


def _from_regime(block_m: int, choice: dict[str, Any]) -> MmaConfig | None:
    """A config from warp counts; None where the warps are too few, too many or uneven."""
    warps = choice["warps_m"] * choice["warps_n"] * choice["warps_k"]
    if not MIN_WARPS <= warps <= MAX_WARPS or block_m % choice["warps_m"]:
        return None
    if choice["trigger"] != "start" and not choice["weights_first"]:
        return None  # a late trigger only matters in a chain, where weights come first
    if choice["cluster"] and choice["split_k"] == 1:
        return None
    return MmaConfig(
        block_m=block_m,
        warp_m=block_m // choice["warps_m"],
        block_n=choice["warp_n"] * choice["warps_n"],
        warp_n=choice["warp_n"],
        block_k=choice["warp_k"] * choice["warps_k"],
        warps_k=choice["warps_k"],
        num_stages=choice["num_stages"],
        split_k=choice["split_k"],
        scale_on=choice["scale_on"],
        weights_first=choice["weights_first"],
        min_ctas=choice["min_ctas"],
        trigger=choice["trigger"],
        cluster=choice["cluster"],
        dequant=choice["dequant"],
    )


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
    """Defaults from the fastest to the least demanding; the first legal one is taken.

    The tiles are those that won or tied on the H200 (docs/kernel-log.md): narrow ones with K split
    over many warps where a layer has few features for the GPU, wide ones with small CTAs elsewhere.
    """
    if m <= DECODE_MAX_M:
        block_m = min(size for size in (1, 2, 4, 8, 16) if size >= m)
        warp_n, warps_k, num_stages = _decode_tile(problem.n, m, num_sms)
        tiles = product((warp_n, 32, 16), (warps_k, 4, 2), (num_stages, 2))
        yield from (_warp_split(block_m, *tile) for tile in tiles)
        return
    if m <= SKINNY_MAX_M and problem.n < LARGE * num_sms:
        yield from (_warp_split(32, 32, warps_k, 2) for warps_k in (4, 2))
    block_m = 32 if m <= 32 else 64
    scale_on = "accumulators" if problem.whole_k else "weights"
    for block_n, num_stages in product((128, 64), (3, 2)):
        yield MmaConfig(
            block_m=block_m,
            warp_m=block_m,
            block_n=block_n,
            warp_n=block_n // 4,
            block_k=128,
            warps_k=1,
            num_stages=num_stages,
            split_k=1,
            scale_on=scale_on,
            weights_first=False,
            min_ctas=1,
        )


def _decode_tile(n: int, m: int, num_sms: int) -> tuple[int, int, int]:
    """Features of a tile, warps along K and slots, by the features that each SM has to do.

    Chosen from 23,000 recorded trials of six layers at M = 1, 8 and 16 (fp16, bf16, zero points; H200,
    2026-11-30): plain, it takes 1.2 % more time than the fastest of a cell in the mean, 8 % at most; tiles
    of 32 features and 3 slots, or 64 and 3, took 10 and 39 % more.
    """
    share = n / num_sms
    if m > 8:
        widths = [int(choice) for choice in KNOBS["warp_n"]]
        rounds = -(-n // (max(widths) * num_sms)) if share > 80 else 1
        width = next(width for width in widths if width * rounds >= share)
        return (width, 8, 3) if share <= 80 else (width, 4, 2)
    if share <= 32:
        return (16 if share <= 16 else 32), 8, 3
    if share <= 48:
        return (16, 8, 2) if m <= 4 else (48, 8, 3)
    if share <= 64 or (m <= 4 and share < LARGE):
        return 32, 8, 2
    if share < LARGE:
        return 48, 8, 2
    return (48, 4, 2) if m <= 4 else (64, 4, 2)


def _warp_split(block_m: int, warp_n: int, warps_k: int, num_stages: int) -> MmaConfig:
    """A CTA whose warps all work on the same tile and split K."""
    return MmaConfig(
        block_m=block_m,
        warp_m=block_m,
        block_n=warp_n,
        warp_n=warp_n,
        block_k=128 * warps_k,
        warps_k=warps_k,
        num_stages=num_stages,
        split_k=1,
        scale_on="accumulators",
        weights_first=False,
        min_ctas=1,
    )
