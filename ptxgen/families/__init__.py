"""Kernel families: one module each, registered here and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ptxgen.arch import ArchSpec
from ptxgen.config import KernelConfig
from ptxgen.errors import ConfigError
from ptxgen.families.base import Family
from ptxgen.families.mma import MMA
from ptxgen.families.wgmma import WGMMA
from ptxgen.families.wgmma_tma import WGMMA_TMA
from ptxgen.problem import Problem
from ptxgen.source import KernelSource

FAMILIES: dict[str, Family] = {family.name: family for family in (MMA, WGMMA, WGMMA_TMA)}

MMA_DEFAULT_MAX_M = 16
"""Up to it mma.sync is the faster one; at 32 tokens wgmma_tma takes a quarter less on large layers
(H200, 2026-11-30)."""


def family_named(name: str) -> Family:
    """The family of that name. Raises ConfigError that lists the known ones."""
    if name not in FAMILIES:
        raise ConfigError(
            f"kernel family {name!r} is not known; choose one of {', '.join(FAMILIES)}."
        )
    return FAMILIES[name]


def config_from_dict(data: dict[str, Any]) -> KernelConfig:
    """The inverse of KernelConfig.to_dict. Raises ConfigError on anything else."""
    if not isinstance(data, dict) or not isinstance(data.get("family"), str):
        raise ConfigError(f"config {data!r} names no family; expected an object with key 'family'.")
    knobs = {name: value for name, value in data.items() if name != "family"}
    return family_named(data["family"]).config_type.from_knobs(knobs)


def violations(problem: Problem, config: KernelConfig, arch: ArchSpec) -> list[str]:
    """Why a config is illegal for a problem on an arch; empty where it is legal."""
    return family_named(config.family).violations(problem, config, arch)


def emit(problem: Problem, config: KernelConfig, arch: ArchSpec) -> KernelSource:
    """The kernel of a config. Raises ConfigError that lists the violations."""
    return family_named(config.family).emit(problem, config, arch)


def candidates(problem: Problem, arch: ArchSpec, m: int) -> Iterator[KernelConfig]:
    """Every legal config of every family worth trying for batches of up to m."""
    for family in FAMILIES.values():
        yield from family.candidates(problem, arch, m)


def default_config(
    problem: Problem,
    arch: ArchSpec,
    m: int,
    num_sms: int,
    families: Mapping[str, Family] = FAMILIES,
    *,
    chained: bool = False,
) -> KernelConfig:
    """A safe, decent config for a batch of m without any tuning.

    Args:
        problem: what is computed.
        arch: for which arch.
        m: batch size.
        num_sms: multiprocessors of the GPU.
        families: to choose from; the first one where the usual one is not among them.
        chained: for launches that depend on each other (programmatic dependent launch).
    """
    usual = "wgmma_tma" if arch.has_wgmma and m > MMA_DEFAULT_MAX_M else "mma"
    family = families.get(usual) or next(iter(families.values()))
    config = family.default_config(problem, arch, m, num_sms)
    return config.chained() if chained else config
