"""CUDA text of the mma kernel's global-to-shared copies."""

from __future__ import annotations

from ptxgen.families.mma.shape import Shape

SETUP = """\
  // ---- this thread's part of every stage -------------------------------------------------------
  const int first_stage = (int)((long long)TOTAL_STAGES * blockIdx.z / SPLIT_K);
  const int last_stage = (int)((long long)TOTAL_STAGES * (blockIdx.z + 1) / SPLIT_K);
  const int num_stages = last_stage - first_stage;

  // Weights stream straight in fragment order: a warp copies what it will consume, 512 bytes a time.
  const u8* weights = packed + (u64)(first_stage * STAGE_BLOCKS + warp_k * WARP_BLOCKS) * BLOCK_BYTES;
  u64 row_block_offset[ROW_BLOCKS];
#pragma unroll
  for (int rb = 0; rb < ROW_BLOCKS; ++rb) {
    const int row_block = {row_block};
    row_block_offset[rb] = (u64)(row_block / 4) * (K_BLOCKS * (u64)BLOCK_BYTES) + (row_block % 4) * 1024;
  }
  const u32 warp_slot = warp_n * WARPS_K + warp_k;
  const u32 weights_smem = smem_base + warp_slot * (FRAGMENTS * 512) + lane * 16;
{meta_setup}
  // Activations: rows of BLOCK_K inputs as slabs of 64, each row of a slab 128 bytes, swizzled.
{x_setup}
"""

META_SETUP = """\
  const u32 meta_smem = smem_base + META_OFFSET + warp_slot * (META_BYTES * WARP_BLOCKS);
"""

META_PIECES = """\
  // Scales and zero points in pieces of 8 bytes: of every block a lane copies the same ones.
  u64 meta_from[META_ROUNDS];  // in the packed block
  u32 meta_to[META_ROUNDS];
#pragma unroll
  for (int round = 0; round < META_ROUNDS; ++round) {
    const int rb = (round * 32 + lane) / ROW_BLOCK_PIECES, piece = (round * 32 + lane) % ROW_BLOCK_PIECES;
    const int row_block = {row_block};
    const int zeros = piece - ROW_BLOCK_SCALE_BYTES / 8;  // which piece of the zero points, if it is one
    meta_from[round] = (u64)(row_block / 4) * (K_BLOCKS * (u64)BLOCK_BYTES) + WEIGHT_BYTES
        + (zeros < 0 ? row_block % 4 * ROW_BLOCK_SCALE_BYTES + piece * 8
                     : BLOCK_SCALE_BYTES + row_block % 4 * ROW_BLOCK_ZERO_BYTES + zeros * 8);
    meta_to[round] = zeros < 0 ? rb * ROW_BLOCK_SCALE_BYTES + piece * 8
                               : META_SCALE_BYTES + rb * ROW_BLOCK_ZERO_BYTES + zeros * 8;
  }
"""


def setup(shape: Shape) -> str:
    """Pointers and offsets that stay the same for all stages."""
    return (
        SETUP.replace("{meta_setup}", _meta_setup(shape))
        .replace("{row_block}", _row_block(shape))
        .replace("{x_setup}", _x_setup(shape))
    )


def _row_block(shape: Shape) -> str:
    """Expression for the packed weights' row block of a warp's row block rb: the last one beyond N."""
    row_block = f"n_tile * (BLOCK_N / 16) + {shape.row_block_text}"
    return f"min({row_block}, STRIPS * 4 - 1)" if shape.strip_tail else row_block


def _meta_setup(shape: Shape) -> str:
    if not shape.meta_bytes:
        return ""
    return META_SETUP + META_PIECES if shape.meta_zero_bytes else META_SETUP


def _x_setup(shape: Shape) -> str:
    """One source pointer a thread; its chunks are X_ROW_STEP rows apart."""
    if shape.private:
        span, thread, base = "WARP_K", "lane", "warp_k * WARP_K"
    else:
        span, thread, base = "BLOCK_K", "tid", "0"
    long_rows = shape.x_threads % shape.x_chunks != 0
    x_threads = f"  constexpr int X_THREADS = {shape.x_threads};\n" if long_rows else ""
    return f"""\
  constexpr int X_CHUNKS = {span} / 8;                  // 16-byte chunks of a row
{x_threads}  const int x_row = {thread} / X_CHUNKS, x_chunk = {thread} % X_CHUNKS;
  const int x_k = {base} + x_chunk * 8;                 // first input of this thread's chunk
  const u8* x_source = x + 2 * ((u64)(m_first + x_row) * ldx + first_stage * BLOCK_K + x_k);
  const u32 x_slab = smem_base + X_OFFSET + (x_k / 64) * (BLOCK_M * 128);
"""


def load_weights(shape: Shape) -> str:
    """Lambda that copies one stage of weights, scales and zero points into a slot."""
    lines = ["  auto load_weights = [&](int stage, u32 slot) {"]
    lines.append("    const u8* source = weights + (u64)stage * (STAGE_BLOCKS * BLOCK_BYTES);")
    lines += ["#pragma unroll", "    for (int kb = 0; kb < WARP_BLOCKS; ++kb) {"]
    if shape.k_block_tail:
        lines.append(
            "      const bool inside = (first_stage + stage) * STAGE_BLOCKS + warp_k * WARP_BLOCKS + kb"
            " < K_BLOCKS;"
        )
    lines += ["#pragma unroll", "      for (int rb = 0; rb < ROW_BLOCKS; ++rb) {"]
    lines += ["#pragma unroll", "        for (int half = 0; half < 2; ++half) {"]
    lines.append("          const int fragment = (kb * ROW_BLOCKS + rb) * 2 + half;")
    if shape.warps_m > 1:
        lines.append(
            "          if (fragment % WARPS_M != warp_m) continue;  // shared by WARPS_M warps"
        )
    lines.append(
        "          const u8* from = source + row_block_offset[rb] + kb * BLOCK_BYTES + half * 512"
        " + lane * 16;"
    )
    lines.append(_copy16(shape, "weights_smem + slot + fragment * 512", "from"))
    lines += ["        }", "      }"]
    if shape.meta_bytes:
        lines += _load_meta(shape)
    lines += ["    }", "  };", ""]
    return "\n".join(lines)


def _copy16(shape: Shape, dst: str, src: str, indent: int = 10) -> str:
    pad = " " * indent
    if shape.k_block_tail:
        return f"{pad}cp_async_16_zfill({dst}, {src}, inside ? 16 : 0);"
    return f"{pad}cp_async_16({dst}, {src});"


def _load_meta(shape: Shape) -> list[str]:
    """Copies of a warp's scales and zero points of one packed K block."""
    guard = "if (warp_m == 0) " if shape.warps_m > 1 else ""
    lines = [f"      {guard}{{"]
    lines.append("        const u8* block = source + kb * BLOCK_BYTES;")
    lines.append("        const u32 meta = meta_smem + slot + kb * META_BYTES;")
    lines += _piece_loop(shape) if shape.meta_zero_bytes else _scale_loop(shape)
    return [*lines, "      }"]


def _piece_loop(shape: Shape) -> list[str]:
    """Scales and zero points together: one instruction for up to 32 pieces of either."""
    bytes_ = "inside ? 8 : 0" if shape.k_block_tail else "8"
    return [
        "#pragma unroll",
        "        for (int round = 0; round < META_ROUNDS; ++round)",
        "          if (round * 32 + lane < ROW_BLOCKS * ROW_BLOCK_PIECES)",
        f"            cp_async_8_zfill(meta + meta_to[round], block + meta_from[round], {bytes_});",
    ]


def _scale_loop(shape: Shape) -> list[str]:
    """Lanes share out the chunks of all row blocks; each lane finds its row block's strip."""
    per_row_block = "ROW_BLOCK_SCALE_BYTES / 16"
    total = f"ROW_BLOCKS * ({per_row_block})"
    return [
        "#pragma unroll",
        f"        for (int first = 0; first < {total}; first += 32) {{",
        "          const int c = first + lane;",
        f"          if (c < {total}) {{",
        f"            const int rb = c / ({per_row_block}), row_block = {_row_block(shape)};",
        "            const u8* from = block + (u64)(row_block / 4) * (K_BLOCKS * (u64)BLOCK_BYTES)"
        " + WEIGHT_BYTES",
        f"                + (row_block % 4) * ROW_BLOCK_SCALE_BYTES + c % ({per_row_block}) * 16;",
        _copy16(shape, "meta + c * 16", "from", indent=12),
        "          }",
        "        }",
    ]


def load_x(shape: Shape) -> str:
    """Lambda that copies one stage of activations into a slot; rows beyond m and inputs beyond K are zero."""
    threads, chunks = shape.x_threads, shape.x_chunks
    total = shape.config.block_m * chunks
    lines = ["  auto load_x = [&](int stage, u32 slot) {"]
    lines.append("    const u8* source = x_source + (u64)stage * (BLOCK_K * 2);")
    if shape.k_tail:
        lines.append("    const bool inside = (first_stage + stage) * BLOCK_K + x_k < K;")
    lines += ["#pragma unroll", f"    for (int i = 0; i < {-(-total // threads)}; ++i) {{"]
    if threads % chunks:  # more chunks in a row than threads: a thread walks along the row
        return "\n".join(lines[:-2]) + _load_x_long_rows(shape, threads, chunks)
    step = threads // chunks
    lines.append(f"      const int row = x_row + i * {step};")
    if total % threads:
        lines.append("      if (row >= BLOCK_M) break;")
    valid = "m_first + row < m" + (" && inside" if shape.k_tail else "")
    lines.append(
        "      const u32 to = x_slab + slot + row * 128 + ((x_chunk % 8) ^ (row % 8)) * 16;"
    )
    lines.append(
        f"      cp_async_16_zfill(to, source + (u64)(i * {step}) * ldx * 2, {valid} ? 16 : 0);"
    )
    lines += ["    }", "  };", ""]
    return "\n".join(lines)


def _load_x_long_rows(shape: Shape, threads: int, chunks: int) -> str:
    per_row = -(-chunks // threads)
    inside = "(first_stage + stage) * BLOCK_K + x_k + j * X_THREADS * 8 < K"
    valid = "m_first + row < m" + (f" && {inside}" if shape.k_tail else "")
    return f"""
#pragma unroll
    for (int row = 0; row < BLOCK_M; ++row) {{
#pragma unroll
      for (int j = 0; j < {per_row}; ++j) {{
        const int k = x_k + j * X_THREADS * 8;
        const u32 to = smem_base + X_OFFSET + slot + (k / 64) * (BLOCK_M * 128) + row * 128
            + ((k / 8 % 8) ^ (row % 8)) * 16;
        const u8* from = source + 2 * ((u64)row * ldx + j * X_THREADS * 8);
        cp_async_16_zfill(to, from, {valid} ? 16 : 0);
      }}
    }}
  }};
"""
