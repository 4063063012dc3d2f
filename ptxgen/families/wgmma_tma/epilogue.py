"""CUDA text after the last stage of a tile: exchange sums in the cluster, scale, add the bias, store.

Sums come in the unit of the dequantization (ptxgen.families.wgmma_tma.dequant), a power of two; what
multiplies them here is its inverse and a scale of the whole K.

A fragment holds two tokens of one feature in a thread. Rounded results are turned in shared memory of
their own, so that 16 lanes store all that a token has of a strip: 128 bytes, a whole line. Stored from
registers, 16 bytes of a token at a time, kernels took 3 to 5 % more time from 128 tokens on (H200,
2026-11-30). The ring is not touched: it may fill up meanwhile.
"""

from __future__ import annotations

from ptxgen.families.wgmma_tma import consumer, dequant
from ptxgen.families.wgmma_tma.shape import TmaShape
from ptxgen.problem import Problem
from ptxgen.ptx import cluster, global_memory, matrix_move, named_barrier, packed16, shared
from ptxgen.ptx.instruction import Instruction


def instructions(shape: TmaShape) -> list[Instruction]:
    """The PTX that this module's text calls."""
    problem = shape.problem
    used = [
        packed16.pack_from_float(problem.dtype),
        matrix_move.store_turned(),
        named_barrier.named_barrier_sync(),
        shared.ld_shared_v2(),
        global_memory.st_global_v2(),
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
        used += [shared.st_shared_float4(), shared.ld_shared_float4()]
    return used


INVERSE_FACTOR = """\
// 1 / f of a row factor's bits, 2^12 * f: powers of two, so that only the exponent field counts.
__device__ __forceinline__ float inverse_factor(u32 factor) {
  return __uint_as_float((154 - (factor >> 10 & 31)) << 23);
}
"""


def device_functions(shape: TmaShape) -> list[str]:
    """Functions that the text of epilogue() calls."""
    return [INVERSE_FACTOR] if dequant.has_factors(shape.problem) else []


def epilogue(shape: TmaShape) -> str:
    """The whole tail of a tile."""
    turns = _add_turns() if shape.config.warpgroups_k > 1 else ""
    store = _exchange(shape) if shape.config.split_k > 1 else _direct()
    return f"{turns}\n{store_lambdas(shape)}\n{consumer.next_tile(shape)}{store}"


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


def store_lambdas(shape: TmaShape) -> str:
    """Lambdas that scale, round and turn one n8 tile of tokens of a row block, and store BATCH of them."""
    turns = " % WARPGROUPS" if shape.config.warpgroups_k > 1 else ""
    again = ""
    if shape.config.max_ctas or shape.row_blocks * shape.owned_tiles > shape.batch_tiles:
        again = "      named_barrier_sync(2 + share, 128);  // the next batch may be turned\n"
    guard = " && out_feature + rb * 64 < N" if shape.feature_tail else ""
    return f"""\
    // ---- to y: a warpgroup turns BATCH tiles of 8 tokens x 64 features, then stores whole rows --------
    u32 thread = tid;
    keep_alive(thread);  // what follows is worked out here: in the main loop no register is free for it
    const u32 share = thread / 128{turns}, out = smem_base + OUT_OFFSET + share * (BATCH * 1024);
    const int first_feature = n_tile * BLOCK_N + share * (ROW_BLOCKS * 64);
    thread %= 128;
    // The 16-byte pieces of a row are swizzled by the row; of a warp are two of the eight.
    const u32 turned = out + thread % 8 * 128 + ((thread / 32 * 2 + thread / 8 % 2) ^ thread % 8) * 16;
    const int out_row = thread / 16, out_piece = thread % 16;  // of 8 bytes
    const u32 finished = out + out_row * 128 + (out_piece / 2 ^ out_row) * 16 + out_piece % 2 * 8;
    const int out_token = m_first + out_row, out_feature = first_feature + out_piece * 4;
    u8* y_tile = y + 2 * ((u64)out_token * ldy + out_feature);
    const u64 eight_rows = 16 * (u64)ldy;  // bytes of y
{_feature_values(shape)}    auto turn_tile = [&](int rb, int i, float v0, float v1, float v2, float v3) {{
{_apply(shape)}      store_turned(turned + i * 1024, pack_from_float(v0, v1), pack_from_float(v2, v3));
    }};
    auto store_batch = [&](int rb, int first_tile) {{
      u32 v[BATCH][2];
      named_barrier_sync(2 + share, 128);  // all features of the rows are there
#pragma unroll
      for (int i = 0; i < BATCH; ++i) ld_shared_v2(v[i][0], v[i][1], finished + i * 1024);
{again}      const int token = out_token + first_tile * 8;
      u8* to = y_tile + first_tile * eight_rows + rb * 128;
#pragma unroll
      for (int i = 0; i < BATCH; ++i)
        if (token + i * 8 < m{guard}) st_global_v2(to + i * eight_rows, v[i][0], v[i][1]);
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
      unit_0[rb] = inverse_factor(factors[rb]), unit_8[rb] = inverse_factor(factors[rb] >> 16);
"""
    if problem.bias:
        text += """\
      const int feature = min(first_feature + rb * 64 + warp % 4 * 16 + lane / 4, N - 1);
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
    for (int i = 0; i < ROW_BLOCKS * TOKEN_TILES; ++i) {
      const int rb = i / TOKEN_TILES, t = i % TOKEN_TILES;
      turn_tile(rb, i % BATCH, acc[rb][t][0], acc[rb][t][1], acc[rb][t][2], acc[rb][t][3]);
      if ((i + 1) % BATCH == 0) store_batch(rb, t + 1 - BATCH);
    }
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
      turn_tile(i / OWNED_TILES, i % BATCH, sum.x, sum.y, sum.z, sum.w);
      if ((i + 1) % BATCH == 0)
        store_batch(i / OWNED_TILES, rank * OWNED_TILES + i % OWNED_TILES + 1 - BATCH);
    }
""".replace("CTA_OF_OWNER", cta).replace("FINISHERS", finishers)
