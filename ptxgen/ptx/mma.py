"""mma.sync (PTX ISA, "Multiply-and-Accumulate Instruction: mma")."""

from __future__ import annotations

from ptxgen.problem import Dtype
from ptxgen.ptx.instruction import Instruction

MMA_TYPE: dict[Dtype, str] = {"fp16": "f16", "bf16": "bf16"}


def mma_m16n8k16(dtype: Dtype) -> Instruction:
    """d[16x8] = a[16x16] b[16x8] + c[16x8], 16-bit operands, FP32 accumulation."""
    suffix = MMA_TYPE[dtype]
    return Instruction(
        "void mma_m16n8k16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1)",
        f"mma.sync.aligned.m16n8k16.row.col.f32.{suffix}.{suffix}.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};",
        "Warp-Level Matrix Instructions: mma, Matrix Fragments for mma.m16n8k16",
        outputs=tuple(f'"+f"(d[{i}])' for i in range(4)),
        inputs=(*(f'"r"(a[{i}])' for i in range(4)), '"r"(b0)', '"r"(b1)'),
    )
