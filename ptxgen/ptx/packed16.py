"""Arithmetic on two 16-bit floats in a register (PTX ISA, "Half Precision Floating-Point")."""

from __future__ import annotations

from ptxgen.arch import ArchSpec
from ptxgen.problem import Dtype
from ptxgen.ptx.instruction import Instruction

_BF16_ONE = "0x3f803f80"
_BF16_MINUS_ZERO = "0x80008000"
_SUFFIX: dict[Dtype, str] = {"fp16": "f16x2", "bf16": "bf16x2"}
_RRR = ('"r"(a)', '"r"(b)')


def _packed(
    signature: str,
    ptx: str,
    section: str,
    inputs: tuple[str, ...],
    min_capability: tuple[int, int] = (8, 0),
) -> Instruction:
    return Instruction(
        signature, ptx, section, ('"=r"(d)',), inputs, min_capability, declares="u32 d", returns="d"
    )


def and_or_const(mask: int, magic: int, name: str) -> Instruction:
    """(value & mask) | magic with both constants in the instruction."""
    return _packed(
        f"u32 {name}(u32 value)",
        f"lop3.b32 %0, %1, {mask:#010x}, {magic:#010x}, 0xea;",
        "Logic and Shift Instructions: lop3",
        ('"r"(value)',),
    )


def pick_low(dtype: Dtype) -> Instruction:
    """Nibbles 0 and 4 of a word as floats: 1024 + q in fp16, 128 + q in bf16, whose ulp is 1."""
    return and_or_const(0x000F000F, 0x64006400 if dtype == "fp16" else 0x43004300, "pick_low")


def pick_high() -> Instruction:
    """Nibbles 1 and 5 of a word as fp16: 64 + q. They stay in place, where 64's ulp is 1/16."""
    return and_or_const(0x00F000F0, 0x54005400, "pick_high")


def low_half_twice() -> Instruction:
    """The low half of a register in both halves."""
    return permute(0x1010, "low_half_twice")


def high_half_twice() -> Instruction:
    """The high half of a register in both halves."""
    return permute(0x3232, "high_half_twice")


def sub2(dtype: Dtype, arch: ArchSpec) -> Instruction:
    """a - b on both halves. bf16 before sm_90 is a * 1 - b by fma, just as exact."""
    if dtype == "fp16":
        ptx = "sub.rn.f16x2 %0, %1, %2;"
    elif arch.has_bf16x2_arith:
        ptx = "sub.rn.bf16x2 %0, %1, %2;"
    else:
        ptx = (
            f"{{ .reg .b32 one, n; mov.b32 one, {_BF16_ONE}; neg.bf16x2 n, %2; "
            "fma.rn.bf16x2 %0, %1, one, n; }"
        )
    return _packed("u32 sub2(u32 a, u32 b)", ptx, "Half Precision Floating-Point: sub, fma", _RRR)


def mul2(dtype: Dtype, arch: ArchSpec) -> Instruction:
    """a * b on both halves. bf16 before sm_90 is a * b + (-0) by fma, just as rounded."""
    if dtype == "fp16":
        ptx = "mul.rn.f16x2 %0, %1, %2;"
    elif arch.has_bf16x2_arith:
        ptx = "mul.rn.bf16x2 %0, %1, %2;"
    else:
        ptx = f"{{ .reg .b32 z; mov.b32 z, {_BF16_MINUS_ZERO}; fma.rn.bf16x2 %0, %1, %2, z; }}"
    return _packed("u32 mul2(u32 a, u32 b)", ptx, "Half Precision Floating-Point: mul, fma", _RRR)


_HALVES = {"low": "{l, l}", "high": "{h, h}"}


def fma2_by_half(dtype: Dtype, half: str) -> Instruction:
    """Both halves of a times the `half` half of b, plus that of c, rounded once.

    The machine instruction takes either half of an operand twice (HFMA2 with .H0_H0 or .H1_H1).

    Args:
        dtype: of all of them; subnormal numbers stay what they are.
        half: "low" or "high".
    """
    twice = _HALVES[half]
    return _packed(
        f"u32 fma2_by_{half}(u32 a, u32 b, u32 c)",
        "{ .reg .b16 l, h; .reg .b32 b, c; "
        f"mov.b32 {{l, h}}, %2; mov.b32 b, {twice}; mov.b32 {{l, h}}, %3; mov.b32 c, {twice}; "
        f"fma.rn.{_SUFFIX[dtype]} %0, %1, b, c; }}",
        "Half Precision Floating-Point: fma",
        (*_RRR, '"r"(c)'),
    )


def sub2_by_half(dtype: Dtype, half: str) -> Instruction:
    """Both halves of a minus the `half` half of b; sm_90 for bf16."""
    return _by_half("sub", dtype, half)


def mul2_by_half(dtype: Dtype, half: str) -> Instruction:
    """Both halves of a times the `half` half of b; sm_90 for bf16."""
    return _by_half("mul", dtype, half)


def _by_half(operation: str, dtype: Dtype, half: str) -> Instruction:
    return _packed(
        f"u32 {operation}2_by_{half}(u32 a, u32 b)",
        f"{{ .reg .b16 l, h; .reg .b32 b; mov.b32 {{l, h}}, %2; mov.b32 b, {_HALVES[half]}; "
        f"{operation}.rn.{_SUFFIX[dtype]} %0, %1, b; }}",
        f"Half Precision Floating-Point: {operation}",
        _RRR,
        min_capability=(9, 0) if dtype == "bf16" else (8, 0),
    )


def permute(selector: int, name: str) -> Instruction:
    """Bytes of one register by a constant selector (prmt)."""
    return _packed(
        f"u32 {name}(u32 value)",
        f"prmt.b32 %0, %1, 0, {selector:#06x};",
        "Data Movement and Conversion Instructions: prmt",
        ('"r"(value)',),
    )


def merge_bytes() -> Instruction:
    """Four bytes of two registers (0..3 of a, 4..7 of b) by a selector in a register (prmt)."""
    return _packed(
        "u32 merge_bytes(u32 a, u32 b, u32 selector)",
        "prmt.b32 %0, %1, %2, %3;",
        "Data Movement and Conversion Instructions: prmt",
        (*_RRR, '"r"(selector)'),
    )


def unpack_to_float(dtype: Dtype) -> Instruction:
    """Both halves of a register as FP32 (a bf16 is the high half of its FP32)."""
    if dtype == "fp16":
        ptx = "{ .reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }"
    else:
        ptx = "{ shl.b32 %0, %2, 16; and.b32 %1, %2, 0xffff0000; }"
    return Instruction(
        "void unpack_to_float(float& lo, float& hi, u32 value)",
        ptx,
        "Data Movement and Conversion Instructions: cvt",
        ('"=f"(lo)', '"=f"(hi)'),
        ('"r"(value)',),
    )


def pack_from_float(dtype: Dtype) -> Instruction:
    """Two FP32 values rounded to nearest even into one register, lo in the low half."""
    return _packed(
        "u32 pack_from_float(float lo, float hi)",
        f"cvt.rn.{_SUFFIX[dtype]}.f32 %0, %2, %1;",
        "Data Movement and Conversion Instructions: cvt",
        ('"f"(lo)', '"f"(hi)'),
    )
