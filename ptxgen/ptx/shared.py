"""Shared-memory addresses and loads (PTX ISA, "ld", "ldmatrix", "cvta")."""

from __future__ import annotations

from ptxgen.ptx.instruction import Instruction, effect

_LD = "Data Movement and Conversion Instructions: ld"


def shared_address() -> Instruction:
    """The 32-bit shared-window address of a generic pointer."""
    return Instruction(
        "u32 shared_address(const void* p)",
        "{ .reg .u64 a; cvta.to.shared.u64 a, %1; cvt.u32.u64 %0, a; }",
        "Data Movement and Conversion Instructions: cvta",
        outputs=('"=r"(a)',),
        inputs=('"l"(p)',),
        declares="u32 a",
        returns="a",
    )


def ld_shared_v4() -> Instruction:
    """Four words from a 16-byte aligned address."""
    return Instruction(
        "void ld_shared_v4(u32 (&d)[4], u32 src)",
        "ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];",
        _LD,
        outputs=tuple(f'"=r"(d[{i}])' for i in range(4)),
        inputs=('"r"(src)',),
        volatile=True,
        memory=True,
    )


def ld_shared_v2() -> Instruction:
    """Two words from an 8-byte aligned address."""
    return Instruction(
        "void ld_shared_v2(u32& a, u32& b, u32 src)",
        "ld.shared.v2.b32 {%0, %1}, [%2];",
        _LD,
        outputs=('"=r"(a)', '"=r"(b)'),
        inputs=('"r"(src)',),
        volatile=True,
        memory=True,
    )


def ld_shared_float4() -> Instruction:
    """Four FP32 values from a 16-byte aligned address."""
    return Instruction(
        "float4 ld_shared_float4(u32 src)",
        "ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];",
        _LD,
        outputs=('"=f"(v.x)', '"=f"(v.y)', '"=f"(v.z)', '"=f"(v.w)'),
        inputs=('"r"(src)',),
        volatile=True,
        memory=True,
        declares="float4 v",
        returns="v",
    )


def st_shared_float4() -> Instruction:
    """Four FP32 values to a 16-byte aligned address."""
    return effect(
        "void st_shared_float4(u32 dst, float4 v)",
        "st.shared.v4.f32 [%0], {%1, %2, %3, %4};",
        "Data Movement and Conversion Instructions: st",
        inputs=('"r"(dst)', '"f"(v.x)', '"f"(v.y)', '"f"(v.z)', '"f"(v.w)'),
        min_capability=(8, 0),
    )


def ld_shared_u32() -> Instruction:
    """One word."""
    return Instruction(
        "u32 ld_shared_u32(u32 src)",
        "ld.shared.b32 %0, [%1];",
        _LD,
        outputs=('"=r"(d)',),
        inputs=('"r"(src)',),
        volatile=True,
        memory=True,
        declares="u32 d",
        returns="d",
    )


def ld_shared_u8() -> Instruction:
    """One byte, zero-extended."""
    return Instruction(
        "u32 ld_shared_u8(u32 src)",
        "ld.shared.u8 %0, [%1];",
        _LD,
        outputs=('"=r"(d)',),
        inputs=('"r"(src)',),
        volatile=True,
        memory=True,
        declares="u32 d",
        returns="d",
    )


def ldmatrix(count: int) -> Instruction:
    """`count` (2 or 4) 8x8 matrices of 16-bit values; each lane names a 16-byte aligned row."""
    registers = ", ".join(f"%{i}" for i in range(count))
    return Instruction(
        f"void ldmatrix_x{count}(u32* d, u32 row)",
        f"ldmatrix.sync.aligned.m8n8.x{count}.shared.b16 {{{registers}}}, [%{count}];",
        "Warp-Level Matrix Instructions: ldmatrix",
        outputs=tuple(f'"=r"(d[{i}])' for i in range(count)),
        inputs=('"r"(row)',),
        volatile=True,
        memory=True,
    )
