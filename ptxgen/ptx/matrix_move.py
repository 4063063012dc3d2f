"""Stores of 8 x 8 matrices from a warp's registers (PTX ISA, "stmatrix"), sm_90 and up."""

from __future__ import annotations

from ptxgen.ptx.instruction import Instruction, effect


def store_turned() -> Instruction:
    """Stores two 8 x 8 matrices of 16-bit values, transposed, to shared memory.

    Lane l holds row l / 4, columns 2 (l % 4) and the next one, of each. Lane l < 16 gives the
    16-byte aligned address that column l % 8 of matrix l / 8 goes to, as a row.
    """
    return effect(
        "void store_turned(u32 row, u32 a, u32 b)",
        "stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};",
        "Warp-Level Matrix Instructions: stmatrix",
        inputs=('"r"(row)', '"r"(a)', '"r"(b)'),
    )
