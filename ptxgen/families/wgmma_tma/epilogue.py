"""CUDA text after the last stage of a tile: exchange sums in the cluster, scale, add the bias, store.

Sums come in the unit of the dequantization (ptxgen.families.wgmma_tma.dequant), a power of two; what
multiplies them here is its inverse and a scale of the whole K.

A fragment holds two tokens of one feature in a thread; movmatrix turns 8 x 8 blocks of rounded results
so that a thread holds two features of one token. The ring is not touched: it may fill up meanwhile.
"""

from __future__ import annotations

from ptxgen.families.wgmma_tma import dequant
from ptxgen.families.wgmma_tma.shape import TmaShape
from ptxgen.problem import Problem
from ptxgen.ptx import cluster, global_memory, matrix_move, named_barrier, packed16, shared
from ptxgen.ptx.instruction import Instruction


def instructions(shape: TmaShape) -> list[Instruction]:
    """The PTX that this module's text calls."""
    problem = shape.problem
    used = [
        packed16.pack_from_float(problem.dtype),
        matrix_move.transpose_8x8(),
        global_memory.st_global_u32(),
    ]
    if problem.whole_k or problem.bias:
        used += [global_memory.ld_global_nc_u32(), packed16.unpack_to_float(problem.dtype)]
    if problem.bias:
        used.append(global_memory.ld_global_nc_u16())
    if shape.config.split_k > 1:
        used += [
            cluster.map_to_cta(),
            cluster.st_async_v4(),
            shared.ld_shared_float4(),
        ]
    if shape.config.warpgroups_k > 1:
        used += [
            named_barrier.named_barrier_sync(),
            shared.st_shared_float4(),
            shared.ld_shared_float4(),
        ]
    if shape.config.stream_k:
        used += [
            global_memory.st_partial(),
            global_memory.ld_partial(),
            global_memory.arrive_on_part(),
            named_barrier.named_barrier_sync(),
        ]
    return used


INVERSE_FACTOR = """\
// 1 / f of a row factor's bits, 2^12 * f: powers of two, so that only the exponent field counts.
__device__ __forceinline__ float inverse_factor(u32 factor) {
  return __uint_as_float((154 - (factor >> 10)) << 23);
}
"""


def device_functions(shape: TmaShape) -> list[str]:
    """Functions that the text of epilogue() calls."""
    return [INVERSE_FACTOR] if dequant.has_factors(shape.problem) else []


def epilogue(shape: TmaShape) -> str:
    """The whole tail of a tile."""
    parts = [
        _meet() if shape.config.stream_k else "",
        _store(shape),
        _exchange(shape) if shape.config.split_k > 1 else _direct(),
    ]
    turns = _add_turns() if shape.config.warpgroups_k > 1 else ""
    return turns + "\n".join(parts)


def _add_turns() -> str:
    """Sums of the warpgroups that had other stages; the first ones add them and go on alone."""
    return """\
    // ---- the warpgroups' sums meet in the ring, which has been used up ----------------------------
    named_barrier_sync(1, CONSUMERS);
    const u32 meeting = smem_base + tid % FINISHERS * 16;
    if (turn > 0) {
#pragma unroll
      for (int i = 0; i < ROW_BLOCKS * TOKEN_TILES; ++i) {
        const float (&v)[4] = acc[i / TOKEN_TILES][i % TOKEN_TILES];
        st_shared_float4(meeting + i * (FINISHERS * 16), make_float4(v[0], v[1], v[2], v[3]));
      }
    }
    named_barrier_sync(1, CONSUMERS);
    if (turn > 0) return;
#pragma unroll
    for (int i = 0; i < ROW_BLOCKS * TOKEN_TILES; ++i) {
      const float4 v = ld_shared_float4(meeting + i * (FINISHERS * 16));
      float (&sum)[4] = acc[i / TOKEN_TILES][i % TOKEN_TILES];
      sum[0] += v.x, sum[1] += v.y, sum[2] += v.z, sum[3] += v.w;
    }
"""


def _meet() -> str:
    """Sums of a shared tile: the CTA that comes last adds all parts up, in the order of K."""
    return """\
    // ---- a shared tile: the last of its CTAs adds all parts up, always in the same order ----------
    if (num_stages < K_BLOCKS) {
      const int shared_tile = tile - whole_tiles, tile_first = shared_tile * K_BLOCKS;
      // The CTA that a stage belongs to is the last one whose share starts at it or before.
      const int first_cta = ((tile_first + 1) * sharers - 1) / shared_stages;
      const int last_cta = ((tile_first + K_BLOCKS) * sharers - 1) / shared_stages;
      u32* counter = (u32*)workspace + shared_tile;
      float* partials = (float*)(workspace + (tiles * 4 + 255) / 256 * 256) + tid * 4;
      auto part_of = [&](int cta) {  // two a CTA: its first shared tile, and its second
        const int second = share_of(cta) / K_BLOCKS != shared_tile;
        return partials + (u64)(cta * 2 + second) * (BLOCK_M * BLOCK_N);
      };
      float* own = part_of(blockIdx.x);
#pragma unroll
      for (int i = 0; i < ROW_BLOCKS * TOKEN_TILES; ++i) {
        const float (&v)[4] = acc[i / TOKEN_TILES][i % TOKEN_TILES];
        st_partial(own + i * (CONSUMERS * 4), make_float4(v[0], v[1], v[2], v[3]));
      }
      u32* arrived_before = (u32*)(smem + ARRIVED_OFFSET);
      __threadfence();
      named_barrier_sync(1, CONSUMERS);  // all sums of this part are out
      if (tid == 0) *arrived_before = arrive_on_part(counter, last_cta - first_cta);
      named_barrier_sync(1, CONSUMERS);
      if (*arrived_before != last_cta - first_cta) continue;
      __threadfence();
#pragma unroll
      for (int i = 0; i < ROW_BLOCKS * TOKEN_TILES * 4; ++i)
        acc[i / (TOKEN_TILES * 4)][i / 4 % TOKEN_TILES][i % 4] = 0;
      for (int cta = first_cta; cta <= last_cta; ++cta) {
        const float* part = part_of(cta);
#pragma unroll
        for (int i = 0; i < ROW_BLOCKS * TOKEN_TILES; ++i) {
          const float4 v = ld_partial(part + i * (CONSUMERS * 4));
          float (&sum)[4] = acc[i / TOKEN_TILES][i % TOKEN_TILES];
          sum[0] += v.x, sum[1] += v.y, sum[2] += v.z, sum[3] += v.w;
        }
      }
    }
"""


def _store(shape: TmaShape) -> str:
    """Lambda that scales, rounds and stores one n8 tile of tokens of one row block."""
    guard = " && feature < N" if shape.feature_tail else ""
    guard_8 = " && feature + 8 < N" if shape.feature_tail else ""
    return f"""\
    // ---- to y: a warp stores 8 tokens x 16 features at once ------------------------------------
    const int warp_feature = n_tile * BLOCK_N + {shape.share} * (ROW_BLOCKS * 64) + warp % 4 * 16;
{_feature_values(shape)}    auto store = [&](int rb, int t, float v0, float v1, float v2, float v3) {{
{_apply(shape)}      const u32 low = transpose_8x8(pack_from_float(v0, v1));
      const u32 high = transpose_8x8(pack_from_float(v2, v3));
      const int token = m_first + t * 8 + lane / 4;
      const int feature = warp_feature + rb * 64 + lane % 4 * 2;
      u8* to = y + 2 * ((u64)token * ldy + feature);
      if (token < m{guard}) st_global_u32(to, low);
      if (token < m{guard_8}) st_global_u32(to + 16, high);
    }};
"""


def _feature_values(shape: TmaShape) -> str:
    """Scales and bias of the thread's two features of every row block."""
    problem, text = shape.problem, ""
    if not (_own_units(problem) or problem.bias):
        return text
    if _own_units(problem):
        text += "    float unit_0[ROW_BLOCKS], unit_8[ROW_BLOCKS];\n"
    if problem.bias:
        text += "    float bias_0[ROW_BLOCKS], bias_8[ROW_BLOCKS];\n"
    text += "#pragma unroll\n    for (int rb = 0; rb < ROW_BLOCKS; ++rb) {\n"
    if problem.whole_k:
        text += f"""\
      const int strip = {shape.strip};
      unpack_to_float(unit_0[rb], unit_8[rb],
                      ld_global_nc_u32(packed + TABLE_OFFSET + (strip * 4 + warp % 4) * 32 + lane / 4 * 4));
"""
        text += (
            f"      unit_0[rb] *= {_inverse_unit(shape)}, unit_8[rb] *= {_inverse_unit(shape)};\n"
        )
    if dequant.has_factors(problem):
        text += """\
      unit_0[rb] = inverse_factor(factors[rb] & 0xffff), unit_8[rb] = inverse_factor(factors[rb] >> 16);
"""
    if problem.bias:
        text += """\
      const int feature = min(warp_feature + rb * 64 + lane / 4, N - 1);
      const int feature_8 = min(feature + 8, N - 1);
      unpack_to_float(bias_0[rb], bias_8[rb],
                      ld_global_nc_u16(bias + 2 * feature) | ld_global_nc_u16(bias + 2 * feature_8) << 16);
"""
    return text + "    }\n"


def _apply(shape: TmaShape) -> str:
    unit_0 = unit_8 = _inverse_unit(shape)
    if _own_units(shape.problem):
        unit_0, unit_8 = "unit_0[rb]", "unit_8[rb]"
    text = f"      v0 *= {unit_0}, v1 *= {unit_0}, v2 *= {unit_8}, v3 *= {unit_8};\n"
    if shape.problem.bias:
        text += "      v0 += bias_0[rb], v1 += bias_0[rb], v2 += bias_8[rb], v3 += bias_8[rb];\n"
    return text


def _own_units(problem: Problem) -> bool:
    """Each feature's sums are multiplied by a number of its own."""
    return problem.whole_k or dequant.has_factors(problem)


def _inverse_unit(shape: TmaShape) -> str:
    """What takes a sum out of the unit of all rows."""
    return f"0x1p{-dequant.units(shape.problem).sums}f"


def _direct() -> str:
    return """\
#pragma unroll
    for (int rb = 0; rb < ROW_BLOCKS; ++rb)
#pragma unroll
      for (int t = 0; t < TOKEN_TILES; ++t)
        store(rb, t, acc[rb][t][0], acc[rb][t][1], acc[rb][t][2], acc[rb][t][3]);
"""


def _exchange(shape: TmaShape) -> str:
    """Each CTA finishes OWNED_TILES of the token tiles; sums are added in the order of the CTAs."""
    multicast = shape.config.multicast
    cta = f"owner * {multicast} + blockIdx.y % {multicast}" if multicast > 1 else "owner"
    finishers = "FINISHERS" if shape.config.warpgroups_k > 1 else "CONSUMERS"
    return """\
    // ---- split K: every CTA of the cluster sends each other one what that one finishes -----------
    constexpr int PART_BYTES = ROW_BLOCKS * OWNED_TILES * FINISHERS * 16;
    const u32 rank = blockIdx.z;
    const u32 exchange = smem_base + EXCHANGE_OFFSET + tid * 16;
#pragma unroll
    for (u32 owner = 0; owner < SPLIT_K; ++owner) {
      if (owner == rank) continue;
      const u32 to = map_to_cta(exchange + (rank < owner ? rank : rank - 1) * PART_BYTES, CTA_OF_OWNER);
      const u32 counted = map_to_cta(smem_base + RECEIVED_OFFSET, CTA_OF_OWNER);
#pragma unroll
      for (int i = 0; i < ROW_BLOCKS * OWNED_TILES; ++i) {
        const float (&v)[4] = acc[i / OWNED_TILES][owner * OWNED_TILES + i % OWNED_TILES];
        st_async_v4(to + i * (FINISHERS * 16), v[0], v[1], v[2], v[3], counted);
      }
    }
    mbarrier_wait(smem_base + RECEIVED_OFFSET, 0);  // all parts for this CTA are here
#pragma unroll
    for (int i = 0; i < ROW_BLOCKS * OWNED_TILES; ++i) {
      float4 own, sum;
#pragma unroll
      for (u32 owner = 0; owner < SPLIT_K; ++owner) {
        const float (&v)[4] = acc[i / OWNED_TILES][owner * OWNED_TILES + i % OWNED_TILES];
        if (owner == rank) own.x = v[0], own.y = v[1], own.z = v[2], own.w = v[3];
      }
#pragma unroll
      for (u32 from = 0; from < SPLIT_K; ++from) {
        const u32 part = from < rank ? from : from - 1;
        const float4 v = from == rank
            ? own : ld_shared_float4(exchange + part * PART_BYTES + i * (FINISHERS * 16));
        if (from == 0) sum = v;
        else sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
      }
      store(i / OWNED_TILES, rank * OWNED_TILES + i % OWNED_TILES, sum.x, sum.y, sum.z, sum.w);
    }
""".replace("CTA_OF_OWNER", cta).replace("FINISHERS", finishers)
