"""Puts the wgmma_tma kernel's text together. Pure: equal arguments give the same bytes."""

from __future__ import annotations

from ptxgen.arch import ArchSpec
from ptxgen.errors import ConfigError
from ptxgen.families.kernel_text import kernel_text
from ptxgen.families.wgmma_tma import dequant
from ptxgen.families.wgmma_tma.config import WgmmaTmaConfig
from ptxgen.families.wgmma_tma.rules import violations
from ptxgen.families.wgmma_tma.schedule import MOST_SHARERS
from ptxgen.families.wgmma_tma.shape import (
    BOX_INPUTS,
    CONSUMER_REGISTERS,
    PRODUCER_REGISTERS,
    TmaShape,
)
from ptxgen.problem import Problem
from ptxgen.ptx.tensor import TENSOR_MAP_TYPE
from ptxgen.source import KernelSource, LaunchPlan


def emit(problem: Problem, config: WgmmaTmaConfig, arch: ArchSpec) -> KernelSource:
    """The kernel's text and launch plan.

    Raises:
        ConfigError: the config is illegal; the message lists why.
    """
    reasons = violations(problem, config, arch)
    if reasons:
        raise ConfigError(f"{config.key()} is illegal for {problem.key()}: {'; '.join(reasons)}.")
    shape = TmaShape(problem, config)
    text = kernel_text(
        "families/wgmma_tma/kernel.cu.jinja",
        problem,
        arch,
        config=config,
        shape=shape,
        has_factors=dequant.has_factors(problem),
        zero_first=dequant.zero_first(problem),
        powers=dequant.powers(problem),
        tensor_map_type=TENSOR_MAP_TYPE,
        most_sharers=MOST_SHARERS,
        producer_registers=PRODUCER_REGISTERS,
        consumer_registers=CONSUMER_REGISTERS,
    )
    return KernelSource(text=text, arch=arch.name, plan=plan(problem, config, arch))


def plan(problem: Problem, config: WgmmaTmaConfig, arch: ArchSpec) -> LaunchPlan:
    """How the kernel of a config is launched."""
    shape = TmaShape(problem, config)
    return LaunchPlan(
        threads=shape.threads,
        smem_bytes=shape.smem_bytes,
        block_m=config.block_m,
        block_n=config.block_n,
        n_tiles=shape.n_tiles,
        split_k=config.split_k,
        pdl=arch.has_pdl,
        cluster_k=config.split_k,
        max_ctas=config.max_ctas,
        k=problem.k,
        x_box=(BOX_INPUTS, shape.copied_tokens),
        stream_k=config.stream_k,
    )
