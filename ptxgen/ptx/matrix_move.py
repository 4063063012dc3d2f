"""Moves of 8 x 8 matrices within a warp's registers (PTX ISA, "movmatrix"), sm_75 and up."""

from __future__ import annotations

from ptxgen.ptx.instruction import Instruction


def transpose_8x8() -> Instruction:
    """Transposes 16-bit values; lane l holds row l / 4, columns 2 (l % 4) and the next one."""
    return Instruction(
        "u32 transpose_8x8(u32 a)",
        "movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;",
        "Warp-Level Matrix Instructions: movmatrix",
        outputs=('"=r"(d)',),
        inputs=('"r"(a)',),
        volatile=True,
        declares="u32 d",
        returns="d",
    )
