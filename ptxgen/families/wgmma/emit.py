"""Puts the wgmma kernel's text together. Pure: the same problem, config and arch give the same bytes."""

from __future__ import annotations

from ptxgen.arch import ArchSpec
from ptxgen.errors import ConfigError
from ptxgen.families.mma.emit import ring_kernel
from ptxgen.families.wgmma.config import WgmmaConfig
from ptxgen.families.wgmma.rules import violations
from ptxgen.families.wgmma.shape import WgmmaShape
from ptxgen.problem import Problem
from ptxgen.source import KernelSource


def emit(problem: Problem, config: WgmmaConfig, arch: ArchSpec) -> KernelSource:
    """The kernel's text and launch plan.

    Raises:
        ConfigError: the config is illegal; the message lists why.
    """
    reasons = violations(problem, config, arch)
    if reasons:
        raise ConfigError(f"{config.key()} is illegal for {problem.key()}: {'; '.join(reasons)}.")
    shape = WgmmaShape(problem, config)
    return ring_kernel("families/wgmma/kernel.cu.jinja", shape, arch)
