"""The mma family: mma.sync kernels for every supported arch."""

from __future__ import annotations

from collections.abc import Iterator

from ptxgen.arch import ArchSpec
from ptxgen.config import KernelConfig, Scalar
from ptxgen.errors import ConfigError
from ptxgen.families.mma.config import KNOBS, MmaConfig
from ptxgen.families.mma.emit import emit, plan
from ptxgen.families.mma.rules import violations
from ptxgen.families.mma.shape import Shape
from ptxgen.families.mma.space import candidates, default_config
from ptxgen.problem import Problem
from ptxgen.source import KernelSource, LaunchPlan


class MmaFamily:
    """See ptxgen.families.base.Family."""

    name = "mma"
    config_type: type[KernelConfig] = MmaConfig
    emitter_version = 1

    def knobs(self) -> dict[str, tuple[Scalar, ...]]:
        return KNOBS

    def violations(self, problem: Problem, config: KernelConfig, arch: ArchSpec) -> list[str]:
        return violations(problem, _own(config), arch)

    def candidates(self, problem: Problem, arch: ArchSpec, m: int) -> Iterator[KernelConfig]:
        return candidates(problem, arch, m)

    def default_config(
        self, problem: Problem, arch: ArchSpec, m: int, num_sms: int
    ) -> KernelConfig:
        return default_config(problem, arch, m, num_sms)

    def plan(self, problem: Problem, config: KernelConfig, arch: ArchSpec) -> LaunchPlan:
        return plan(Shape(problem, _own(config)), arch)

    def emit(self, problem: Problem, config: KernelConfig, arch: ArchSpec) -> KernelSource:
        return emit(problem, _own(config), arch)


def _own(config: KernelConfig) -> MmaConfig:
    if not isinstance(config, MmaConfig):
        raise ConfigError(f"{config.key()} is of family {config.family!r}, not of 'mma'.")
    return config


MMA = MmaFamily()
