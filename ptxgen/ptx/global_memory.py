"""Global-memory loads and stores (PTX ISA, "ld", "st")."""

from __future__ import annotations

from ptxgen.ptx.instruction import Instruction, effect

_LD = "Data Movement and Conversion Instructions: ld"
_ST = "Data Movement and Conversion Instructions: st"


def st_global_v2() -> Instruction:
    """Two words to an 8-byte aligned address."""
    return effect(
        "void st_global_v2(void* dst, u32 a, u32 b)",
        "st.global.v2.b32 [%0], {%1, %2};",
        _ST,
        inputs=('"l"(dst)', '"r"(a)', '"r"(b)'),
        min_capability=(8, 0),
    )


def st_global_v4() -> Instruction:
    """Four words to a 16-byte aligned address."""
    return effect(
        "void st_global_v4(void* dst, u32 a, u32 b, u32 c, u32 d)",
        "st.global.v4.b32 [%0], {%1, %2, %3, %4};",
        _ST,
        inputs=('"l"(dst)', '"r"(a)', '"r"(b)', '"r"(c)', '"r"(d)'),
        min_capability=(8, 0),
    )


def st_global_u32() -> Instruction:
    """One word to a 4-byte aligned address."""
    return effect(
        "void st_global_u32(void* dst, u32 a)",
        "st.global.b32 [%0], %1;",
        _ST,
        inputs=('"l"(dst)', '"r"(a)'),
        min_capability=(8, 0),
    )


def ld_global_nc_v4() -> Instruction:
    """Four words of read-only memory from a 16-byte aligned address."""
    return Instruction(
        "void ld_global_nc_v4(u32 (&d)[4], const void* src)",
        "ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4];",
        _LD,
        outputs=('"=r"(d[0])', '"=r"(d[1])', '"=r"(d[2])', '"=r"(d[3])'),
        inputs=('"l"(src)',),
    )


def ld_global_nc_v2() -> Instruction:
    """Two words of read-only memory from an 8-byte aligned address."""
    return Instruction(
        "void ld_global_nc_v2(u32& a, u32& b, const void* src)",
        "ld.global.nc.v2.b32 {%0, %1}, [%2];",
        _LD,
        outputs=('"=r"(a)', '"=r"(b)'),
        inputs=('"l"(src)',),
    )


def ld_global_nc_u32() -> Instruction:
    """One word of read-only memory."""
    return Instruction(
        "u32 ld_global_nc_u32(const void* src)",
        "ld.global.nc.b32 %0, [%1];",
        _LD,
        outputs=('"=r"(d)',),
        inputs=('"l"(src)',),
        declares="u32 d",
        returns="d",
    )


def ld_global_nc_u16() -> Instruction:
    """Two bytes of read-only memory, zero-extended."""
    return Instruction(
        "u32 ld_global_nc_u16(const void* src)",
        "{ .reg .u16 h; ld.global.nc.u16 h, [%1]; cvt.u32.u16 %0, h; }",
        _LD,
        outputs=('"=r"(d)',),
        inputs=('"l"(src)',),
        declares="u32 d",
        returns="d",
    )


def ld_global_nc_u8() -> Instruction:
    """One byte of read-only memory, zero-extended."""
    return Instruction(
        "u32 ld_global_nc_u8(const void* src)",
        "ld.global.nc.u8 %0, [%1];",
        _LD,
        outputs=('"=r"(d)',),
        inputs=('"l"(src)',),
        declares="u32 d",
        returns="d",
    )


def st_partial() -> Instruction:
    """Four FP32 partial sums, kept in L2 for another CTA."""
    return effect(
        "void st_partial(float* dst, float4 v)",
        "st.global.cg.v4.f32 [%0], {%1, %2, %3, %4};",
        _ST,
        inputs=('"l"(dst)', '"f"(v.x)', '"f"(v.y)', '"f"(v.z)', '"f"(v.w)'),
        min_capability=(8, 0),
    )


def ld_partial() -> Instruction:
    """Four FP32 partial sums of another CTA, read from L2."""
    return Instruction(
        "float4 ld_partial(const float* src)",
        "ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];",
        _LD,
        outputs=('"=f"(v.x)', '"=f"(v.y)', '"=f"(v.z)', '"=f"(v.w)'),
        inputs=('"l"(src)',),
        volatile=True,
        memory=True,
        declares="float4 v",
        returns="v",
    )
