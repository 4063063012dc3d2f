"""Which wgmma_tma configs are worth trying for a batch size, and the default without any tuning.

The knobs' full product has hundreds of thousands of points; what is left out here lost everywhere on
an H200 (docs/kernel-log.md, 17 to 20): more splits than fill the GPU, rings of two slots for small
tiles, multicast of few tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import TypedDict

from ptxgen.arch import ArchSpec
from ptxgen.errors import ConfigError
from ptxgen.families.wgmma_tma.config import KNOBS, WgmmaTmaConfig
from ptxgen.families.wgmma_tma.rules import violations
from ptxgen.problem import Problem

MIN_M = 17
"""Up to 16 tokens mma.sync is the faster one in every cell (H200, 2026-11-29)."""

SMS = 132
"""Of H100 SXM, H200 and GH200: persistent grids are made for it. Elsewhere such a grid runs in two
waves, and the configs with a CTA for each tile remain."""

NARROW_COST, NARROW_WALK_COST, SMALL_COST = 1.12, 1.25, 1.08
"""What 64 features a CTA cost (activations are read more often), the same in a grid that walks tiles, and
a tile under 128 x 256 (H200, 2026-11-29 and 30)."""

SPLIT_COST, EXCHANGE_INPUTS = 1.1, 900
"""What a split of K costs: a share, and at least as much as so many inputs, for CTAs exchange sums whatever
K is. At K = 4,096 two CTAs of 128 features took 5 to 9 % more time than one of 64, at 8,192 as much (H200,
2026-11-30)."""

SHARED_FILL = 0.85
"""Fill of the last round above which sharing its tiles cannot pay: meeting costs 3-8 us (H200)."""

SHARED_TOKENS = 1024
"""From here on multicast to a pair of CTAs pays in some layers: 3-5 % at 4,096 tokens of 57344 x 8192
and 8192 x 28672; below it never did (H200, 2026-11-30)."""

FEW_TOKENS = 32
"""Up to it a layer of more than 256 features an SM is better cut into tiles of 64, three CTAs an SM: 79 us
against 107 at 57344 x 8192, M = 32 (H200, 2026-11-30)."""

SMALL_TOKENS = 64
"""Up to it the default is one that won where an SM has as many features to do."""

FEATURE_SHARES = ((64, 1, 1), (128, 1, 1), (128, 2, 1), (192, 3, 1), (256, 2, 1), (256, 4, 1))
"""block_n, the warpgroups that share it out, and warpgroups_k. Tiles of 320 to 448 features by five to
seven warpgroups won nowhere, from 2 % slower on (docs/kernel-log.md, 54)."""

TURN_SHARES = ((64, 1, 2), (128, 1, 2), (128, 2, 2))
"""The same with warpgroups that take the stages in turns, for small tiles."""

TURN_MAX_M = 128
"""Above it one warpgroup keeps the tensor cores busy: at 128 tokens its dequantization is hidden (H200,
2026-11-30)."""


def _numbers(knob: str) -> list[int]:
    return [int(choice) for choice in KNOBS[knob]]


def block_m_choices(m: int) -> tuple[int, ...]:
    """Tiles of tokens worth trying: the one that covers the batch, and that of half its size."""
    sizes = _numbers("block_m")
    covering = min((size for size in sizes if size >= m), default=max(sizes))
    halves = [size for size in sizes if size * 2 == covering and size >= 64]
    return (*halves, covering)


def candidates(problem: Problem, arch: ArchSpec, m: int) -> Iterator[WgmmaTmaConfig]:
    """Every legal config worth trying for batches of up to m, in a fixed order."""
    if m < MIN_M or not arch.has_wgmma:
        return
    shares = FEATURE_SHARES + (TURN_SHARES if m <= TURN_MAX_M else ())
    for block_m, (block_n, warpgroups, warpgroups_k) in product(block_m_choices(m), shares):
        for schedule in _schedules(problem, m, block_m, block_n):
            for num_stages, chunk in product(_numbers("num_stages"), _numbers("chunk")):
                if num_stages == 2 and block_m * block_n < 128 * 128:
                    continue
                config = WgmmaTmaConfig(
                    block_m=block_m,
                    block_n=block_n,
                    warpgroups=warpgroups,
                    warpgroups_k=warpgroups_k,
                    num_stages=num_stages,
                    chunk=chunk,
                    **schedule,
                )
                if not violations(problem, config, arch):
                    yield config


class _Schedule(TypedDict):
    """How tiles are given to CTAs: these knobs of WgmmaTmaConfig."""

    split_k: int
    multicast: int
    min_ctas: int
    max_ctas: int
    raster: int
    stream_k: bool


def _schedules(problem: Problem, m: int, block_m: int, block_n: int) -> Iterator[_Schedule]:
    """Schedules that suit the number of tiles."""
    m_tiles = -(-m // block_m)
    tiles = m_tiles * -(-problem.n // block_n)
    rasters = (1, 8) if m_tiles > 4 else (1,)  # few rows of tiles: all at once
    for min_ctas in (1, 2):
        for split_k in (1, 2, 4, 8):
            if split_k == 1 or tiles * split_k <= 2 * SMS + 32:
                yield _Schedule(
                    split_k=split_k,
                    multicast=1,
                    min_ctas=min_ctas,
                    max_ctas=0,
                    raster=1,
                    stream_k=False,
                )
        ctas = SMS * min_ctas
        walks = [(1, False)] if tiles > ctas else []
        shares = [(1, True)] if 0 < tiles % ctas < SHARED_FILL * ctas and tiles < 4 * ctas else []
        pairs = [(2, False)] if walks and m >= SHARED_TOKENS and min_ctas == 1 else []
        for raster, (multicast, stream_k) in product(rasters, walks + shares + pairs):
            yield _Schedule(
                split_k=1,
                multicast=multicast,
                min_ctas=min_ctas,
                max_ctas=ctas,
                raster=raster,
                stream_k=stream_k,
            )


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


def _small_batch(n: int, block_m: int, num_sms: int) -> Iterator[WgmmaTmaConfig]:
    """What won at 32 or 64 tokens, plain and chained, by the features that each SM has to do.

    Chosen from 966 recorded trials of eight layers (tests/data/recorded-h200-m32-up.jsonl.gz): it takes
    1.1 % more time than the fastest of a cell in the mean, 7 % at most. The choices of the ladder for
    larger batches took 10 % and, in two chains, 66 and 75 % more.
    """
    tile = WgmmaTmaConfig(
        block_m=block_m,
        block_n=64,
        warpgroups=1,
        num_stages=8,
        chunk=2,
        split_k=2,
        multicast=1,
        min_ctas=1,
        max_ctas=0,
    )
    if block_m <= FEW_TOKENS:
        yield from _few_tokens(n, num_sms, tile)
    elif n <= 32 * num_sms:
        yield tile
    elif n <= 48 * num_sms:
        yield replace(tile, min_ctas=2, num_stages=4)
    elif n <= 64 * num_sms:
        yield replace(tile, block_n=128, warpgroups_k=2, chunk=4)
    elif -(-n // 192) * tile.split_k <= num_sms:
        yield replace(tile, block_n=192, warpgroups=3, num_stages=6)


def _few_tokens(n: int, num_sms: int, tile: WgmmaTmaConfig) -> Iterator[WgmmaTmaConfig]:
    """The same up to FEW_TOKENS."""
    if n <= 32 * num_sms:
        # One CTA an SM: with a shorter ring two of a chain fit, and some SMs get two, others none.
        yield replace(tile, warpgroups_k=2, chunk=4)
    elif n <= 64 * num_sms:
        yield replace(tile, min_ctas=2)
    elif n > 256 * num_sms:
        yield replace(tile, num_stages=4, chunk=4, split_k=1)
    elif n >= 192 * num_sms:
        # Two CTAs an SM need 168 registers or less. In chunks of four NVRTC 13.0 takes 176 since there
        # are two ways to dequantize, and one CTA an SM takes 28 % longer; in chunks of two it takes 130.
        yield replace(tile, block_n=128, num_stages=5, split_k=1, min_ctas=2)


def _default_ladder(problem: Problem, m: int, num_sms: int) -> Iterator[WgmmaTmaConfig]:
    """The tile and split whose waves do least work, with the deepest ring that fits."""
    covering = min((size for size in (16, 32, 64, 128, 256) if size >= m), default=256)
    tokens = (256, 128) if covering == 256 else (covering,)

    def ctas(block_m: int, block_n: int, split_k: int) -> int:
        return -(-m // block_m) * -(-problem.n // block_n) * split_k

    if covering <= SMALL_TOKENS:
        yield from _small_batch(problem.n, covering, num_sms)

    shares = ((256, 2), (192, 3), (128, 2), (64, 1))
    # 128 x 256 has two row blocks of 64 sums: zero points or whole-K scales would spill a few bytes.
    plain = problem.zero == "sym" and not problem.whole_k
    choices = [
        (block_m, share, split_k)
        for block_m, share, split_k in product(tokens, shares, (1, 2))
        if block_m * share[0] <= 256 * 128
        and (plain or (block_m, share[0]) != (128, 256))
        and (split_k == 1 or ctas(block_m, share[0], 1) < num_sms)  # else it would only add waves
    ]

    def work(choice: tuple[int, tuple[int, int], int]) -> float:
        block_m, (block_n, _), split_k = choice
        waves = -(-ctas(block_m, block_n, split_k) // num_sms)
        narrow = 1.0
        if block_n == 64:
            narrow = NARROW_COST if waves == 1 else NARROW_WALK_COST
        small = SMALL_COST if block_m * block_n < 128 * 256 else 1.0
        split = 1.0
        if split_k > 1:
            split = max(SPLIT_COST, 1 + EXCHANGE_INPUTS / problem.k)
        return waves * block_m * block_n / split_k * narrow * small * split

    for block_m, (block_n, warpgroups), split_k in sorted(choices, key=work):
        persistent = split_k == 1 and ctas(block_m, block_n, 1) > num_sms
        # One warpgroup alone cannot hide its own waits: two take turns.
        turns = (block_m, block_n, split_k) == (128, 64, 1) and m <= TURN_MAX_M and not persistent
        many_rows = m > 4 * block_m
        for num_stages in (6, 4) if turns else (5, 4, 3, 2):
            yield WgmmaTmaConfig(
                block_m=block_m,
                block_n=block_n,
                warpgroups=warpgroups,
                warpgroups_k=2 if turns else 1,
                num_stages=num_stages,
                chunk=4 if block_m <= 64 or block_n == 64 else 2,
                split_k=split_k,
                multicast=1,
                min_ctas=1,
                max_ctas=SMS if persistent else 0,
                raster=8 if persistent and many_rows else 1,
            )
