"""One-instruction kernels: the instructions that the interpreter and a GPU are compared on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from ptxgen.source import ENTRY, KernelSource, LaunchPlan

Values = Literal[
    "bits", "bits64", "f32", "f16", "bf16", "f16x2", "bf16x2", "f16x2_unit", "bf16x2_unit",
    "f32_unit", "shift", "nonzero", "f16_number", "bf16_number", "f16x2_number", "bf16x2_number",
    "copy_size",
]  # fmt: skip
"""What an operand is drawn from: any bits; floats of all kinds; floats near 1 (_unit: mma is
compared within a bound); floats but NaN (_number); shift amounts 0 .. 70."""

THREADS = 256
_CTYPES = {16: "unsigned short", 32: "unsigned", 64: "unsigned long long"}
_CONSTRAINTS = {16: "h", 32: "r", 64: "l"}
_BITS: dict[str, int] = {"bits64": 64, "f16": 16, "bf16": 16, "f16_number": 16, "bf16_number": 16}


@dataclass(frozen=True, slots=True)
class HardwareCase:
    """One instruction.

    Attributes:
        opcode: what is compared, with its modifiers.
        body: CUDA statements from a0, a1, ... to d0, d1, ...
        inputs: kinds of the a's.
        outputs: bits of the d's.
        exact: results must agree bit for bit.
        only_arch: the only arch that has it; "" for all.
    """

    opcode: str
    body: str
    inputs: tuple[Values, ...]
    outputs: tuple[int, ...] = (32,)
    exact: bool = True
    only_arch: str = ""

    def source(self, arch: str) -> KernelSource:
        """A kernel: thread i reads a_j from x[j][i] and writes d_j to y[j][i], all in 8 bytes."""
        lines = [
            f'extern "C" __global__ void {ENTRY}(const void* x, const void* packed,',
            "    const void* bias, void* y, void* workspace, int m, long long ldx, long long ldy)",
            "{",
            "  const unsigned long long i = blockIdx.x * blockDim.x + threadIdx.x;",
            "  const unsigned long long* in = (const unsigned long long*)x;",
            "  unsigned long long* out = (unsigned long long*)y;",
        ]
        for number, values in enumerate(self.inputs):
            ctype = _CTYPES[input_bits(values)]
            lines.append(f"  {ctype} a{number} = ({ctype})in[{number} * (long long)m + i];")
        for number, bits in enumerate(self.outputs):
            lines.append(f"  {_CTYPES[bits]} d{number} = 0;")
        lines.append(self.body)
        for number in range(len(self.outputs)):
            lines.append(f"  out[{number} * (long long)m + i] = d{number};")
        lines.append("}\n")
        plan = LaunchPlan(THREADS, 0, THREADS, 1, 1, 1, False)
        return KernelSource("\n".join(lines), arch, plan)


def input_bits(values: Values) -> int:
    """Width of an operand."""
    return _BITS.get(values, 32)


def _asm(
    opcode: str,
    inputs: tuple[Values, ...],
    ptx: str = "",
    outputs: tuple[int, ...] = (32,),
    exact: bool = True,
) -> HardwareCase:
    """A case of one asm statement; by default opcode d0, a0, a1, ...;"""
    count = len(inputs) + len(outputs)
    text = ptx or f"{opcode} {', '.join(f'%{index}' for index in range(count))};"
    outs = ", ".join(f'"={_CONSTRAINTS[bits]}"(d{n})' for n, bits in enumerate(outputs))
    ins = ", ".join(f'"{_CONSTRAINTS[input_bits(v)]}"(a{n})' for n, v in enumerate(inputs))
    return HardwareCase(
        opcode, f'  asm volatile("{text}" : {outs} : {ins});', inputs, outputs, exact
    )


def cases() -> list[HardwareCase]:
    """Every case, opcode by opcode."""
    return [
        *_integers(),
        *_bit_fields(),
        *_comparisons(),
        *_conversions(),
        *_floats(),
        *_tensor(),
        *_warpgroup(),
        *_memory(),
    ]


def _integers() -> Iterator[HardwareCase]:
    two: tuple[Values, ...] = ("bits", "bits")
    for kind in ("u32", "s32"):
        for opcode in ("add", "sub", "mul.lo", "mul.hi", "min", "max"):
            yield _asm(f"{opcode}.{kind}", two)
        yield _asm(f"mul.wide.{kind}", two, outputs=(64,))
        yield _asm(f"mad.lo.{kind}", ("bits", "bits", "bits"))
        yield _asm(f"mad.wide.{kind}", ("bits", "bits", "bits64"), outputs=(64,))
        for opcode in ("div", "rem"):
            yield _asm(f"{opcode}.{kind}", ("bits", "nonzero"))
    for opcode in ("add.s64", "mul.lo.s64", "mul.hi.s64", "min.s64", "max.u64"):
        yield _asm(opcode, ("bits64", "bits64"), outputs=(64,))
    yield _asm("neg.s32", ("bits",))
    yield _asm("abs.s32", ("bits",))


def _bit_fields() -> Iterator[HardwareCase]:
    for opcode in ("and.b32", "or.b32", "xor.b32"):
        yield _asm(opcode, ("bits", "bits"))
    yield _asm("not.b32", ("bits",))
    for kind in ("b32", "u32", "s32"):
        for opcode in ("shr",) if kind != "b32" else ("shl", "shr"):
            yield _asm(f"{opcode}.{kind}", ("bits", "shift"))
    yield _asm("shl.b64", ("bits64", "shift"), outputs=(64,))
    yield _asm("shr.s64", ("bits64", "shift"), outputs=(64,))
    for direction in "lr":
        for mode in ("wrap", "clamp"):
            yield _asm(f"shf.{direction}.{mode}.b32", ("bits", "bits", "shift"))
    for table in (0xEA, 0x6A, 0x96, 0xE8, 0x1B, 0x80, 0xF8, 0xFE, 0x3A, 0xD1):
        text = f"lop3.b32 %0, %1, %2, %3, {table:#x};"
        yield _asm(f"lop3.b32 {table:#x}", ("bits", "bits", "bits"), text)
    yield _asm("prmt.b32", ("bits", "bits", "bits"))
    yield _asm("bfe.u32", ("bits", "shift", "shift"))
    yield _asm("bfe.s32", ("bits", "shift", "shift"))
    yield _asm("bfi.b32", ("bits", "bits", "shift", "shift"))
    for opcode in ("popc.b32", "clz.b32", "brev.b32"):
        yield _asm(opcode, ("bits",))


def _comparisons() -> Iterator[HardwareCase]:
    def compared(name: str, inputs: tuple[Values, ...]) -> HardwareCase:
        text = f"{{ .reg .pred p; setp.{name} p, %1, %2; selp.b32 %0, 1, 0, p; }}"
        return _asm(f"setp.{name}", inputs, text)

    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        yield compared(f"{name}.s32", ("bits", "bits"))
        yield compared(f"{name}.u32", ("bits", "bits"))
        yield compared(f"{name}.f32", ("f32", "f32"))
        yield compared(f"{name}u.f32", ("f32", "f32"))
    yield compared("lt.s64", ("bits64", "bits64"))


def _conversions() -> Iterator[HardwareCase]:
    yield _asm("cvt.s64.s32", ("bits",), outputs=(64,))
    yield _asm("cvt.u32.u64", ("bits64",))
    yield _asm("cvt.rn.f32.s32", ("bits",))
    yield _asm("cvt.rn.f32.u32", ("bits",))
    yield _asm("cvt.rzi.s32.f32", ("f32",))
    yield _asm("cvt.rzi.u32.f32", ("f32",))
    for kind in ("f16", "bf16"):
        floats: Values = "f16" if kind == "f16" else "bf16"
        yield _asm(f"cvt.f32.{kind}", (floats,))
        yield _asm(f"cvt.rn.{kind}.f32", ("f32",), outputs=(16,))
        yield _asm(f"cvt.rn.{kind}x2.f32", ("f32", "f32"))
    text = "{ .reg .b16 l, h; mov.b32 {l, h}, %1; mov.b32 %0, {h, l}; }"
    yield _asm("mov.b32 {h, l}", ("bits",), text)


def _times(values: Values, count: int) -> tuple[Values, ...]:
    return (values,) * count


def _floats() -> Iterator[HardwareCase]:
    for opcode, count in (("add", 2), ("sub", 2), ("mul", 2), ("fma", 3)):
        yield _asm(f"{opcode}.rn.f32", _times("f32", count))
        yield _asm(f"{opcode}.rn.f16x2", _times("f16x2", count))
        yield _asm(f"{opcode}.rn.bf16x2", _times("bf16x2", count))
        yield _asm(f"{opcode}.rn.f16", _times("f16", count), outputs=(16,))
    for opcode in ("min", "max"):
        yield _asm(f"{opcode}.f32", ("f32", "f32"))
        yield _asm(f"{opcode}.f16x2", ("f16x2", "f16x2"))
        yield _asm(f"{opcode}.bf16x2", ("bf16x2", "bf16x2"))
    for opcode in ("neg", "abs"):  # of a NaN they may give any NaN
        yield _asm(f"{opcode}.f16x2", ("f16x2_number",))
        yield _asm(f"{opcode}.bf16x2", ("bf16x2_number",))


def _tensor() -> Iterator[HardwareCase]:
    for kind in ("f16", "bf16"):
        operand: Values = "f16x2_unit" if kind == "f16" else "bf16x2_unit"
        inputs = (*_times(operand, 6), *_times("f32_unit", 4))
        opcode = f"mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32"
        text = (
            f"{opcode} {{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, {{%8, %9}}, {{%10, %11, %12, %13}};"
        )
        yield _asm(opcode, inputs, text, outputs=(32,) * 4, exact=False)
    for count in (1, 2, 4):
        for trans in ("", ".trans"):
            yield _ldmatrix(count, trans)
            yield _stmatrix(count, trans)


def _ldmatrix(count: int, trans: str) -> HardwareCase:
    opcode = f"ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16"
    registers = ", ".join(f"%{n}" for n in range(count))
    outs = ", ".join(f'"=r"(d{n})' for n in range(count))
    body = f"""{_SHARED}
  ((unsigned*)mine)[0] = a0, ((unsigned*)mine)[1] = a1;
  ((unsigned*)mine)[2] = a2, ((unsigned*)mine)[3] = a3;
  __syncwarp();
  asm volatile("{opcode} {{{registers}}}, [%{count}];" : {outs} : "r"(at) : "memory");"""
    return HardwareCase(opcode, body, ("bits",) * 4, (32,) * count)


def _stmatrix(count: int, trans: str) -> HardwareCase:
    opcode = f"stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16"
    registers = ", ".join(f"%{n + 1}" for n in range(count))
    ins = ", ".join(f'"r"(a{n})' for n in range(count))
    body = f"""{_SHARED}
  for (int i = 0; i < 4; ++i) ((unsigned*)mine)[i] = 0;
  __syncwarp();
  asm volatile("{opcode} [%0], {{{registers}}};" :: "r"(at), {ins} : "memory");
  __syncwarp();
  d0 = ((unsigned*)mine)[0], d1 = ((unsigned*)mine)[1];
  d2 = ((unsigned*)mine)[2], d3 = ((unsigned*)mine)[3];"""
    return HardwareCase(opcode, body, ("bits",) * 4, (32,) * 4)


_SHARED = f"""  __shared__ __align__(16) unsigned char tile[{THREADS} * 16];
  unsigned char* mine = tile + threadIdx.x * 16;
  unsigned at;
  asm("{{ .reg .u64 p; cvta.to.shared.u64 p, %1; cvt.u32.u64 %0, p; }}" : "=r"(at) : "l"(mine));"""


def _warpgroup() -> Iterator[HardwareCase]:
    """wgmma.m64n8k16: 8 rows of B are 1024 swizzled bytes, of which each thread writes 8."""
    for kind in ("f16", "bf16"):
        operand: Values = "f16x2_unit" if kind == "f16" else "bf16x2_unit"
        opcode = f"wgmma.mma_async.sync.aligned.m64n8k16.f32.{kind}.{kind}"
        outs = ", ".join(f'"+f"(c{n})' for n in range(4))
        ins = ", ".join(f'"r"(a{n})' for n in range(4))
        loads = "".join(
            f'  asm volatile("mov.b32 %0, %1;" : "=f"(c{n}) : "r"(a{n + 6}));\n' for n in range(4)
        )
        stores = "".join(
            f'  asm volatile("mov.b32 %0, %1;" : "=r"(d{n}) : "f"(c{n}));\n' for n in range(4)
        )
        body = f"""  __shared__ __align__(1024) unsigned tile[{THREADS} * 2];
  tile[threadIdx.x * 2] = a4, tile[threadIdx.x * 2 + 1] = a5;
  unsigned at;
  asm("{{ .reg .u64 p; cvta.to.shared.u64 p, %1; cvt.u32.u64 %0, p; }}"
      : "=r"(at) : "l"(tile + threadIdx.x / 128 * 256));
  const unsigned long long descriptor =
      (1ull << 62) | (64ull << 32) | (1ull << 16) | ((at & 0x3ffff) >> 4);
  float c0, c1, c2, c3;
{loads}  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  asm volatile("{opcode} {{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, %8, 1, 1, 1, 0;"
               : {outs} : {ins}, "l"(descriptor) : "memory");
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" : {outs} :: "memory");
{stores}"""
        inputs = (*_times(operand, 6), *_times("f32_unit", 4))
        yield HardwareCase(opcode, body, inputs, (32,) * 4, False, "sm_90a")


def _memory() -> Iterator[HardwareCase]:
    for size in (4, 8, 16):
        mode = "cg" if size == 16 else "ca"
        opcode = f"cp.async.{mode}.shared.global"
        # Copies from the thread's own first two operands, which lie 8 bytes apart from the next's.
        body = f"""{_SHARED}
  for (int w = 0; w < 4; ++w) ((unsigned*)mine)[w] = a1;
  asm volatile("{opcode} [%0], [%1], {size}, %2;"
               :: "r"(at), "l"(in + (i / 2 * 2)), "r"(a0) : "memory");
  asm volatile("cp.async.commit_group; cp.async.wait_group 0;" ::: "memory");
  d0 = ((unsigned*)mine)[0], d1 = ((unsigned*)mine)[1];
  d2 = ((unsigned*)mine)[2], d3 = ((unsigned*)mine)[3];"""
        yield HardwareCase(f"{opcode} {size}", body, ("copy_size", "bits"), (32,) * 4)
    for operation in ("inc.u32", "add.u32", "exch.b32", "max.s32", "min.u32", "or.b32"):
        opcode = f"atom.global.{operation}"
        body = f"""  unsigned* slot = (unsigned*)(out + 2 * (long long)m + i);
  *slot = a0;
  asm volatile("{opcode} %0, [%1], %2;" : "=r"(d0) : "l"(slot), "r"(a1) : "memory");
  d1 = *(volatile unsigned*)slot;"""
        yield HardwareCase(opcode, body, ("bits", "bits"), (32, 32))
