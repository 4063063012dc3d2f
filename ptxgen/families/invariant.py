"""Batch invariance: the one order of sums that kernels keep for every M, and the configs that do.

For one kernel a row's result never depends on the other rows. Different batches use different
kernels, though, and those may add up in other orders. Batch-invariant kernels are those whose
summation key is one fixed key of the problem: that of INVARIANT. It is a constant, so that runs,
GPUs and days agree: winners tuned apart still fit together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from ptxgen.arch import ArchSpec
from ptxgen.config import KernelConfig
from ptxgen.errors import ConfigError
from ptxgen.families import FAMILIES, family_named
from ptxgen.families.base import Family
from ptxgen.families.mma import MMA
from ptxgen.families.mma.config import MmaConfig
from ptxgen.families.view import FamilyView
from ptxgen.problem import M_BUCKETS, Problem

INVARIANT = MmaConfig(
    block_m=8,
    warp_m=8,
    block_n=32,
    warp_n=32,
    block_k=512,
    warps_k=4,
    num_stages=3,
    split_k=1,
    scale_on="accumulators",
    weights_first=False,
    min_ctas=1,
)
"""Four warps share out K, one packed block each a stage; K is not split over CTAs. Decode kernels
of that order keep enough loads in flight, and batches of up to 64 tokens have them as well."""

TOKENS = (1, 2, 4, 8, 16, 32, 64)
"""Tiles of tokens of the built-in defaults; beyond the last one a batch takes several tiles."""


def invariant_key(problem: Problem) -> str:
    """The summation key of every batch-invariant kernel of a problem."""
    return MMA.summation_key(problem, INVARIANT)


def is_invariant(problem: Problem, config: KernelConfig) -> bool:
    """Whether the kernel of a legal config adds up in the problem's one order."""
    return family_named(config.family).summation_key(problem, config) == invariant_key(problem)


def invariant_default(problem: Problem, arch: ArchSpec, m: int) -> KernelConfig:
    """The batch-invariant config for a batch of m without any tuning. Raises ConfigError."""
    return InvariantFamily(MMA).default_config(problem, arch, m, 0)


def invariant_families(families: Mapping[str, Family] = FAMILIES) -> dict[str, Family]:
    """The families that have batch-invariant kernels, limited to those.

    Raises:
        ConfigError: the family of the one order is not among them.
    """
    if INVARIANT.family not in families:
        raise ConfigError(
            f"batch-invariant kernels are of family {INVARIANT.family!r}, which is not among "
            f"{', '.join(families)}; search it too, or leave batch invariance out."
        )
    return {INVARIANT.family: InvariantFamily(families[INVARIANT.family])}


class InvariantFamily(FamilyView):
    """A family of which only the batch-invariant configs are offered.

    Args:
        base: the family of INVARIANT.
    """

    def candidates(self, problem: Problem, arch: ArchSpec, m: int) -> Iterator[KernelConfig]:
        """Those of m; where none of them keeps the order, those of the nearest smaller bucket."""
        wanted = invariant_key(problem)
        smaller = [bucket for bucket in reversed(M_BUCKETS) if bucket < m]
        for size in (m, *smaller):
            found = [
                config
                for config in self._base.candidates(problem, arch, size)
                if self._base.summation_key(problem, config) == wanted
            ]
            if found:
                yield from found
                return

    def default_config(
        self, problem: Problem, arch: ArchSpec, m: int, num_sms: int
    ) -> KernelConfig:
        """The largest tile of tokens that the batch fills and the arch has room for."""
        for config in _default_ladder(m):
            if not self._base.violations(problem, config, arch):
                return config
        raise ConfigError(
            f"no batch-invariant config is legal for {problem.key()} at M = {m} on {arch.name}; "
            f"leave batch invariance out, or run ptxtune space to see the rules."
        )


def _default_ladder(m: int) -> Iterator[MmaConfig]:
    """INVARIANT with the tile that covers m, or a smaller one; fewer stages before fewer tokens."""
    covering = min((size for size in TOKENS if size >= m), default=max(TOKENS))
    for block_m in (size for size in reversed(TOKENS) if size <= covering):
        for num_stages in (3, 2):
            warp_m = min(block_m, 32)  # more accumulators than 32 tokens need would spill
            yield replace(INVARIANT, block_m=block_m, warp_m=warp_m, num_stages=num_stages)
