"""The wgmma family: Hopper's warpgroup mma for larger batches."""

from __future__ import annotations

from collections.abc import Iterator

from ptxgen.arch import ArchSpec
from ptxgen.config import KernelConfig, Scalar
from ptxgen.errors import ConfigError
from ptxgen.families.mma.emit import plan
from ptxgen.families.wgmma.config import KNOBS, WgmmaConfig
from ptxgen.families.wgmma.emit import emit
from ptxgen.families.wgmma.rules import violations
from ptxgen.families.wgmma.shape import WgmmaShape
from ptxgen.families.wgmma.space import candidates, default_config
from ptxgen.problem import Problem
from ptxgen.source import KernelSource, LaunchPlan


class WgmmaFamily:
    """See ptxgen.families.base.Family."""

    name = "wgmma"
    config_type: type[KernelConfig] = WgmmaConfig
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
        return plan(WgmmaShape(problem, _own(config)), arch)

    def emit(self, problem: Problem, config: KernelConfig, arch: ArchSpec) -> KernelSource:
        return emit(problem, _own(config), arch)


def _own(config: KernelConfig) -> WgmmaConfig:
    if not isinstance(config, WgmmaConfig):
        raise ConfigError(f"{config.key()} is of family {config.family!r}, not of 'wgmma'.")
    return config


WGMMA = WgmmaFamily()
