"""Reduced problems: small layers that still reach every edge of a config's tile, ring and grid."""

from __future__ import annotations

from dataclasses import dataclass

from ptxgen.arch import ArchSpec
from ptxgen.config import KernelConfig
from ptxgen.cpucheck.tile import Tile
from ptxgen.families import violations
from ptxgen.problem import GROUP_SIZES, Dtype, Problem, Zero

WHOLE_K = -1

DTYPES: tuple[Dtype, ...] = ("fp16", "bf16")
ZEROS: tuple[Zero, ...] = ("sym", "int")
GROUPS = (*GROUP_SIZES, WHOLE_K)
BIASES = (False, True)
M_KINDS = ("one", "whole", "under", "over")
N_KINDS = ("whole", "under", "over")
K_KINDS = ("whole", "blocks", "inputs")
RINGS = ("single", "full", "turns")

MAX_WORK = 60_000
"""Largest estimate of warp instructions of a case, so that it takes seconds."""

DEQUANT_WORK = 24
"""Warp instructions for a row block and k16 step, tokens apart; and for each n8 tile, below."""

TILE_WORK = 2


@dataclass(frozen=True, slots=True)
class Kinds:
    """What a reduced problem is to exercise.

    Attributes:
        dtype: as in Problem.
        zero: as in Problem.
        group: group size; WHOLE_K for one group a row.
        bias: as in Problem.
        m: batch of "one" token, the "whole" tile, one token "under" it or "over" it (a second,
            nearly empty tile).
        n: the "whole" tile of features, 8 "under" it or 8 "over" it.
        k: "whole" stages; a last stage that lacks packed "blocks"; or one that lacks "inputs" of a
            packed block.
        ring: stages a CTA runs: a "single" one, a "full" ring, or more than two "turns" of it.
    """

    dtype: Dtype
    zero: Zero
    group: int
    bias: bool
    m: str
    n: str
    k: str
    ring: str


@dataclass(frozen=True, slots=True)
class Case:
    """One check: a config on a reduced problem for an arch."""

    problem: Problem
    config: KernelConfig
    arch: ArchSpec
    m: int

    def __str__(self) -> str:
        return f"{self.problem.key()} M={self.m} {self.arch.name} {self.config.key()}"


def reduced_case(config: KernelConfig, arch: ArchSpec, kinds: Kinds) -> Case | list[str]:
    """The smallest case of these kinds, or the reasons why there is none."""
    tile = Tile.of(config)
    m, n, k = _batch(tile, kinds.m), _features(tile, kinds.n), _inputs(tile, kinds)
    sizes = (("M", kinds.m, m), ("N", kinds.n, n), ("K", kinds.k, k))
    reasons = [f"{name} has no kind {kind!r} here" for name, kind, size in sizes if size is None]
    if m is None or n is None or k is None:
        return reasons
    group = k if kinds.group == WHOLE_K else kinds.group
    if k % group or (kinds.group == WHOLE_K and k in GROUP_SIZES):
        return [f"K = {k} has no groups of {kinds.group}"]
    problem = Problem(n, k, group, kinds.dtype, kinds.zero, kinds.bias)
    reasons = violations(problem, config, arch)
    if (amount := _work(problem, tile, m)) > MAX_WORK:
        reasons.append(f"{amount} warp instructions are more than {MAX_WORK}")
    return reasons or Case(problem, config, arch, m)


def work(problem: Problem, config: KernelConfig, m: int) -> int:
    """A rough count of the warp instructions of a launch; it only has to tell small from large."""
    return _work(problem, Tile.of(config), m)


def _work(problem: Problem, tile: Tile, m: int) -> int:
    ctas = -(-m // tile.block_m) * -(-problem.n // tile.block_n)
    row_blocks = -(-tile.block_n // 16) * max(1, tile.block_m // tile.warp_m)
    per_step = DEQUANT_WORK + TILE_WORK * -(-tile.warp_m // 8)
    steps = -(-problem.k // tile.block_k) * tile.block_k // 16
    return ctas * row_blocks * per_step * steps


def _batch(tile: Tile, kind: str) -> int | None:
    size = {"one": 1, "whole": tile.block_m, "under": tile.block_m - 1, "over": tile.block_m + 1}
    return size[kind] or None


def _features(tile: Tile, kind: str) -> int | None:
    return {"whole": tile.block_n, "under": tile.block_n - 8, "over": tile.block_n + 8}[
        kind
    ] or None


def _inputs(tile: Tile, kinds: Kinds) -> int | None:
    """K: whole stages less the tail that the kind asks for."""
    stages = {"single": 1, "full": tile.num_stages, "turns": 2 * tile.num_stages + 1}[kinds.ring]
    total = stages * tile.split_k
    if tile.split_k > 1:
        total += 1  # the CTAs along K get different numbers of stages
    whole = total * tile.block_k
    if kinds.k == "whole":
        return whole
    if kinds.k == "blocks":
        return whole - 128 if tile.block_k > 128 else None
    if kinds.group == 128:
        return None  # a group of 128 never ends inside a packed block
    return whole - (64 if kinds.group == 64 else 32)
