"""CUDA text after the last stage: reduce over warps and CTAs in FP32, add the bias, round once, store."""

from __future__ import annotations

from ptxgen.families.mma import cluster_reduction
from ptxgen.families.mma.shape import RED_PAD, Shape
from ptxgen.ptx import global_memory, packed16, tile_counter
from ptxgen.ptx.instruction import Instruction


def instructions(shape: Shape) -> list[Instruction]:
    """The PTX that this module's text calls."""
    used = [packed16.pack_from_float(shape.problem.dtype), global_memory.st_global_v2()]
    if shape.problem.whole_k:
        used.append(global_memory.ld_global_nc_u32())
    if shape.problem.bias:
        used.append(global_memory.ld_global_nc_v2())
    if shape.problem.whole_k or shape.problem.bias or shape.config.scale_on == "accumulators":
        used.append(packed16.unpack_to_float(shape.problem.dtype))
    if shape.config.cluster:
        used += cluster_reduction.instructions()
    elif shape.config.split_k > 1:
        used += [
            global_memory.st_partial(),
            global_memory.ld_partial(),
            tile_counter.arrive_on_tile(),
        ]
    return used


def epilogue(shape: Shape) -> str:
    """The whole tail of the kernel."""
    parts = [_whole_k_scale(shape), _to_shared(shape), _store_lambda(shape), _reduction(shape)]
    return "\n".join(part for part in parts if part)


def _reduction(shape: Shape) -> str:
    if shape.config.cluster:
        return cluster_reduction.cluster_reduction(shape)
    return _split_reduction() if shape.config.split_k > 1 else _direct_store()


def _whole_k_scale(shape: Shape) -> str:
    if not shape.problem.whole_k:
        return ""
    return """\
  // ---- one scale a feature ----------------------------------------------------------------------
#pragma unroll
  for (int rb = 0; rb < ROW_BLOCKS; ++rb) {
    const int row_block = min(n_tile * (BLOCK_N / 16) + ROW_BLOCK_TEXT, STRIPS * 4 - 1);
    float scale_0, scale_8;
    unpack_to_float(scale_0, scale_8,
                    ld_global_nc_u32(packed + TABLE_OFFSET + row_block * 32 + lane / 4 * 4));
#pragma unroll
    for (int t = 0; t < TOKEN_TILES; ++t) {
      acc[rb][t][0] *= scale_0, acc[rb][t][1] *= scale_0;
      acc[rb][t][2] *= scale_8, acc[rb][t][3] *= scale_8;
    }
  }
""".replace("ROW_BLOCK_TEXT", shape.row_block_text)


def _to_shared(shape: Shape) -> str:
    guard = "if (token < BLOCK_M) " if shape.config.block_m < 8 else ""
    return f"""\
  // ---- fragments to shared memory, one FP32 tile for each warp along K ---------------------------
  __syncthreads();  // the ring is done with: its memory serves the reduction
  float* tile = (float*)smem;
  constexpr int TILE_ROW = BLOCK_N + {RED_PAD};
#pragma unroll
  for (int rb = 0; rb < ROW_BLOCKS; ++rb)
#pragma unroll
    for (int t = 0; t < TOKEN_TILES; ++t)
#pragma unroll
      for (int i = 0; i < 4; ++i) {{
        const int token = warp_m * WARP_M + t * 8 + lane % 4 * 2 + i % 2;
        const int feature = {shape.row_block_text} * 16 + lane / 4 + i / 2 * 8;
        {guard}tile[(warp_k * BLOCK_M + token) * TILE_ROW + feature] = acc[rb][t][i];
      }}
{"" if shape.config.cluster and shape.config.warps_k == 1 else _sum_over_warps()}"""


def _sum_over_warps() -> str:
    return """\
  __syncthreads();

  auto sum_over_warps = [&](int token, int feature) {
    float4 sum = *(const float4*)&tile[token * TILE_ROW + feature];
#pragma unroll
    for (int w = 1; w < WARPS_K; ++w) {
      const float4 v = *(const float4*)&tile[(w * BLOCK_M + token) * TILE_ROW + feature];
      sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
    }
    return sum;
  };
"""


def _store_lambda(shape: Shape) -> str:
    bias = ""
    if shape.problem.bias:
        bias = """\
    u32 bias_01, bias_23;
    ld_global_nc_v2(bias_01, bias_23, bias + 2 * n);
    float b0, b1, b2, b3;
    unpack_to_float(b0, b1, bias_01);
    unpack_to_float(b2, b3, bias_23);
    v.x += b0, v.y += b1, v.z += b2, v.w += b3;
"""
    # A cluster asks before it reads, so that nothing is read in vain.
    guard = "" if shape.config.cluster else "    if (n >= N) return;\n"
    return f"""\
  auto store = [&](int token, int feature, float4 v) {{
    const int n = n_tile * BLOCK_N + feature;
{guard}{bias}    st_global_v2(y + 2 * ((u64)(m_first + token) * ldy + n),
                 pack_from_float(v.x, v.y), pack_from_float(v.z, v.w));
  }};
"""


def _direct_store() -> str:
    return """\
  for (int i = tid; i < BLOCK_M * BLOCK_N / 4; i += THREADS) {
    const int token = i / (BLOCK_N / 4), feature = i % (BLOCK_N / 4) * 4;
    if (m_first + token < m) store(token, feature, sum_over_warps(token, feature));
  }
"""


def _split_reduction() -> str:
    return """\
  // ---- split K: the last CTA of a tile adds all partial tiles up, always in the same order --------
  const u32 tile_index = n_tile * gridDim.x + m_tile;
  const u32 tiles = gridDim.x * gridDim.y;
  u32* counter = (u32*)workspace + tile_index;
  float* partials = (float*)(workspace + (tiles * 4 + 255) / 256 * 256)
      + (u64)tile_index * (SPLIT_K * BLOCK_M * BLOCK_N);
  for (int i = tid; i < BLOCK_M * BLOCK_N / 4; i += THREADS) {
    const int token = i / (BLOCK_N / 4), feature = i % (BLOCK_N / 4) * 4;
    if (m_first + token < m)
      st_partial(partials + blockIdx.z * (BLOCK_M * BLOCK_N) + i * 4, sum_over_warps(token, feature));
  }
  u32* arrived_before = (u32*)smem;
  __threadfence();
  __syncthreads();  // all partials are out, and the tiles in shared memory are done with
  if (tid == 0) *arrived_before = arrive_on_tile(counter);  // wraps to 0 for the next launch
  __syncthreads();
  if (*arrived_before != SPLIT_K - 1) return;
  __threadfence();
  for (int i = tid; i < BLOCK_M * BLOCK_N / 4; i += THREADS) {
    const int token = i / (BLOCK_N / 4), feature = i % (BLOCK_N / 4) * 4;
    if (m_first + token >= m) continue;
    float4 sum = ld_partial(partials + i * 4);
#pragma unroll
    for (int s = 1; s < SPLIT_K; ++s) {
      const float4 v = ld_partial(partials + s * (BLOCK_M * BLOCK_N) + i * 4);
      sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
    }
    store(token, feature, sum);
  }
"""
