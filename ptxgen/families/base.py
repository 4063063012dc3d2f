"""Family: the one interface behind which a kernel family lives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from ptxgen.arch import ArchSpec
from ptxgen.config import KernelConfig, Scalar
from ptxgen.problem import Problem
from ptxgen.source import KernelSource, LaunchPlan


class Family(Protocol):
    """What the rest of ptxtune asks of a kernel family. All methods are pure.

    Attributes:
        name: the family's name, as in config.family.
        config_type: its config class.
        emitter_version: raised whenever the emitted code changes (comments are none).
    """

    @property
    def name(self) -> str: ...
    @property
    def config_type(self) -> type[KernelConfig]: ...
    @property
    def emitter_version(self) -> int: ...

    def knobs(self) -> dict[str, tuple[Scalar, ...]]:
        """Every knob and its choices, in order. Fixed per space version, never per GPU."""
        ...

    def violations(self, problem: Problem, config: KernelConfig, arch: ArchSpec) -> list[str]:
        """Why the config is illegal for the problem on the arch; empty where it is legal."""
        ...

    def candidates(self, problem: Problem, arch: ArchSpec, m: int) -> Iterator[KernelConfig]:
        """Every legal config worth trying for batches of up to m."""
        ...

    def default_config(
        self, problem: Problem, arch: ArchSpec, m: int, num_sms: int
    ) -> KernelConfig:
        """A safe, decent config for a batch of m without any tuning."""
        ...

    def summation_key(self, problem: Problem, config: KernelConfig) -> str:
        """Names the order in which the kernel adds up each output.

        Kernels of one problem and arch whose keys are equal give the same bits for the same row of
        activations, wherever in a batch of whatever size that row is.
        """
        ...

    def plan(self, problem: Problem, config: KernelConfig, arch: ArchSpec) -> LaunchPlan:
        """The launch plan that emit would return, of a legal config, without the text."""
        ...

    def emit(self, problem: Problem, config: KernelConfig, arch: ArchSpec) -> KernelSource:
        """The kernel's text and launch plan. Raises ConfigError that lists the violations."""
        ...
