"""CUDA text that consumes one pipeline stage: fragments, dequantize, mma, scale."""

from __future__ import annotations

from ptxgen.families.mma.dequant import zero_words
from ptxgen.families.mma.shape import Shape
from ptxgen.weights.layout import BLOCK_K

STEPS = BLOCK_K // 16
"""k16 steps of a packed K block."""


def setup(shape: Shape) -> str:
    """Lane addresses of the activation fragments, and the zero points of a whole-K group."""
    lines = [
        "  // ---- this lane's fragments ------------------------------------------------------------"
    ]
    row = "lane % 8"
    if shape.config.block_m < 8:
        row = "lane % BLOCK_M"  # the n8 tile's other columns are never stored
    if shape.token_tiles == 1:
        lines += [
            f"  const int token_row = warp_m * WARP_M + {row};",
            "  const u32 x_smem = smem_base + X_OFFSET + warp_k * (WARP_K / 64) * (BLOCK_M * 128)"
            " + token_row * 128;",
            "  // ldmatrix.x4 takes the chunks 4 i .. 4 i + 3 of a row, swizzled by the row",
            "  const u32 x_chunk_of[2] = {((lane / 8) ^ (token_row % 8)) * 16,"
            " ((4 + lane / 8) ^ (token_row % 8)) * 16};",
        ]
    else:
        lines += [
            "  const int token_row = warp_m * WARP_M + lane / 16 * 8 + lane % 8;",
            "  const u32 x_smem = smem_base + X_OFFSET + warp_k * (WARP_K / 64) * (BLOCK_M * 128)"
            " + token_row * 128;",
            "  u32 x_chunk_of[4];  // ldmatrix takes chunks 2 i and 2 i + 1 of two n8 tiles, swizzled",
            "#pragma unroll",
            "  for (int i = 0; i < 4; ++i)"
            " x_chunk_of[i] = ((2 * i + lane / 8 % 2) ^ (token_row % 8)) * 16;",
        ]
    if shape.meta_bytes:
        lines.append("  const u32 scale_smem = meta_smem + lane / 4 * 4;")
    if shape.meta_zero_bytes:
        lines.append("  const u32 zero_smem = meta_smem + META_SCALE_BYTES + lane / 4;")
    if shape.problem.whole_k and shape.problem.zero == "int":
        lines += whole_k_zeros(shape)
    return "\n".join([*lines, ""])


def whole_k_zeros(shape: Shape) -> list[str]:
    """Loads the zero points of a whole-K group, once."""
    zero_0, zero_8 = zero_words(shape, "zeros")
    return [
        "  u32 zero_0[ROW_BLOCKS], zero_8[ROW_BLOCKS];  // one zero point serves the whole K",
        "#pragma unroll",
        "  for (int rb = 0; rb < ROW_BLOCKS; ++rb) {",
        f"    const int row_block = min(n_tile * (BLOCK_N / 16) + {shape.row_block_text},"
        " STRIPS * 4 - 1);",
        "    const u32 zeros ="
        " ld_global_nc_u8(packed + TABLE_OFFSET + STRIPS * 128 + row_block * 8 + lane / 4);",
        f"    zero_0[rb] = {zero_0};",
        f"    zero_8[rb] = {zero_8};",
        "  }",
    ]


def consume(shape: Shape) -> str:
    """Lambda that multiplies one slot into the accumulators."""
    on_accumulators = shape.config.scale_on == "accumulators" and not shape.problem.whole_k
    lines = ["  auto consume = [&](u32 slot) {", "#pragma unroll"]
    lines.append("    for (int kb = 0; kb < WARP_BLOCKS; ++kb) {")
    if on_accumulators:
        lines.append("      float part[CHAINS][ROW_BLOCKS][TOKEN_TILES][4];")
    if shape.subnormal:
        lines += [
            "      float x_sums[TOKEN_TILES][4];  // of a group's activations: mma with a weight of one",
            "      const u32 ones[4] = {0x3c003c00, 0x3c003c00, 0x3c003c00, 0x3c003c00};",
        ]
    if shape.meta_bytes:
        lines.append("      u32 scales[ROW_BLOCKS];")
    if not shape.subnormal and not shape.problem.whole_k:
        lines.append("      u32 zero_0[ROW_BLOCKS], zero_8[ROW_BLOCKS];")
    if shape.subnormal and shape.meta_zero_bytes:
        lines.append("      float zero_0[ROW_BLOCKS], zero_8[ROW_BLOCKS];")
    lines.append("      u32 words[ROW_BLOCKS][4];")
    lines.append(
        "      u32 b[TOKEN_TILES][8];" if shape.token_tiles == 1 else "      u32 b[TOKEN_TILES][2];"
    )
    lines += ["#pragma unroll", f"      for (int step = 0; step < {STEPS}; ++step) {{"]
    lines += _group_start(shape, on_accumulators)
    lines += _fragment_loads(shape)
    lines += _multiply(shape, "part[step % CHAINS]" if on_accumulators else "acc")
    if on_accumulators:
        lines += _group_end(shape)
    lines += ["      }", "    }", "  };", ""]
    return "\n".join(lines)


def _group_start(shape: Shape, on_accumulators: bool) -> list[str]:
    if shape.problem.whole_k:
        return []
    lines = ["        if (step % GROUP_STEPS == 0) {  // a new group"]
    if shape.subnormal:
        lines += [
            "#pragma unroll",
            "          for (int i = 0; i < 4 * TOKEN_TILES; ++i) x_sums[i / 4][i % 4] = 0.0f;",
        ]
    lines.append("#pragma unroll")
    lines.append("          for (int rb = 0; rb < ROW_BLOCKS; ++rb) {")
    lines.append("            const int group = rb * GROUPS_PER_BLOCK + step / GROUP_STEPS;")
    lines.append(
        "            scales[rb] = ld_shared_u32(scale_smem + slot + kb * META_BYTES + group * 32);"
    )
    if shape.meta_zero_bytes:
        lines.append(
            "            const u32 zeros ="
            " ld_shared_u8(zero_smem + slot + kb * META_BYTES + group * 8);"
        )
    lines += _group_zeros(shape)
    if on_accumulators:
        lines += [
            "#pragma unroll",
            "            for (int t = 0; t < TOKEN_TILES; ++t)",
            "#pragma unroll",
            "              for (int i = 0; i < 4 * CHAINS; ++i) part[i / 4][rb][t][i % 4] = 0.0f;",
        ]
    return [*lines, "          }", "        }"]


def _group_zeros(shape: Shape) -> list[str]:
    """The zero points of a group's features g and g + 8, as the dequantization wants them."""
    if not shape.subnormal:
        zero_0, zero_8 = zero_words(shape, "zeros")
    elif shape.meta_zero_bytes:
        zero_0, zero_8 = "(float)(zeros & 15)", "(float)(zeros >> 4)"
    else:
        return []
    return [f"            zero_0[rb] = {zero_0};", f"            zero_8[rb] = {zero_8};"]


def _fragment_loads(shape: Shape) -> list[str]:
    lines = [
        "        if (step % 4 == 0) {  // 64 inputs of weights: one 16-byte load a row block",
        "#pragma unroll",
        "          for (int rb = 0; rb < ROW_BLOCKS; ++rb)",
        "            ld_shared_v4(words[rb],"
        " weights_smem + slot + ((kb * ROW_BLOCKS + rb) * 2 + step / 4) * 512);",
        "        }",
    ]
    slab = "(kb * 2 + step / 4) * (BLOCK_M * 128)"
    if shape.token_tiles == 1:
        return [
            *lines,
            "        if (step % 2 == 0)  // 32 inputs of the n8 tile's activations",
            f"          ldmatrix_x4(b[0] + step % 4 * 2,"
            f" x_smem + slot + {slab} + x_chunk_of[step % 4 / 2]);",
        ]
    lines.append(f"        const u32 x_step = x_smem + slot + {slab} + x_chunk_of[step % 4];")
    lines += ["#pragma unroll", "        for (int t = 0; t + 1 < TOKEN_TILES; t += 2)"]
    lines.append("          ldmatrix_x4(b[t], x_step + t * 1024);  // two n8 tiles")
    if shape.token_tiles % 2:
        lines.append("        ldmatrix_x2(b[TOKEN_TILES - 1], x_step + (TOKEN_TILES - 1) * 1024);")
    return lines


def _multiply(shape: Shape, target: str) -> list[str]:
    b0, b1 = ("b[t][step % 4 * 2]", "b[t][step % 4 * 2 + 1]")
    if shape.token_tiles > 1:
        b0, b1 = "b[t][0]", "b[t][1]"
    lines = []
    if shape.subnormal:
        lines += ["#pragma unroll", "        for (int t = 0; t < TOKEN_TILES; ++t)"]
        lines.append(f"          mma_m16n8k16(x_sums[t], ones, {b0}, {b1});")
    lines += ["#pragma unroll", "        for (int rb = 0; rb < ROW_BLOCKS; ++rb) {"]
    lines.append("          u32 a[4];")
    zeros = "" if shape.subnormal else ", zero_0[rb], zero_8[rb]"
    lines.append(f"          dequantize(a, words[rb][step % 4]{zeros});")
    if shape.config.scale_on == "weights":
        lines += [
            "          const u32 scale_0 = low_half_twice(scales[rb]);",
            "          const u32 scale_8 = high_half_twice(scales[rb]);",
            "          a[0] = mul2(a[0], scale_0), a[1] = mul2(a[1], scale_8);",
            "          a[2] = mul2(a[2], scale_0), a[3] = mul2(a[3], scale_8);",
        ]
    if shape.problem.whole_k and shape.problem.zero == "sym":
        zero_0, zero_8 = zero_words(shape, "")
        lines = [line.replace("zero_0[rb]", zero_0).replace("zero_8[rb]", zero_8) for line in lines]
    lines += ["#pragma unroll", "          for (int t = 0; t < TOKEN_TILES; ++t)"]
    return [*lines, f"            mma_m16n8k16({target}[rb][t], a, {b0}, {b1});", "        }"]


def _group_end(shape: Shape) -> list[str]:
    sum_text, comment = "sum", "scale the group's sums, once, in FP32"
    if shape.subnormal:
        zero = "(i < 2 ? zero_0[rb] : zero_8[rb])" if shape.meta_zero_bytes else "8.0f"
        power = "(i < 2 ? 16777216.0f : 1048576.0f)"  # 2^24 and 2^20, see dequantize
        sum_text = f"({power} * sum - {zero} * x_sums[t][i % 2])"
        comment = "take off the zero points and scale the group's sums, once, in FP32"
    return [
        f"        if ((step + 1) % GROUP_STEPS == 0) {{  // {comment}",
        "#pragma unroll",
        "          for (int rb = 0; rb < ROW_BLOCKS; ++rb) {",
        "            float scale_0, scale_8;",
        "            unpack_to_float(scale_0, scale_8, scales[rb]);",
        "#pragma unroll",
        "            for (int t = 0; t < TOKEN_TILES; ++t)",
        "#pragma unroll",
        "              for (int i = 0; i < 4; ++i) {",
        "                float sum = part[0][rb][t][i];",
        "#pragma unroll",
        "                for (int chain = 1; chain < CHAINS; ++chain) sum += part[chain][rb][t][i];",
        f"                acc[rb][t][i] += (i < 2 ? scale_0 : scale_8) * {sum_text};",
        "              }",
        "          }",
        "        }",
    ]
