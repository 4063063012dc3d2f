"""From a real layer to a small one that a config treats alike: same tails and kinds, less of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import lcm

from ptxgen.config import KernelConfig
from ptxgen.cpucheck.tile import Tile
from ptxgen.problem import GROUP_SIZES, Problem
from ptxgen.weights.layout import BLOCK_K

TURNS = 2
"""Turns of the ring that each CTA makes at least, plus one stage."""


@dataclass(frozen=True, slots=True)
class Shrunk:
    """A problem and batch small enough to be interpreted."""

    problem: Problem
    m: int


def shrink(problem: Problem, config: KernelConfig, m: int) -> Shrunk:
    """The small problem for a config on a layer; what is small already stays as it is.

    N becomes a full tile, or one and the layer's tail; M likewise; K as many stages as make every
    CTA turn its ring twice, and the layer's tail. dtype, zero points, group size and bias stay.
    """
    tile = Tile.of(config)
    stages = (TURNS * tile.num_stages + 1) * tile.split_k
    k = _shrunk(problem.k, lcm(tile.block_k, BLOCK_K), stages * tile.block_k)
    k = max(k, 2 * BLOCK_K) if problem.whole_k and k in GROUP_SIZES else k
    return Shrunk(
        replace(
            problem,
            n=_shrunk(problem.n, tile.block_n, tile.block_n),
            k=k,
            group_size=k if problem.whole_k else problem.group_size,
        ),
        _shrunk(m, tile.block_m, tile.block_m),
    )


def _shrunk(size: int, step: int, most: int) -> int:
    """At most `most`, rounded up to steps, plus the same rest modulo the step as before."""
    whole, rest = divmod(size, step)
    return min(whole, -(-most // step)) * step + rest
