"""Values shared within a warp (PTX ISA, "shfl.sync")."""

from __future__ import annotations

from ptxgen.ptx.instruction import Instruction


def warp_uniform() -> Instruction:
    """Lane 0's value in all lanes; tells ptxas that it fits into a uniform register."""
    return Instruction(
        "u32 warp_uniform(u32 value)",
        "shfl.sync.idx.b32 %0, %1, 0, 31, 0xffffffff;",
        "Data Movement and Conversion Instructions: shfl.sync",
        outputs=('"=r"(d)',),
        inputs=('"r"(value)',),
        volatile=True,
        declares="u32 d",
        returns="d",
    )


def lane_xor(mask: int) -> Instruction:
    """The value of the lane whose index differs in the bits of `mask` (1, 2, 4, 8 or 16)."""
    return Instruction(
        f"u32 lane_xor_{mask}(u32 value)",
        f"shfl.sync.bfly.b32 %0, %1, {mask}, 31, 0xffffffff;",
        "Data Movement and Conversion Instructions: shfl.sync",
        outputs=('"=r"(d)',),
        inputs=('"r"(value)',),
        volatile=True,
        declares="u32 d",
        returns="d",
    )
