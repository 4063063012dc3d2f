"""Puts the mma kernel's text together. Pure: the same problem, config and arch give the same bytes."""

from __future__ import annotations

from ptxgen.arch import ArchSpec
from ptxgen.errors import ConfigError
from ptxgen.families.kernel_text import kernel_text
from ptxgen.families.mma import dequant, epilogue
from ptxgen.families.mma.config import MmaConfig
from ptxgen.families.mma.rules import violations
from ptxgen.families.mma.shape import Shape
from ptxgen.problem import Problem
from ptxgen.ptx import cp_async, global_memory, launch_control, shared
from ptxgen.ptx.instruction import Instruction
from ptxgen.ptx.mma import mma_m16n8k16
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
    return ring_kernel("families/mma/kernel.cu.jinja", shape, arch, _instructions(shape))


def ring_kernel(
    template: str, shape: Shape, arch: ArchSpec, instructions: list[Instruction]
) -> KernelSource:
    """The kernel of a family that streams by cp.async.

    Args:
        template: the family's.
        shape: of the kernel.
        arch: what it is for.
        instructions: PTX of the family's own sections.
    """
    text = kernel_text(
        template,
        arch,
        [*instructions, *_shared_instructions(shape, arch)],
        problem=shape.problem,
        config=shape.config,
        layout=shape.layout,
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


def _instructions(shape: Shape) -> list[Instruction]:
    used = [cp_async.cp_async_wait(shape.config.num_stages - 2), shared.ldmatrix(4)]
    if shape.token_tiles > 1 and shape.token_tiles % 2:
        used.append(shared.ldmatrix(2))
    return [*used, mma_m16n8k16(shape.problem.dtype)]


def _shared_instructions(shape: Shape, arch: ArchSpec) -> list[Instruction]:
    used = [
        cp_async.cp_async_16(),
        cp_async.cp_async_16_zfill(),
        cp_async.cp_async_8_zfill(),
        cp_async.cp_async_commit(),
        shared.shared_address(),
        shared.ld_shared_v4(),
    ]
    if shape.meta_bytes:
        used.append(shared.ld_shared_u32())
    if shape.meta_zero_bytes:
        used.append(shared.ld_shared_u8())
    if shape.problem.whole_k and shape.problem.zero == "int":
        used.append(global_memory.ld_global_nc_u8())
    used += [*dequant.instructions(shape, arch), *epilogue.instructions(shape)]
    if arch.has_pdl:
        used += [launch_control.launch_dependents(), launch_control.wait_for_previous()]
    return used
