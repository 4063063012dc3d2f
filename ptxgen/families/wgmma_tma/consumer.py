"""CUDA text of the warpgroups that multiply: one chunk is dequantized while another is in flight.

Registers of a chunk are written only after the wait that covers the wgmma which read them last; see
ptxgen.families.wgmma.compute, whose order this follows.
"""

from __future__ import annotations

from ptxgen.families.mma.dequant import zero_words
from ptxgen.families.wgmma_tma.shape import TmaShape
from ptxgen.problem import Problem
from ptxgen.ptx import cluster, global_memory, mbarrier, shared, shuffle, wgmma
from ptxgen.ptx.instruction import Instruction


def instructions(shape: TmaShape) -> list[Instruction]:
    """The PTX that this module's text calls."""
    problem = shape.problem
    used = [
        shared.ld_shared_v4(),
        wgmma.wgmma_m64_k16_swizzled(problem.dtype, shape.config.block_m),
        shuffle.warp_uniform(),
        wgmma.wgmma_fence(),
        wgmma.wgmma_commit(),
        wgmma.wgmma_wait(1),
        wgmma.wgmma_wait(0),
    ]
    if shape.config.multicast > 1:
        used += [cluster.map_to_cta(), mbarrier.mbarrier_arrive_cluster_if()]
    else:
        used.append(mbarrier.mbarrier_arrive_if())
    if not problem.whole_k:
        used.append(shared.ld_shared_u32())
        if problem.zero == "int":
            used.append(shared.ld_shared_u8())
    elif problem.zero == "int":
        used.append(global_memory.ld_global_nc_u8())
    return used


def setup(shape: TmaShape) -> str:
    """Lane addresses, fragment registers, and the lambda that reads a slot's packed words."""
    lines = [
        "  // ---- operands of wgmma ------------------------------------------------------------",
        "  // Descriptor of 8-row atoms of 128 swizzled bytes, 1024 bytes from one to the next",
        '  // (PTX ISA, "Matrix Descriptor Format"); the address is in units of 16 bytes.',
        "  // Its high half is the same everywhere: swizzle and distance.",
        "  const u32 x_descriptor = (1u << 16) | (smem_base >> 4);",
        "  const u32 blocks_smem = smem_base + WEIGHTS_OFFSET + warp / 4 * (ROW_BLOCKS * BLOCK_BYTES);",
        "  const u32 weights_smem = blocks_smem + warp % 4 * 1024 + lane * 16;",
        "  u32 words[ROW_BLOCKS][2][4];               // the packed words of a stage",
        "  u32 a[2][CHUNK][ROW_BLOCKS][4] = {};       // fragments of two chunks, in turns",
    ]
    if not shape.problem.whole_k:
        lines += _group_setup(shape.problem)
    lines += [
        "  auto fetch = [&](u32 slot, int half) {     // 64 of a stage's inputs, and their groups",
        "#pragma unroll",
        "    for (int rb = 0; rb < ROW_BLOCKS; ++rb) {",
        "      const u32 block = slot * STAGE_BYTES + rb * BLOCK_BYTES;",
        "      ld_shared_v4(words[rb][half], weights_smem + block + half * 512);",
        *_fetch_groups(shape.problem),
        "    }",
        "  };",
        *_release(shape),
        "  };",
    ]
    return "\n".join([*lines, ""])


def _release(shape: TmaShape) -> list[str]:
    """A slot may be filled again; without a branch, across which ptxas would serialise wgmma."""
    lines = ["  auto release = [&](u32 slot, bool yes) {", "    __syncwarp();"]
    multicast = shape.config.multicast
    if multicast == 1:
        return [*lines, "    mbarrier_arrive_if(empty + slot * 8, yes && lane == 0);"]
    first_cta = f"blockIdx.z * {multicast} + " if shape.config.split_k > 1 else ""
    return [
        *lines,  # one lane for each CTA that copies into the slot
        f"    const u32 barrier = map_to_cta(empty + slot * 8, {first_cta}lane % {multicast});",
        f"    mbarrier_arrive_cluster_if(barrier, yes && lane < {multicast});",
    ]


def _group_setup(problem: Problem) -> list[str]:
    lines = [
        "  const u32 scale_smem = blocks_smem + WEIGHT_BYTES + warp % 4 * (GROUPS_PER_BLOCK * 32)"
        " + lane / 4 * 4;",
        "  u32 scales[ROW_BLOCKS][GROUPS_PER_BLOCK];  // of features g and g + 8",
    ]
    if problem.zero == "int":
        lines += [
            "  const u32 zero_smem = blocks_smem + WEIGHT_BYTES + BLOCK_SCALE_BYTES"
            " + warp % 4 * (GROUPS_PER_BLOCK * 8) + lane / 4;",
            "  u32 zeros[ROW_BLOCKS][GROUPS_PER_BLOCK];",
        ]
    return [*lines, "  u32 scale_0[ROW_BLOCKS], scale_8[ROW_BLOCKS];"]


def _fetch_groups(problem: Problem) -> list[str]:
    if problem.whole_k:
        return []
    lines = [
        "#pragma unroll",
        "      for (int group = 0; group < GROUPS_PER_BLOCK; ++group) {",
        "        if (group * GROUP_STEPS / 4 != half) continue;",
        "        scales[rb][group] = ld_shared_u32(scale_smem + block + group * 32);",
    ]
    if problem.zero == "int":
        lines.append("        zeros[rb][group] = ld_shared_u8(zero_smem + block + group * 8);")
    return [*lines, "      }"]


def tile_setup(shape: TmaShape) -> str:
    """Zero points that stay the same for a tile or for the kernel."""
    if shape.problem.zero == "sym":
        zero_0, zero_8 = zero_words(shape, "")
        return f"  const u32 zero_0[1] = {{{zero_0}}}, zero_8[1] = {{{zero_8}}};\n"
    if not shape.problem.whole_k:
        return "  u32 zero_0[ROW_BLOCKS], zero_8[ROW_BLOCKS];\n"
    zero_0, zero_8 = zero_words(shape, "zeros")
    return f"""\
  u32 zero_0[ROW_BLOCKS], zero_8[ROW_BLOCKS];
  auto load_zeros = [&](int n_tile) {{
#pragma unroll
    for (int rb = 0; rb < ROW_BLOCKS; ++rb) {{
      const int strip = min(n_tile * TILE_STRIPS + warp / 4 * ROW_BLOCKS + rb, STRIPS - 1);
      const u32 zeros = ld_global_nc_u8(packed + TABLE_OFFSET + TABLE_SCALE_BYTES
                                        + (strip * 4 + warp % 4) * 8 + lane / 4);
      zero_0[rb] = {zero_0};
      zero_8[rb] = {zero_8};
    }}
  }};
"""


def main_loop(shape: TmaShape) -> str:
    """All stages of one tile; ends with every sum complete and every slot released."""
    lines = [
        "    mbarrier_wait(full + slot * 8, parity);",
        "    fetch(slot, 0);",
        "    fetch(slot, 1);",
        "    for (int stage = 0; stage < num_stages; ++stage) {",
        "      const u32 x_slot = warp_uniform(x_descriptor + slot * (STAGE_BYTES / 16));",
        "      const u32 used_slot = slot;",
        "      if (++slot == STAGES) slot = 0, parity ^= 1;",
        "#pragma unroll",
        "      for (int chunk = 0; chunk < CHUNKS; ++chunk) {",
        "#pragma unroll",
        "        for (int s = 0; s < CHUNK; ++s) {",
        "          const int step = chunk * CHUNK + s;",
        *_group_start(shape),
        *_dequantize(shape.problem),
        "        }",
        "        wgmma_fence();",
        "#pragma unroll",
        "        for (int s = 0; s < CHUNK; ++s) {",
        "          const int step = chunk * CHUNK + s;",
        "          const u32 x_tile = x_slot + (step / 4 * X_SLAB_BYTES + step % 4 * 32) / 16;",
        "#pragma unroll",
        "          for (int rb = 0; rb < ROW_BLOCKS; ++rb)",
        f"            wgmma_m64n{shape.config.block_m}k16(acc[rb], a[chunk % 2][s][rb], x_tile);",
        "        }",
        "        wgmma_commit();",
        *_fetch_next(shape),
        "        wgmma_wait_1();  // the chunk before is done: its registers may be written again",
        "#pragma unroll",
        "        for (int i = 0; i < CHUNK * ROW_BLOCKS * 4; ++i)",
        "          keep_alive(a[(chunk + 1) % 2][i / (ROW_BLOCKS * 4)][i / 4 % ROW_BLOCKS][i % 4]);",
        "        if (chunk == 0) release(used_slot == 0 ? STAGES - 1 : used_slot - 1, stage > 0);",
        "      }",
        "    }",
        "    wgmma_wait_0();",
        "#pragma unroll",
        "    for (int i = 0; i < 2 * CHUNK * ROW_BLOCKS * 4; ++i)",
        "      keep_alive(a[i / (CHUNK * ROW_BLOCKS * 4)][i / (ROW_BLOCKS * 4) % CHUNK]"
        "[i / 4 % ROW_BLOCKS][i % 4]);",
        "    release(slot == 0 ? STAGES - 1 : slot - 1, true);",
    ]
    return "\n".join([*lines, ""])


def _fetch_next(shape: TmaShape) -> list[str]:
    """Reads the next slot's packed words while a chunk is multiplied."""
    if not shape.reads_ahead:
        return [
            "        if (chunk == CHUNKS - 1 && stage + 1 < num_stages) {"
            "  // the next words, while this is multiplied",
            "          mbarrier_wait(full + slot * 8, parity);",
            "          fetch(slot, 0);",
            "          fetch(slot, 1);",
            "        }",
        ]
    return [
        "        // The next words, half a stage before they are dequantized; half of these are used up.",
        "        if (chunk == CHUNKS / 2 - 1 && stage + 1 < num_stages) {",
        "          mbarrier_wait(full + slot * 8, parity);",
        "          fetch(slot, 0);",
        "        }",
        "        if (chunk == CHUNKS - 1 && stage + 1 < num_stages) fetch(slot, 1);",
    ]


def _group_start(shape: TmaShape) -> list[str]:
    if shape.problem.whole_k:
        return []
    lines = [
        "          if (step % GROUP_STEPS == 0) {  // a new group",
        "#pragma unroll",
        "            for (int rb = 0; rb < ROW_BLOCKS; ++rb) {",
        "              scale_0[rb] = low_half_twice(scales[rb][step / GROUP_STEPS]);",
        "              scale_8[rb] = high_half_twice(scales[rb][step / GROUP_STEPS]);",
    ]
    if shape.problem.zero == "int":
        zero_0, zero_8 = zero_words(shape, "zeros[rb][step / GROUP_STEPS]")
        lines += [f"              zero_0[rb] = {zero_0};", f"              zero_8[rb] = {zero_8};"]
    return [*lines, "            }", "          }"]


def _dequantize(problem: Problem) -> list[str]:
    zero = "0" if problem.zero == "sym" else "rb"
    lines = [
        "#pragma unroll",
        "          for (int rb = 0; rb < ROW_BLOCKS; ++rb) {",
        "            u32 (&part)[4] = a[chunk % 2][s][rb];",
        f"            dequantize(part, words[rb][step / 4][step % 4], zero_0[{zero}], zero_8[{zero}]);",
    ]
    if not problem.whole_k:
        lines += [
            "            part[0] = mul2(part[0], scale_0[rb]), part[1] = mul2(part[1], scale_8[rb]);",
            "            part[2] = mul2(part[2], scale_0[rb]), part[3] = mul2(part[3], scale_8[rb]);",
        ]
    return [*lines, "          }"]
