"""Barriers of some warps of a CTA (PTX ISA, "bar"). Barrier 0 is that of __syncthreads."""

from __future__ import annotations

from ptxgen.ptx.instruction import Instruction, effect


def named_barrier_sync() -> Instruction:
    """Waits at barrier `id` (1 .. 15) for `threads` threads, a multiple of 32, of whole warps."""
    return effect(
        "void named_barrier_sync(u32 id, u32 threads)",
        "bar.sync %0, %1;",
        "Parallel Synchronization and Communication Instructions: bar, barrier",
        inputs=('"r"(id)', '"r"(threads)'),
        min_capability=(8, 0),
    )
