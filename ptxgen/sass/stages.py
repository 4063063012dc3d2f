"""Where a kernel's stages stand in its machine code: in a loop, or in a row where there is none."""

from __future__ import annotations

from ptxgen.sass.disassemble import Disassembly, SassInstruction, count

STORES = ("STG", "RED", "REDG", "ATOM", "ATOMG", "UTMASTG", "UTMAREDG")
"""To global memory: no stage makes one, what comes behind the stages of a tile does."""
BARRIERS = ("BAR", "UCGABAR_WAIT")
"""Of a CTA and of a cluster. What comes behind the stages shares memory with other warps, and
waits for them before it reads."""


def stage_loops(code: Disassembly, tensor: str) -> list[tuple[SassInstruction, ...]]:
    """The loops around tensor instructions that hold stages and nothing else.

    One that also stores results goes over tiles, or is none: a wait on an mbarrier that has to be
    tried again goes on behind the kernel's end, and the jump back from there encloses the rest.

    Args:
        code: of a kernel.
        tensor: opcode of its tensor instructions, "HMMA" or "HGMMA".
    """
    bodies = (code.between(*bounds) for bounds in code.loops())
    return [body for body in bodies if count(body, tensor) and not _stores(body)]


def stages_in_a_row(code: Disassembly, tensor: str) -> tuple[SassInstruction, ...]:
    """A kernel's code up to the end of its stages, where the compiler left no loop over them.

    It does so where their number is a small constant, such as a K of one stage. The last loads may
    stand behind the last tensor instruction, so the end is the barrier after that.
    """
    last = max((item.address for item in code.instructions if item.is_a(tensor)), default=-1)
    ends = (
        item.address
        for item in code.instructions
        if item.address > last and any(map(item.is_a, BARRIERS))
    )
    return code.between(0, min(ends, default=code.instructions[-1].address)) if last >= 0 else ()


def _stores(body: tuple[SassInstruction, ...]) -> bool:
    return any(count(body, word) for word in STORES)
