"""The kernel that turns packed weights into the dense weight; pure text and launch plan.

The dense weight is [N, K], row-major, in the problem's dtype. A kernel of our usual arguments: the
weight goes to y, whose row stride is ldy; x, bias, workspace, m and ldx are not read. Launch it for
a "batch" of K: a CTA's tile is block_n features of block_m inputs.
"""

from __future__ import annotations

from dataclasses import dataclass

from ptxgen.arch import ArchSpec
from ptxgen.families.kernel_text import kernel_text
from ptxgen.families.mma import dequant
from ptxgen.problem import Problem
from ptxgen.ptx import global_memory, packed16, shuffle
from ptxgen.ptx.instruction import Instruction
from ptxgen.source import KernelSource, LaunchPlan
from ptxgen.weights.layout import BLOCK_K, BLOCK_ROWS, packed_layout

ENTRY = "ptxtune_dequantize"
THREADS = 256
BLOCKS = 2
"""K blocks of a CTA; each takes four warps, one a row block. A CTA moves 40 KB, and writes the 512
bytes of a row together."""


@dataclass(frozen=True, slots=True)
class _OnWeights:
    scale_on: str = "weights"
    dequant: str = "magic"


@dataclass(frozen=True, slots=True)
class _Shape:
    """What the texts of dequant ask of a kernel."""

    problem: Problem
    config: _OnWeights = _OnWeights()


def launch_plan(problem: Problem) -> LaunchPlan:
    """How to launch the kernel; its grid is that of a batch of K."""
    layout = packed_layout(problem)
    return LaunchPlan(
        threads=THREADS,
        smem_bytes=0,
        block_m=BLOCKS * BLOCK_K,
        block_n=BLOCK_ROWS,
        n_tiles=layout.strips,
        split_k=1,
        pdl=False,
    )


def emit_dequantize(problem: Problem, arch: ArchSpec) -> KernelSource:
    """The kernel's text and launch plan; every problem has one, on every arch."""
    shape = _Shape(problem)
    text = kernel_text(
        "dequantize/kernel.cu.jinja",
        arch,
        _instructions(shape, arch),
        entry=ENTRY,
        problem=problem,
        config=shape.config,
        layout=packed_layout(problem),
        threads=THREADS,
        blocks=BLOCKS,
    )
    return KernelSource(text, arch.name, launch_plan(problem), ENTRY)


def _instructions(shape: _Shape, arch: ArchSpec) -> list[Instruction]:
    found = [
        global_memory.ld_global_nc_v4(),
        global_memory.ld_global_nc_u32(),
        global_memory.st_global_v4(),
        shuffle.lane_xor(1),
        shuffle.lane_xor(2),
        packed16.merge_bytes(),
        *dequant.instructions(shape, arch),
    ]
    if shape.problem.zero == "int":
        found.append(global_memory.ld_global_nc_u8())
    return found
