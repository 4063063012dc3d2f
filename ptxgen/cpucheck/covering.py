"""The covering set: few cases in which every knob value and every legal pair of values occurs.

Pairs alone seldom meet a K of one stage with an N of one tile and one group, so corners follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from ptxgen.arch import ARCHS, ArchSpec
from ptxgen.config import KernelConfig
from ptxgen.cpucheck import reduced
from ptxgen.cpucheck.corners import corner_cases
from ptxgen.cpucheck.pairs import PairSearch
from ptxgen.cpucheck.reduced import Case, Kinds, reduced_case
from ptxgen.families import family_named
from ptxgen.families.base import Family
from ptxgen.families.mma.config import MmaConfig

COVERED_ARCHS = ("sm_90a", "sm_80")
"""The emitters write other text for these two (bf16 arithmetic, dependent launch); sm_86 and sm_89
get the text of sm_80."""

HARD_CONFIGS: tuple[KernelConfig, ...] = (
    MmaConfig(96, 8, 48, 48, 256, 1, 2, 1, "weights", False, 1),
    MmaConfig(128, 8, 64, 64, 256, 1, 2, 1, "weights", False, 1),
    MmaConfig(24, 24, 16, 16, 2048, 16, 2, 1, "accumulators", False, 1),
)
"""Legal configs with pairs that few changes of other configs do not lead to (a test enumerates)."""

KIND_FACTORS: dict[str, Sequence[Any]] = {
    "dtype": reduced.DTYPES,
    "zero": reduced.ZEROS,
    "group": reduced.GROUPS,
    "bias": reduced.BIASES,
    "m": reduced.M_KINDS,
    "n": reduced.N_KINDS,
    "k": reduced.K_KINDS,
    "ring": reduced.RINGS,
}


@cache
def covering_set(
    family: str = "mma", archs: tuple[str, ...] = COVERED_ARCHS, seed: int = 0
) -> tuple[Case, ...]:
    """Cases that cover all pairs of a family's knobs, problem kinds, tails and archs, and corners.

    Args:
        family: its name.
        archs: targets to spread over, keys of ptxgen.arch.ARCHS.
        seed: another seed gives another set of about the same size.
    """
    found = family_named(family)
    factors = factors_of(found, archs)
    hard = [
        _row_of(config, factors, group)
        for config in HARD_CONFIGS
        if config.family == family
        for group in reduced.GROUPS  # of 32 inputs, scales may take too much shared memory
    ]
    search = PairSearch(factors, lambda row: _reasons(found, row), seed, hard)
    cases = [case_of(found, row) for row in search.rows()]
    pairs = [case for case in cases if isinstance(case, Case)]
    return (*pairs, *corner_cases(pairs))


def factors_of(family: Family, archs: Sequence[str]) -> list[Sequence[Any]]:
    """The factors in the order of a row: knobs, problem kinds, arch."""
    return [*family.knobs().values(), *KIND_FACTORS.values(), [ARCHS[name] for name in archs]]


def case_of(family: Family, row: tuple[Any, ...]) -> Case | list[str]:
    """The case of a row of factor values, or the reasons why it is none."""
    names = list(family.knobs())
    config = family.config_type(**dict(zip(names, row, strict=False)))
    *kinds, arch = row[len(names) :]
    return reduced_case(config, _arch(arch), Kinds(**dict(zip(KIND_FACTORS, kinds, strict=True))))


def _row_of(config: KernelConfig, factors: Sequence[Sequence[Any]], group: int) -> tuple[Any, ...]:
    """A config with groups of that size and the first kind of everything else."""
    knobs = [getattr(config, name) for name in config.knob_names()]
    first = [values[0] for values in factors[len(knobs) :]]
    first[list(KIND_FACTORS).index("group")] = group
    return (*knobs, *first)


def _arch(value: Any) -> ArchSpec:
    return value if isinstance(value, ArchSpec) else ARCHS[str(value)]


def _reasons(family: Family, row: tuple[Any, ...]) -> list[str]:
    found = case_of(family, row)
    return [] if isinstance(found, Case) else found
