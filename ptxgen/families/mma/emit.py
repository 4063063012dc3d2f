"""Puts the mma kernel's text together. Pure: the same problem, config and arch give the same bytes."""

from __future__ import annotations

from ptxgen.arch import ArchSpec
from ptxgen.errors import ConfigError
from ptxgen.families.kernel_text import kernel_text
from ptxgen.families.mma.config import MmaConfig
from ptxgen.families.mma.rules import violations
from ptxgen.families.mma.shape import Shape
from ptxgen.problem import Problem
from ptxgen.source import KernelSource, LaunchPlan


def emit(problem: Problem, config: MmaConfig, arch: ArchSpec) -> KernelSource:
    """The kernel's text and launch plan.

    Raises:
        ConfigError: the config is illegal; the message lists why.
    """
    reasons = violations(problem, config, arch)
    if reasons:
        raise ConfigError(f"{config.key()} is illegal for {problem.key()}: {'; '.join(reasons)}.")
    shape = Shape(problem, config)
    return ring_kernel("families/mma/kernel.cu.jinja", shape, arch)


def ring_kernel(template: str, shape: Shape, arch: ArchSpec) -> KernelSource:
    """The kernel of a family that streams by cp.async.

    Args:
        template: the family's.
        shape: of the kernel.
        arch: what it is for.
    """
    text = kernel_text(
        template,
        shape.problem,
        arch,
        config=shape.config,
        shape=shape,
        waits=arch.has_pdl,
        trigger=shape.config.trigger if arch.has_pdl else "",
    )
    return KernelSource(text=text, arch=arch.name, plan=plan(shape, arch))


def plan(shape: Shape, arch: ArchSpec) -> LaunchPlan:
    """How the kernel of a shape is launched."""
    return LaunchPlan(
        threads=shape.threads,
        smem_bytes=shape.smem_bytes,
        block_m=shape.config.block_m,
        block_n=shape.config.block_n,
        n_tiles=shape.n_tiles,
        split_k=shape.config.split_k,
        pdl=arch.has_pdl,
        cluster_k=shape.config.split_k if shape.config.cluster else 1,
    )
