"""CUDA text of the producer warp: TMA copies of activations, bulk copies of packed weights.

The first weights are asked for before the barriers exist, for L2: they come from DRAM, which takes longer
than all else before the first slot is full. 0.5 to 1 % less time (H200, 2026-11-30, docs/kernel-log.md, 67).
"""

from __future__ import annotations

from ptxgen.families.wgmma_tma import shared_tiles
from ptxgen.families.wgmma_tma.shape import PRODUCER_REGISTERS, TmaShape
from ptxgen.ptx import bulk, mbarrier, tensor
from ptxgen.ptx.instruction import Instruction


def instructions(shape: TmaShape) -> list[Instruction]:
    """The PTX that this module's text calls."""
    return [
        mbarrier.mbarrier_wait(),
        mbarrier.mbarrier_arrive_expect_tx(),
        tensor.tensor_copy_2d_multicast()
        if shape.config.multicast > 1
        else tensor.tensor_copy_2d(),
        bulk.bulk_copy(),
        *([] if shape.config.stream_k else [bulk.bulk_prefetch()]),
    ]


def first_weights(shape: TmaShape) -> str:
    """What it does before there is a barrier to count them: asks for its first weights, for L2.

    With stream_k the first part may start anywhere in K: finding it takes as long as the barriers do. The
    producer finds its tile again afterwards: kept until then, tiles of 128 x 256 spilled 24 to 36 bytes.
    """
    if shape.config.stream_k:
        return ""
    return """\
  if (tid == CONSUMERS && tile + tile_step < tiles) {
    int m_first, n_tile;
    find_tile(tile + tile_step, m_first, n_tile);
#pragma unroll
    for (int strip = 0; strip < TILE_STRIPS; ++strip)
      bulk_prefetch(block(n_tile, strip, 0), BLOCK_BYTES);  // to L2, while barriers are set up
  }
"""


def block(shape: TmaShape) -> str:
    """Lambda that says where a block of packed weights is."""
    strip = "n_tile * TILE_STRIPS + strip"
    if shape.strip_tail:
        strip = f"min({strip}, STRIPS - 1)"  # a strip that does not exist: any other, not stored
    return f"""\
  auto block = [&](int n_tile, int strip, int stage) {{  // of packed weights
    return packed + ((u64)({strip}) * K_BLOCKS + first_stage + stage) * BLOCK_BYTES;
  }};
"""


def producer(shape: TmaShape) -> str:
    """What one thread of the producer warp does; the first slot's weights wait for nobody."""
    return f"""\
  auto load_weights = [&](int n_tile, int stage, u32 slot) {{
    mbarrier_arrive_expect_tx(full + slot * 8, COPIED_BYTES);
#pragma unroll
    for (int strip = 0; strip < TILE_STRIPS; ++strip)
      bulk_copy(smem_base + slot * STAGE_BYTES + WEIGHTS_OFFSET + strip * BLOCK_BYTES,
                block(n_tile, strip, stage), BLOCK_BYTES, full + slot * 8);
  }};
{_load_x(shape)}  if (warp >= CONSUMER_WARPS) {{
{_give(shape)}    if (tid == CONSUMERS) {{
      u32 slot = 0, parity = 0;
      int m_first, n_tile;
{shared_tiles.producer_setup(shape)}      bool more = next_part();
      if (more) {{
        find_tile(tile, m_first, n_tile);
        const int ahead = min(num_stages, STAGES);
        load_weights(n_tile, 0, 0);
        wait_for_previous();  // x belongs to the previous kernel until here
        load_x(m_first, 0, 0);
        for (int stage = 1; stage < ahead; ++stage) {{
          load_weights(n_tile, stage, stage);
          load_x(m_first, stage, stage);  // behind all slots' weights it would come last (2-6 %, H200)
        }}
        if (ahead == STAGES) parity = 1; else slot = ahead;
        for (int stage = ahead; more; stage = 0) {{
          for (; stage < num_stages; ++stage) {{
{shared_tiles.before_slot(shape)}            mbarrier_wait(empty + slot * 8, parity ^ 1);
            load_weights(n_tile, stage, slot);
            load_x(m_first, stage, slot);
            {shared_tiles.NEXT_SLOT}
          }}
{shared_tiles.behind_part(shape)}          more = next_part();
          find_tile(tile, m_first, n_tile);
        }}
{shared_tiles.producer_finish(shape)}{_stay(shape)}      }}
    }}
    return;
  }}
"""


def _load_x(shape: TmaShape) -> str:
    multicast = shape.config.multicast
    if multicast == 1:
        return """\
  auto load_x = [&](int m_first, int stage, u32 slot) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
      tensor_copy_2d(smem_base + slot * STAGE_BYTES + half * X_SLAB_BYTES, (u64)&x_map,
                     (first_stage + stage) * BLOCK_K + half * 64, m_first, full + slot * 8);
  };
"""
    first_cta = f"blockIdx.z * {multicast}" if shape.config.split_k > 1 else "0"
    return f"""\
  // This CTA copies COPIED_TOKENS of the tokens, for all CTAs that have a bit in `sharing`.
  const u32 copied_first = sharer * COPIED_TOKENS;
  const u32 sharing = {(1 << multicast) - 1}u << ({first_cta});
  auto load_x = [&](int m_first, int stage, u32 slot) {{
#pragma unroll
    for (int half = 0; half < 2; ++half)
      tensor_copy_2d_multicast(
          smem_base + slot * STAGE_BYTES + half * X_SLAB_BYTES + copied_first * 128, (u64)&x_map,
          (first_stage + stage) * BLOCK_K + half * 64, m_first + copied_first, full + slot * 8, sharing);
  }};
"""


def _stay(shape: TmaShape) -> str:
    """What keeps a CTA of a cluster until the others' last arrivals on its mbarriers have come."""
    if shape.config.multicast == 1:
        return ""
    return f"""\
        // Not before all slots are released: an arrival must find the shared memory that it is for.
        for (int i = 0; i < STAGES; ++i) {{
          mbarrier_wait(empty + slot * 8, parity ^ 1);
          {shared_tiles.NEXT_SLOT}
        }}
"""


def _give(shape: TmaShape) -> str:
    if not shape.moves_registers:
        return ""
    return f"    set_registers_down_{PRODUCER_REGISTERS}();\n"
