"""FamilyView: a family with some methods of its own; what a subclass leaves alone is the base's."""

from __future__ import annotations

from collections.abc import Iterator

from ptxgen.arch import ArchSpec
from ptxgen.config import KernelConfig, Scalar
from ptxgen.families.base import Family
from ptxgen.problem import Problem
from ptxgen.source import KernelSource, LaunchPlan


class FamilyView:
    """See ptxgen.families.base.Family, all of which it hands on.

    Args:
        base: the family.
    """

    def __init__(self, base: Family) -> None:
        self._base = base
        self.name = base.name
        self.config_type = base.config_type
        self.emitter_version = base.emitter_version

    def knobs(self) -> dict[str, tuple[Scalar, ...]]:
        return self._base.knobs()

    def violations(self, problem: Problem, config: KernelConfig, arch: ArchSpec) -> list[str]:
        return self._base.violations(problem, config, arch)

    def candidates(self, problem: Problem, arch: ArchSpec, m: int) -> Iterator[KernelConfig]:
        return self._base.candidates(problem, arch, m)

    def default_config(
        self, problem: Problem, arch: ArchSpec, m: int, num_sms: int
    ) -> KernelConfig:
        return self._base.default_config(problem, arch, m, num_sms)

    def summation_key(self, problem: Problem, config: KernelConfig) -> str:
        return self._base.summation_key(problem, config)

    def plan(self, problem: Problem, config: KernelConfig, arch: ArchSpec) -> LaunchPlan:
        return self._base.plan(problem, config, arch)

    def emit(self, problem: Problem, config: KernelConfig, arch: ArchSpec) -> KernelSource:
        return self._base.emit(problem, config, arch)
