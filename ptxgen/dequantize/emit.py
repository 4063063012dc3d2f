"""The kernel that turns packed weights into the dense weight; pure text and launch plan.

The dense weight is [N, K], row-major, in the problem's dtype. A kernel of our usual arguments: the
weight goes to y, whose row stride is ldy; x, bias, workspace, m and ldx are not read. Launch it for
a "batch" of K: a CTA's tile is block_n features of block_m inputs.
"""

from __future__ import annotations

from dataclasses import dataclass

from ptxgen.arch import ArchSpec
from ptxgen.families.kernel_text import kernel_text
from ptxgen.problem import Problem
from ptxgen.source import KernelSource, LaunchPlan
from ptxgen.weights.layout import BLOCK_K, BLOCK_ROWS, packed_layout

ENTRY = "ptxtune_dequantize"
THREADS = 256
BLOCKS = 2
"""K blocks of a CTA; each takes four warps, one a row block. A CTA moves 40 KB, and writes the 512
bytes of a row together."""


@dataclass(frozen=True, slots=True)
class _OnWeights:
    """What the section of the dequantization asks of a config."""

    scale_on: str = "weights"
    dequant: str = "magic"


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
    text = kernel_text(
        "dequantize/kernel.cu.jinja",
        problem,
        arch,
        entry=ENTRY,
        config=_OnWeights(),
        threads=THREADS,
        blocks=BLOCKS,
    )
    return KernelSource(text, arch.name, launch_plan(problem), ENTRY)
