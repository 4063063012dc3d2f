"""CUDA text of tiles that CTAs share along K (stream_k): parts are sent, slices are finished.

A CTA has the FP32 sums of its parts copied to the workspace, and goes on. When its own tiles are done, all
parts have long been there, and each CTA of a shared tile adds up and stores a slice of it. Both ways lead
through slots of the ring, which the producer keeps free for sums or fills with other CTAs' sums, so that
the consumers wait for neither. Stored and read by the consumers instead, and added up by whoever came last,
a tile of five parts cost 9,000 cycles and its last CTA 16,000 more, of 113,000 (10240 x 8192, M = 256, H200,
2026-11-30).
"""

from __future__ import annotations

from ptxgen.families.wgmma_tma import consumer, epilogue
from ptxgen.families.wgmma_tma.shape import TmaShape
from ptxgen.ptx import bulk, mbarrier, shared, tile_counter, wgmma
from ptxgen.ptx.instruction import Instruction

PATIENCE, SLEEP_NS = 64, 100
"""How often and in which steps a CTA waits for the other parts of a shared tile: some 40 us."""

SLICES_TO_FINISH = f"""\
// Which slices of a shared tile this CTA finishes, as bits: its own one if all parts are there. It waits for
// them, but not for long: CTAs that have yet to start may need its SM. Then its slice is left to the CTA that
// is the last to come here. The counter has the parts that are there in bits 0 to 7, the CTAs that have been
// here in bits 8 to 15, and the slices left to the last of them from bit 16 on; it ends as 0.
__device__ __forceinline__ u32 slices_to_finish(u32* counter, u32 parts, u32 own) {{
  bool all_there = parts_there(counter) == parts;
  for (int i = 0; i < {PATIENCE} && !all_there; ++i) {{
    sleep_ns({SLEEP_NS});
    all_there = parts_there(counter) == parts;
  }}
  const u32 before = leave_tile(counter, 0x100 | (all_there ? 0 : 0x10000u << own));
  if ((before >> 8 & 255) < parts - 1) return all_there ? 1u << own : 0;
  *counter = 0;
  return before >> 16 | 1u << own;
}}
"""

COUNTED_AFTER = 4
"""Stages between the use of a slot for sums and the end of their copy: some 4,000 cycles."""

NEXT_SLOT = "if (++slot == STAGES) slot = 0, parity ^= 1;"
"""Of the ring, and the parity of its phase."""


def instructions(shape: TmaShape) -> list[Instruction]:
    """The PTX that this module's text calls."""
    if not shape.config.stream_k:
        return []
    return [
        shared.st_shared_float4(),
        shared.ld_shared_float4(),
        wgmma.fence_proxy_async(),
        mbarrier.mbarrier_arrive(),
        bulk.bulk_store(),
        bulk.bulk_commit(),
        bulk.bulk_wait_read(),
        bulk.bulk_wait(),
        bulk.fence_proxy_async_global(),
        tile_counter.count_part(),
        tile_counter.parts_there(),
        tile_counter.leave_tile(),
        tile_counter.sleep_ns(),
    ]


def device_functions(shape: TmaShape) -> list[str]:
    """Functions that the texts of this module call."""
    return [SLICES_TO_FINISH] if shape.config.stream_k else []


def constants(shape: TmaShape) -> list[tuple[str, int, str]]:
    """Of the texts of this module: names, values, comments."""
    if not shape.config.stream_k:
        return []  # a split of K has PART_BYTES of its own
    return [
        (
            "UNITS",
            shape.units,
            "n8 tiles of tokens of all row blocks: sums of 16 bytes a thread each",
        ),
        ("SUM_UNITS", shape.sum_units, "of them, that a slot has room for"),
        ("SUM_SLOTS", shape.sum_slots, "slots for the sums of a part"),
        ("UNIT_BYTES", shape.unit_bytes, "of a unit's sums"),
        ("PART_BYTES", shape.part_bytes, "of a part's sums"),
        ("BATCHES", shape.token_tiles // shape.batch_tiles, "of BATCH units, of a row block"),
        ("BATCH_BYTES", shape.batch_tiles * shape.unit_bytes, "of the sums of one"),
        ("GROUP", shape.parts_together, "parts whose sums of a batch share a slot"),
    ]


def setup(shape: TmaShape) -> str:
    """Lambdas that producer and consumers use."""
    if not shape.config.stream_k:
        return ""
    return """\
  auto part_of = [&](int shared_tile, int cta) {  // two a CTA: of its first shared tile, and its second
    const int second = share_of(cta) / K_BLOCKS != shared_tile;
    return workspace + (tiles * 4 + 255) / 256 * 256 + (u64)(cta * 2 + second) * PART_BYTES;
  };
  const int first_shared_tile = share_first / K_BLOCKS;
  auto is_shared = [&](int shared_tile) {  // false where this CTA has all of its stages
    return share_first > shared_tile * K_BLOCKS || share_end < (shared_tile + 1) * K_BLOCKS;
  };
  // The CTA that a stage belongs to is the last one whose share starts at it or before.
  auto cta_of = [&](int shared_stage) { return ((shared_stage + 1) * sharers - 1) / shared_stages; };
  u32* shared_slices = (u32*)(smem + SLICES_OFFSET);  // what this CTA finishes of its two shared tiles
"""


def producer_setup(shape: TmaShape) -> str:
    """What the producer's thread does with slots that sums are in."""
    if not shape.config.stream_k:
        return ""
    return f"""\
      u32 sums_slot = STAGES, sums_parity = 0;  // where sums are, or will be, that have not been sent
      int sums_tile = 0;                        // of this shared tile
      u32* uncounted = nullptr;                 // its counter, once they are on their way
      auto count_sent = [&] {{
        if (!uncounted) return;
        bulk_wait();
        fence_proxy_async_global();
        count_part(uncounted);
        uncounted = nullptr;
      }};
      auto send_sums = [&] {{
        if (sums_slot == STAGES) return;
        count_sent();
        u8* part = part_of(sums_tile, blockIdx.x);
        for (int unit = 0; unit < UNITS; unit += SUM_UNITS) {{
          mbarrier_wait(empty + sums_slot * 8, sums_parity);  // the consumers have written them
          bulk_store(part + unit * UNIT_BYTES, smem_base + sums_slot * STAGE_BYTES,
                     min(SUM_UNITS, UNITS - unit) * UNIT_BYTES);
          if (++sums_slot == STAGES) sums_slot = 0, sums_parity ^= 1;
        }}
        bulk_commit();
        bulk_wait_read();  // the slots may be filled again
        uncounted = (u32*)workspace + sums_tile;
        sums_slot = STAGES;
      }};
      auto leave_slots = [&] {{  // to the sums of the part that has been loaded
        send_sums();
        const u32 first_slot = slot, first_parity = parity;
        for (int i = 0; i < SUM_SLOTS; ++i) {{
          mbarrier_wait(empty + slot * 8, parity ^ 1);
          mbarrier_arrive(full + slot * 8);
          {NEXT_SLOT}
        }}
        sums_slot = first_slot, sums_parity = first_parity, sums_tile = tile - whole_tiles;
      }};
"""


def before_slot(shape: TmaShape) -> str:
    """Before it fills a slot again: sums that are in it are sent, and counted some stages later."""
    if not shape.config.stream_k:
        return ""
    return f"""\
            if (slot == sums_slot) send_sums();
            if (stage == STAGES + {COUNTED_AFTER}) count_sent();  // written by now: this waits for nothing
"""


def behind_part(shape: TmaShape) -> str:
    """Behind the stages of a part."""
    return "          if (num_stages < K_BLOCKS) leave_slots();\n" if shape.config.stream_k else ""


def producer_finish(shape: TmaShape) -> str:
    """What it does when all stages have been loaded: brings the slices that the consumers finish."""
    if not shape.config.stream_k:
        return ""
    return f"""\
        send_sums();
        count_sent();
        for (int i = 0; i < 2; ++i) {{
          const int shared_tile = first_shared_tile + i;
          if (share_end <= shared_tile * K_BLOCKS || !is_shared(shared_tile)) continue;
          const int first_cta = cta_of(shared_tile * K_BLOCKS);
          const int parts = cta_of((shared_tile + 1) * K_BLOCKS - 1) - first_cta + 1;
          const u32 slices =
              slices_to_finish((u32*)workspace + shared_tile, parts, blockIdx.x - first_cta);
          fence_proxy_async_global();
          shared_slices[i] = slices;
          mbarrier_wait(empty + slot * 8, parity ^ 1);
          mbarrier_arrive(full + slot * 8);  // an empty slot: the consumers may read which ones
          {NEXT_SLOT}
          for (int slice = 0; slice < parts; ++slice) {{
            if (!(slices >> slice & 1)) continue;
            const int end = ROW_BLOCKS * BATCHES * (slice + 1) / parts;
            for (int batch = ROW_BLOCKS * BATCHES * slice / parts; batch < end; ++batch) {{
              for (int part = 0; part < parts; part += GROUP) {{
                const int together = min(GROUP, parts - part);
                mbarrier_wait(empty + slot * 8, parity ^ 1);
                mbarrier_arrive_expect_tx(full + slot * 8, together * BATCH_BYTES);
                for (int j = 0; j < together; ++j)
                  bulk_copy(smem_base + slot * STAGE_BYTES + j * BATCH_BYTES,
                            part_of(shared_tile, first_cta + part + j) + batch * BATCH_BYTES, BATCH_BYTES,
                            full + slot * 8);
                {NEXT_SLOT}
              }}
            }}
          }}
        }}
"""


def leave_part(shape: TmaShape) -> str:
    """Behind the last stage of a part: its sums go to the slots that are left for them."""
    if not shape.config.stream_k:
        return ""
    return f"""\
    // ---- a part of a shared tile: its sums are sent to the workspace -------------------------------
    if (num_stages < K_BLOCKS) {{
#pragma unroll
      for (int first = 0; first < UNITS; first += SUM_UNITS) {{
        mbarrier_wait(full + slot * 8, parity);
        const u32 sums = smem_base + slot * STAGE_BYTES + tid * 16;
#pragma unroll
        for (int i = first; i < min(first + SUM_UNITS, UNITS); ++i) {{
          const float (&v)[4] = acc[i / TOKEN_TILES][i % TOKEN_TILES];
          st_shared_float4(sums + (i - first) * UNIT_BYTES, make_float4(v[0], v[1], v[2], v[3]));
        }}
        fence_proxy_async();
        release(slot, true);
        {NEXT_SLOT}
      }}
      continue;
    }}
"""


def finish(shape: TmaShape) -> str:
    """Behind the loop over tiles: what the consumers do when their own tiles are done."""
    if not shape.config.stream_k:
        return ""
    return f"""\
  // ---- shared tiles: every CTA that has a part of one finishes a slice of it ---------------------------
  for (int i = 0; i < 2; ++i) {{
    const int shared_tile = first_shared_tile + i;
    if (share_end <= shared_tile * K_BLOCKS || !is_shared(shared_tile)) continue;
    const int parts = cta_of((shared_tile + 1) * K_BLOCKS - 1) - cta_of(shared_tile * K_BLOCKS) + 1;
    int m_first, n_tile;
    find_tile(whole_tiles + shared_tile, m_first, n_tile);
{consumer.load_table(shape.problem)}{epilogue.store_lambdas(shape)}\
    mbarrier_wait(full + slot * 8, parity);
    const u32 slices = shared_slices[i];
    release(slot, true);
    {NEXT_SLOT}
    for (int slice = 0; slice < parts; ++slice) {{
      if (!(slices >> slice & 1)) continue;
      const int first = ROW_BLOCKS * BATCHES * slice / parts;
      const int end = ROW_BLOCKS * BATCHES * (slice + 1) / parts;
#pragma unroll
      for (int rb = 0; rb < ROW_BLOCKS; ++rb) {{
        for (int batch = max(first, rb * BATCHES); batch < min(end, (rb + 1) * BATCHES); ++batch) {{
          float4 sums[BATCH] = {{}};
          for (int part = 0; part < parts; part += GROUP) {{  // always in the order of K
            mbarrier_wait(full + slot * 8, parity);
            for (int j = 0; j < min(GROUP, parts - part); ++j) {{
              const u32 from = smem_base + slot * STAGE_BYTES + j * BATCH_BYTES + tid * 16;
#pragma unroll
              for (int k = 0; k < BATCH; ++k) {{
                const float4 v = ld_shared_float4(from + k * UNIT_BYTES);
                sums[k].x += v.x, sums[k].y += v.y, sums[k].z += v.z, sums[k].w += v.w;
              }}
            }}
            release(slot, true);
            {NEXT_SLOT}
          }}
#pragma unroll
          for (int k = 0; k < BATCH; ++k)
            turn_tile(rb, k, sums[k].x, sums[k].y, sums[k].z, sums[k].w);
          store_batch(rb, (batch - rb * BATCHES) * BATCH);
        }}
      }}
    }}
  }}
"""
