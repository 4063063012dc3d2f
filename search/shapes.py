"""Shapes: random problems, batches and legal configs; each round is a function of seed and number.

What is drawn is meant to be awkward: features and batches just off a tile, a few groups, whole K.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from ptxgen.arch import ArchSpec
from ptxgen.config import KernelConfig
from ptxgen.families.base import Family
from ptxgen.problem import GROUP_SIZES, K_MULTIPLE, N_MULTIPLE, Dtype, Problem, Zero

MAX_WEIGHTS = 80_000_000
"""Of a problem: 40 MB in 4 bits."""

MAX_N, MAX_K = 152_064, 32_768
LARGE = 1024
"""n and k start here every other time: small ones are most of a logarithmic range."""

MAX_M = 4099
MAX_ELEMENTS = 1 << 25
"""Of the activations and of the output: a reference in FP64 takes 256 MB."""

MAX_WORKSPACE_BYTES = 128 << 20
"""Of one kernel: the worker keeps those of some dozens of kernels at a time."""

BATCHES = 3
CONFIGS = 24
"""Of a round. To list what a family offers for one batch takes longer than to check ten kernels."""

WHOLE_PRODUCT = 0.25
"""Share of the configs drawn from all combinations of knobs, be they offered to a search or not."""

PRODUCT_TRIES = 3000
"""Of the mma family's combinations one in 150 is legal, of wgmma_tma's one in 50."""

TILES = (8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 256)
"""Of tokens; batches near their multiples have the tails."""


@dataclass(frozen=True, slots=True)
class Round:
    """One problem and what is checked on it: every config at every batch.

    Attributes:
        problem: what is computed.
        batches: distinct values of M.
        configs: distinct legal configs; none where a draw gave none.
    """

    problem: Problem
    batches: tuple[int, ...]
    configs: tuple[KernelConfig, ...]


def draw_round(seed: int, number: int, arch: ArchSpec, families: Mapping[str, Family]) -> Round:
    """The round of that number.

    Args:
        seed: of all rounds.
        number: which of them; they do not depend on one another.
        arch: configs are legal for it.
        families: each is as likely as any other.
    """
    rng = random.Random(f"{seed}/{number}")  # noqa: S311 (no secret)
    problem = draw_problem(rng)
    batches = tuple(dict.fromkeys(draw_m(rng, problem) for _ in range(BATCHES)))
    drawn = _configs(rng, problem, arch, batches, families)
    return Round(problem, batches, tuple(dict.fromkeys(drawn)))


def draw_problem(rng: random.Random) -> Problem:
    """A problem of up to MAX_WEIGHTS: any group size, dtype, zero points, with bias or without."""
    group = rng.choice((*GROUP_SIZES, 0))  # 0: whole K
    unit = group or K_MULTIPLE
    k = _multiple(_logarithmic(rng, unit, MAX_K), unit)
    most = min(MAX_N, MAX_WEIGHTS // k)
    step = rng.choice((N_MULTIPLE, N_MULTIPLE, 128))  # one in three fills its tiles
    n = _multiple(_logarithmic(rng, N_MULTIPLE, most), step)
    return Problem(
        n=n,
        k=k,
        group_size=group or k,
        dtype=rng.choice(get_args(Dtype)),
        zero=rng.choice(get_args(Zero)),
        bias=rng.random() < 0.5,
    )


def draw_m(rng: random.Random, problem: Problem) -> int:
    """A batch of 1..MAX_M whose tensors fit: 1..65, near a multiple of a tile, or anything."""
    kind = rng.random()
    if kind < 0.4:
        m = rng.randint(1, 65)
    elif kind < 0.8:
        m = rng.choice(TILES) * rng.randint(1, 16) + rng.choice((-1, 0, 1))
    else:
        m = rng.randint(1, MAX_M)
    most = min(MAX_M, MAX_ELEMENTS // max(problem.n, problem.k))
    return m if m <= most else rng.randint(1, most)


def _configs(
    rng: random.Random,
    problem: Problem,
    arch: ArchSpec,
    batches: Sequence[int],
    families: Mapping[str, Family],
) -> Iterator[KernelConfig]:
    """Up to CONFIGS legal configs; what a family offers is listed once a batch."""
    offered: dict[tuple[str, int], list[KernelConfig]] = {}
    able = list(families)  # an arch may rule out a whole family
    for place in range(CONFIGS):
        if not able:
            return
        family = families[rng.choice(able)]
        key = (family.name, batches[place % len(batches)])
        config: KernelConfig | None = None
        if rng.random() >= WHOLE_PRODUCT:
            if key not in offered:
                offered[key] = list(family.candidates(problem, arch, key[1]))
            config = rng.choice(offered[key]) if offered[key] else None
        config = config or draw_config(rng, family, problem, arch)
        if config is None:
            able.remove(family.name)
            continue
        plan = family.plan(problem, config, arch)
        if plan.workspace_bytes(max(batches)) <= MAX_WORKSPACE_BYTES:
            yield config


def draw_config(
    rng: random.Random, family: Family, problem: Problem, arch: ArchSpec
) -> KernelConfig | None:
    """A legal config of the whole product of a family's knobs; None where no try was legal."""
    knobs = family.knobs()
    for _ in range(PRODUCT_TRIES):
        values = {name: rng.choice(choices) for name, choices in knobs.items()}
        config = family.config_type.from_knobs(values)
        if not family.violations(problem, config, arch):
            return config
    return None


def _logarithmic(rng: random.Random, least: int, most: int) -> float:
    """Of least..most, equally likely in every octave; every other time LARGE or more."""
    low = LARGE if least < LARGE < most and rng.random() < 0.5 else least
    return math.exp(rng.uniform(math.log(low), math.log(most)))


def _multiple(value: float, unit: int) -> int:
    """The multiple of unit below a value, at least one unit."""
    return max(1, int(value / unit)) * unit
