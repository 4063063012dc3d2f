"""The kernel that turns packed weights into the dense weight; pure text and launch plan.

The dense weight is [N, K], row-major, in the problem's dtype. A kernel of our usual arguments: the
weight goes to y, whose row stride is ldy; x, bias, workspace, m and ldx are not read. Launch it for
a "batch" of K: a CTA's tile is block_n features of block_m inputs.
"""

from __future__ import annotations

from dataclasses import dataclass

from ptxgen.arch import ArchSpec
from ptxgen.families.kernel_text import TYPES
from ptxgen.families.mma import dequant
from ptxgen.problem import Problem
from ptxgen.ptx import global_memory, packed16, shuffle
from ptxgen.ptx.instruction import Instruction, render_all
from ptxgen.source import KernelSource, LaunchPlan
from ptxgen.weights.layout import (
    BLOCK_K,
    BLOCK_ROWS,
    FRAGMENT_BYTES,
    LAYOUT_VERSION,
    WEIGHT_BYTES,
    packed_layout,
)

ENTRY = "ptxtune_dequantize"
THREADS = 256
BLOCKS = 2
"""K blocks of a CTA; each takes four warps, one a row block. A CTA moves 40 KB, and writes the 512
bytes of a row together."""

ABOUT = """\
// A warp turns one row block x 128 inputs from the order of mma's A fragments into rows. Each four
// lanes exchange packed words, a quarter of the bytes of their values: then a lane has eight inputs
// of two features at a time, and stores them 16 bytes at once, two lanes a sector.
"""


@dataclass(frozen=True, slots=True)
class _OnWeights:
    scale_on: str = "weights"
    dequant: str = "magic"


@dataclass(frozen=True, slots=True)
class _Shape:
    """What the texts of dequant ask of a kernel."""

    problem: Problem
    config: _OnWeights = _OnWeights()


def launch_plan(problem: Problem) -> LaunchPlan:
    """How to launch the kernel; its grid is that of a batch of K."""
    layout = packed_layout(problem)
    return LaunchPlan(
        threads=THREADS,
        smem_bytes=0,
        block_m=BLOCKS * BLOCK_K,
        block_n=BLOCK_ROWS,
        n_tiles=layout.strips,
        split_k=1,
        pdl=False,
    )


def emit_dequantize(problem: Problem, arch: ArchSpec) -> KernelSource:
    """The kernel's text and launch plan; every problem has one, on every arch."""
    shape = _Shape(problem)
    text = "\n".join(
        (
            f"// ptxtune {problem.key()} for {arch.name}, packed layout {LAYOUT_VERSION}: "
            f"packed -> dense [N, K]",
            ABOUT,
            TYPES,
            _constants(problem),
            render_all(_instructions(shape, arch), arch),
            "",
            dequant.device_function(shape),
            "",
            _kernel(shape),
        )
    )
    return KernelSource(text, arch.name, launch_plan(problem), ENTRY)


def _instructions(shape: _Shape, arch: ArchSpec) -> list[Instruction]:
    found = [
        global_memory.ld_global_nc_v4(),
        global_memory.ld_global_nc_u32(),
        global_memory.st_global_v4(),
        shuffle.lane_xor(1),
        shuffle.lane_xor(2),
        packed16.merge_bytes(),
        *dequant.instructions(shape, arch),
    ]
    if shape.problem.zero == "int":
        found.append(global_memory.ld_global_nc_u8())
    return found


def _constants(problem: Problem) -> str:
    layout = packed_layout(problem)
    lines = [
        f"enum : int {{ N = {problem.n}, K = {problem.k}, K_BLOCKS = {layout.k_blocks} }};",
        f"enum : int {{ THREADS = {THREADS}, BLOCKS = {BLOCKS} }};",
        f"enum : int {{ BLOCK_BYTES = {layout.block_bytes} }};",
    ]
    if not problem.whole_k:
        lines.append(
            f"enum : int {{ GROUP_SIZE = {problem.group_size}, "
            f"GROUPS_PER_BLOCK = {layout.groups_per_block} }};"
        )
    return "\n".join([*lines, ""])


def _kernel(shape: _Shape) -> str:
    return f"""\
extern "C" __global__ void __launch_bounds__(THREADS)
{ENTRY}(const void* __restrict__, const void* __restrict__ packed_arg, const void* __restrict__,
                   void* __restrict__ y_arg, void* __restrict__, int, long long, long long ldy) {{
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int strip = blockIdx.y, row_block = warp % 4;
  const int k_block = blockIdx.x * BLOCKS + warp / 4;
  if (k_block >= K_BLOCKS) return;  // a whole warp
  const int g = lane / 4, odd = lane % 2, high = lane / 2 % 2;
  const u8* packed = (const u8*)packed_arg;
  const u8* block = packed + ((long long)strip * K_BLOCKS + k_block) * BLOCK_BYTES;

  // All loads first: 16 bytes of each half block, and the scales of this lane's 32 inputs in it.
  u32 words[2][4], scales[2], zero_0[2], zero_8[2];
#pragma unroll
  for (int k64 = 0; k64 < 2; ++k64) {{
    ld_global_nc_v4(words[k64], block + (row_block * 2 + k64) * {FRAGMENT_BYTES} + lane * 16);
{_scales(shape)}
  }}

  const int row = strip * {BLOCK_ROWS} + row_block * 16 + g;  // and row + 8
  u8* y = (u8*)y_arg + 2 * row * ldy;
  const u32 take = odd ? 0x3715 : 0x6240;  // the inputs 0..7 of a k16 step, or its inputs 8..15
#pragma unroll
  for (int k64 = 0; k64 < 2; ++k64) {{
    const u32 (&w)[4] = words[k64];
    const u32 scale_0 = low_half_twice(scales[k64]), scale_8 = high_half_twice(scales[k64]);
#pragma unroll
    for (int i = 0; i < 2; ++i) {{
      // Step 2 * high + i of this lane and of the one two away; then of their neighbours.
      const u32 kept = high ? w[2 + i] : w[i], got = lane_xor_2(high ? w[i] : w[2 + i]);
      const u32 first = high ? got : kept, second = high ? kept : got;
      u32 a[4], b[4];  // pairs of inputs 0..3 of features row, row + 8; then of inputs 4..7
      dequantize(a, merge_bytes(first, lane_xor_1(first), take), zero_0[k64], zero_8[k64]);
      dequantize(b, merge_bytes(second, lane_xor_1(second), take), zero_0[k64], zero_8[k64]);
      const int input = k_block * {BLOCK_K} + k64 * 64 + high * 32 + i * 16 + odd * 8;
      u8* to = y + 2 * input;
{_stores(shape.problem)}
    }}
  }}
}}
"""


def _scales(shape: _Shape) -> str:
    """Loads of one pair of scales and zero points; 32 aligned inputs are of one group."""
    problem = shape.problem
    layout = packed_layout(problem)
    if problem.whole_k:
        lines = [
            f"const u8* table = packed + {layout.blocks_bytes}ll;",
            "const int pair = (strip * 4 + row_block) * 8 + g;",
            "scales[k64] = ld_global_nc_u32(table + pair * 4);",
        ]
        zero = f"table + {layout.table_scale_bytes} + pair"
    else:
        lines = [
            "const int group = (k64 * 64 + high * 32) / GROUP_SIZE;",
            "const int pair = (row_block * GROUPS_PER_BLOCK + group) * 8 + g;",
            f"scales[k64] = ld_global_nc_u32(block + {WEIGHT_BYTES} + pair * 4);",
        ]
        zero = f"block + {WEIGHT_BYTES + layout.scale_bytes} + pair"
    if problem.zero == "int":
        lines.append(f"const u32 zeros = ld_global_nc_u8({zero});")
    zero_0, zero_8 = dequant.zero_words(shape, "zeros")
    lines += [f"zero_0[k64] = {zero_0};", f"zero_8[k64] = {zero_8};"]
    return "\n".join(f"    {line}" for line in lines)


def _stores(problem: Problem) -> str:
    """Stores of both features, where the weight has them; N counts in eights and K in 32s."""
    lines = []
    inside_k = [] if problem.k % BLOCK_K == 0 else ["input < K"]
    for offset, j in ((0, 0), (8, 1)):
        inside_n = [] if problem.n % BLOCK_ROWS == 0 else [f"row + {offset} < N"]
        condition = " && ".join([*inside_k, *inside_n])
        guard = f"if ({condition}) " if condition else ""
        values = (f"{name}[{index}]" for name in "ab" for index in (j, j + 2))
        scaled = ", ".join(f"mul2({value}, scale_{offset})" for value in values)
        to = "to" if offset == 0 else "to + 16 * ldy"
        lines.append(f"      {guard}st_global_v4({to}, {scaled});")
    return "\n".join(lines)
