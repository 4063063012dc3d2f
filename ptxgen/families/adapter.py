"""FunctionFamily: makes a Family out of the functions of a family's own modules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from ptxgen.arch import ArchSpec
from ptxgen.config import KernelConfig, Scalar
from ptxgen.errors import ConfigError
from ptxgen.problem import Problem
from ptxgen.source import KernelSource, LaunchPlan

Config = TypeVar("Config", bound=KernelConfig)


@dataclass(frozen=True, slots=True)
class FunctionFamily(Generic[Config]):
    """See ptxgen.families.base.Family, whose methods the functions are.

    Every method that takes a config refuses one of another family by a ConfigError.

    Attributes:
        config_type: its config class.
        emitter_version: raised whenever the emitted code changes (comments are none).
        choices: every knob and its choices, in order.
        legality: (problem, config, arch) -> why the config is illegal.
        search_space: (problem, arch, m) -> configs worth trying.
        untuned: (problem, arch, m, num_sms) -> the default.
        summation: (problem, config) -> which order the sums follow.
        planner: (problem, config, arch) -> the launch plan.
        emitter: (problem, config, arch) -> the kernel's text and launch plan.
    """

    config_type: type[Config]
    emitter_version: int
    choices: dict[str, tuple[Scalar, ...]]
    legality: Callable[[Problem, Config, ArchSpec], list[str]]
    search_space: Callable[[Problem, ArchSpec, int], Iterator[Config]]
    untuned: Callable[[Problem, ArchSpec, int, int], Config]
    summation: Callable[[Problem, Config], str]
    planner: Callable[[Problem, Config, ArchSpec], LaunchPlan]
    emitter: Callable[[Problem, Config, ArchSpec], KernelSource]

    @property
    def name(self) -> str:
        return self.config_type.family

    def knobs(self) -> dict[str, tuple[Scalar, ...]]:
        return self.choices

    def violations(self, problem: Problem, config: KernelConfig, arch: ArchSpec) -> list[str]:
        return self.legality(problem, self._own(config), arch)

    def candidates(self, problem: Problem, arch: ArchSpec, m: int) -> Iterator[KernelConfig]:
        return self.search_space(problem, arch, m)

    def default_config(
        self, problem: Problem, arch: ArchSpec, m: int, num_sms: int
    ) -> KernelConfig:
        return self.untuned(problem, arch, m, num_sms)

    def summation_key(self, problem: Problem, config: KernelConfig) -> str:
        return self.summation(problem, self._own(config))

    def plan(self, problem: Problem, config: KernelConfig, arch: ArchSpec) -> LaunchPlan:
        return self.planner(problem, self._own(config), arch)

    def emit(self, problem: Problem, config: KernelConfig, arch: ArchSpec) -> KernelSource:
        return self.emitter(problem, self._own(config), arch)

    def _own(self, config: KernelConfig) -> Config:
        if not isinstance(config, self.config_type):
            raise ConfigError(
                f"{config.key()} is of family {config.family!r}, not of {self.name!r}."
            )
        return config
