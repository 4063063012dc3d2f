"""Corner cases: the smallest problems of a config, where loops and tables shrink to nothing.

K of one stage or less, N of one tile or its least, one group a row, the whole of K, and the tails
beside them. Compilers treat these unlike large layers: a loop of one turn is no loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import product

from ptxgen.arch import ArchSpec
from ptxgen.config import KernelConfig
from ptxgen.cpucheck import reduced
from ptxgen.cpucheck.reduced import MAX_WORK, WHOLE_K, Case, work
from ptxgen.cpucheck.tile import Tile
from ptxgen.families import violations
from ptxgen.problem import GROUP_SIZES, Problem
from ptxgen.weights.layout import BLOCK_K

LEAST_N = 8
CORNERS_OF_A_CONFIG = 3


def corner_cases(
    cases: Sequence[Case], count: int = CORNERS_OF_A_CONFIG, max_work: int = MAX_WORK
) -> list[Case]:
    """Corner cases of few configs that have every knob value of a family between them.

    Args:
        cases: of one family, with all values of its knobs; configs and archs are taken from them.
        count: corner problems of a config, the rarest so far; a large number takes all.
        max_work: estimate of warp instructions that a case may have (reduced.work).
    """
    found = []
    seen: Counter[object] = Counter()
    for case in spread(cases):
        block_m = Tile.of(case.config).block_m
        corners = (
            Case(problem, case.config, case.arch, (1, block_m)[number % 2])
            for number, problem in enumerate(corner_problems(case.config, case.arch))
        )
        small = [item for item in corners if work(item.problem, item.config, item.m) <= max_work]
        for _ in range(min(count, len(small))):
            rarest = min(small, key=lambda item: _rarity(item, seen))
            small.remove(rarest)
            found.append(rarest)
            seen.update(_kinds(rarest))
    return found


def corner_problems(config: KernelConfig, arch: ArchSpec) -> list[Problem]:
    """Every legal problem with a corner in K, N and its groups; dtypes and the rest take turns."""
    kinds = product(reduced.DTYPES, reduced.ZEROS, reduced.BIASES)
    turns = list(kinds)
    found: list[Problem] = []
    tile = Tile.of(config)
    for k, n, group in product(_inputs(tile), _features(tile), reduced.GROUPS):
        size = k if group == WHOLE_K else group
        if k % size or (group == WHOLE_K and k in GROUP_SIZES):
            continue
        # A step of 3 has no factor in common with the 8 kinds: all meet all sizes.
        dtype, zero, bias = turns[3 * len(found) % len(turns)]
        problem = Problem(n, k, size, dtype, zero, bias)
        if not violations(problem, config, arch):
            found.append(problem)
    return found


def spread(cases: Iterable[Case]) -> Iterator[Case]:
    """The cases whose config has a knob value, or whose arch is one, that none before has."""
    seen: set[tuple[str, object]] = set()
    for case in cases:
        values: set[tuple[str, object]] = set(case.config.to_dict().items())
        values.add(("arch", case.arch.name))
        if not values <= seen:
            seen |= values
            yield case


def _inputs(tile: Tile) -> list[int]:
    """K: the least, parts of a packed block and of a stage, one stage, and one for each CTA."""
    stage = tile.block_k
    sizes = {32, 64, BLOCK_K - 32, BLOCK_K, stage - 32, stage, stage * tile.split_k}
    return sorted(size for size in sizes if size <= stage * tile.split_k)


def _features(tile: Tile) -> list[int]:
    return sorted({LEAST_N, tile.block_n, tile.block_n + LEAST_N})


def _kinds(case: Case) -> tuple[object, object]:
    """K with its groups, and N in tiles: two things that corners are to differ in."""
    group = WHOLE_K if case.problem.whole_k else case.problem.group_size
    return (case.problem.k, group), f"{case.problem.n / Tile.of(case.config).block_n:.0f} tiles"


def _rarity(case: Case, seen: Counter[object]) -> tuple[int, int, int]:
    inputs, features = _kinds(case)
    return seen[inputs], seen[features], case.problem.num_groups
