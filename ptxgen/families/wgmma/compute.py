"""CUDA text that consumes one stage by wgmma, dequantizing one chunk while another is multiplied.

Registers of a chunk are written only after the wait that covers the wgmma which read them last:
chunk c + 1 goes into the other half of `a` while chunk c is in flight, and keep_alive holds a half until
that wait, so that the compiler cannot give its registers to anything else.
"""

from __future__ import annotations

from ptxgen.families.mma import compute as mma_compute
from ptxgen.families.mma.dequant import zero_words
from ptxgen.families.wgmma.shape import WgmmaShape

CHUNK_STEPS = 2
CHUNKS = 4

KEEP_ALIVE = """\
// Pins a register in the compiler's eyes: it is not given away before this point.
__device__ __forceinline__ void keep_alive(u32& value) { asm volatile("" : "+r"(value)::"memory"); }
__device__ __forceinline__ void keep_alive(float& value) { asm volatile("" : "+f"(value)::"memory"); }
"""


def setup(shape: WgmmaShape) -> str:
    """The activations' descriptor, fragment registers, and lane addresses of scales and zeros."""
    lines = [
        "  // ---- operands of wgmma ----------------------------------------------------------------",
        "  // Descriptor of 8-row atoms of 128 swizzled bytes, 1024 bytes from one to the next",
        '  // (PTX ISA, "Matrix Descriptor Format"); the address is in units of 16 bytes.',
        "  const u64 x_descriptor = (1ull << 62) | (64ull << 32) | (1ull << 16)"
        " | ((smem_base + X_OFFSET) >> 4);",
        "  u32 a[2][CHUNK_STEPS][ROW_BLOCKS][4] = {};  // fragments of two chunks, in turns",
    ]
    if shape.meta_bytes:
        lines.append("  const u32 scale_smem = meta_smem + lane / 4 * 4;")
        lines.append("  u32 scales[ROW_BLOCKS];")
    if shape.meta_zero_bytes:
        lines.append("  const u32 zero_smem = meta_smem + META_SCALE_BYTES + lane / 4;")
    if shape.problem.whole_k and shape.problem.zero == "int":
        lines += mma_compute.whole_k_zeros(shape)
    elif shape.problem.whole_k:
        zero_0, zero_8 = zero_words(shape, "")
        lines.append(f"  const u32 zero_0[1] = {{{zero_0}}}, zero_8[1] = {{{zero_8}}};")
    else:
        lines.append("  u32 zero_0[ROW_BLOCKS], zero_8[ROW_BLOCKS];")
    return "\n".join([*lines, ""])


def consume(shape: WgmmaShape) -> str:
    """Lambda that multiplies one slot into the accumulators; leaves its last chunk in flight."""
    lines = ["  auto consume = [&](u32 slot) {", "    u32 words[ROW_BLOCKS][4];"]
    lines += ["#pragma unroll", f"    for (int chunk = 0; chunk < {CHUNKS}; ++chunk) {{"]
    lines += ["#pragma unroll", "      for (int s = 0; s < CHUNK_STEPS; ++s) {"]
    lines.append("        const int step = chunk * CHUNK_STEPS + s;")
    lines += _group_start(shape)
    lines += [
        "        if (step % 4 == 0) {  // 64 inputs of weights: one 16-byte load a row block",
        "#pragma unroll",
        "          for (int rb = 0; rb < ROW_BLOCKS; ++rb)",
        "            ld_shared_v4(words[rb], weights_smem + slot + (rb * 2 + step / 4) * 512);",
        "        }",
    ]
    lines += _dequantize(shape)
    lines += ["      }", "      wgmma_fence();"]
    lines += ["#pragma unroll", "      for (int s = 0; s < CHUNK_STEPS; ++s) {"]
    lines += [
        "        const int step = chunk * CHUNK_STEPS + s;",
        "        const u64 x_tile = x_descriptor"
        " + ((slot + step / 4 * (BLOCK_M * 128) + step % 4 * 32) >> 4);",
        "#pragma unroll",
        "        for (int rb = 0; rb < ROW_BLOCKS; ++rb)",
        f"          wgmma_m64n{shape.config.block_m}k16(acc[rb], a[chunk % 2][s][rb], x_tile);",
        "      }",
        "      wgmma_commit();",
        "      wgmma_wait_1();  // the chunk before is done: its registers may be written again",
        "#pragma unroll",
        "      for (int i = 0; i < CHUNK_STEPS * ROW_BLOCKS * 4; ++i)",
        "        keep_alive(a[(chunk + 1) % 2][i / (ROW_BLOCKS * 4)][i / 4 % ROW_BLOCKS][i % 4]);",
        "    }",
        "  };",
        "",
    ]
    return "\n".join(lines)


def _group_start(shape: WgmmaShape) -> list[str]:
    if shape.problem.whole_k:
        return []
    lines = ["        if (step % GROUP_STEPS == 0) {  // a new group", "#pragma unroll"]
    lines.append("          for (int rb = 0; rb < ROW_BLOCKS; ++rb) {")
    lines.append("            const int group = rb * GROUPS_PER_BLOCK + step / GROUP_STEPS;")
    lines.append("            scales[rb] = ld_shared_u32(scale_smem + slot + group * 32);")
    if shape.meta_zero_bytes:
        lines.append("            const u32 zeros = ld_shared_u8(zero_smem + slot + group * 8);")
    zero_0, zero_8 = zero_words(shape, "zeros")
    lines += [f"            zero_0[rb] = {zero_0};", f"            zero_8[rb] = {zero_8};"]
    return [*lines, "          }", "        }"]


def _dequantize(shape: WgmmaShape) -> list[str]:
    zero = "0" if shape.problem.whole_k and shape.problem.zero == "sym" else "rb"
    lines = [
        "#pragma unroll",
        "        for (int rb = 0; rb < ROW_BLOCKS; ++rb) {",
        "          u32 (&part)[4] = a[chunk % 2][s][rb];",
        f"          dequantize(part, words[rb][step % 4], zero_0[{zero}], zero_8[{zero}]);",
    ]
    if not shape.problem.whole_k:
        lines += [
            "          const u32 scale_0 = low_half_twice(scales[rb]);",
            "          const u32 scale_8 = high_half_twice(scales[rb]);",
            "          part[0] = mul2(part[0], scale_0), part[1] = mul2(part[1], scale_8);",
            "          part[2] = mul2(part[2], scale_0), part[3] = mul2(part[3], scale_8);",
        ]
    return [*lines, "        }"]
