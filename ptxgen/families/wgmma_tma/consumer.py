"""CUDA text of the warpgroups that multiply: one chunk is dequantized while another is in flight.

Registers of a chunk are written only after the wait that covers the wgmma which read them last; see
ptxgen.families.wgmma.compute, whose order this follows.
"""

from __future__ import annotations

from dataclasses import dataclass

from ptxgen.families.wgmma_tma import dequant
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


def first_slot(shape: TmaShape) -> str:
    """Where a warpgroup starts in the ring."""
    if shape.config.warpgroups_k == 1:
        return "  u32 slot = 0, parity = 0;\n"
    return """\
  const u32 turn = warp / 4 / WARPGROUPS;  // warpgroups take the stages in turns
  u32 slot = turn, parity = 0;
"""


def tiles(shape: TmaShape) -> str:
    """Opens the loop over this CTA's tiles or parts of them."""
    find = f"find_tile(tile, m_first, n_tile);\n{load_table(shape.problem)}"
    if not shape.finds_next_early:
        return f"  while (next_part()) {{\n    int m_first, n_tile;\n    {find}"
    return f"""\
  int m_first, n_tile;
  auto next_tile = [&] {{
    if (!next_part()) return false;
    {find}    return true;
  }};
  for (bool more = next_tile(); more;) {{
"""


def next_tile(shape: TmaShape) -> str:
    """Behind a tile's last use of what is looked up for it, and before it is stored."""
    if not shape.finds_next_early:
        return ""
    return "    more = next_tile();  // the table's values for it come while this one is stored\n\n"


def setup(shape: TmaShape) -> str:
    """Lane addresses, fragment registers, and the lambda that reads a slot's packed words."""
    lines = [
        "  // ---- operands of wgmma ------------------------------------------------------------",
        "  // Descriptor of 8-row atoms of 128 swizzled bytes, 1024 bytes from one to the next",
        '  // (PTX ISA, "Matrix Descriptor Format"); the address is in units of 16 bytes.',
        "  // Its high half is the same everywhere: swizzle and distance.",
        "  const u32 x_descriptor = (1u << 16) | (smem_base >> 4);",
        "  const u32 blocks_smem = smem_base + WEIGHTS_OFFSET"
        f" + {shape.share} * (ROW_BLOCKS * BLOCK_BYTES);",
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
    return [
        *lines,
        f"  u32 group_scales[ROW_BLOCKS], {offsets(problem)}[ROW_BLOCKS];  // what dequantize takes",
    ]


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
    """What stays the same for a tile or for the kernel: row factors, or a whole-K zero point."""
    problem = shape.problem
    if dequant.has_factors(problem):
        return _per_tile(
            shape,
            "factors",
            "what multiplies the scales of features g and g + 8",
            "factors[rb] = ld_global_nc_u32(packed + TABLE_OFFSET + (strip * 4 + warp % 4) * 32"
            " + lane / 4 * 4);",
        )
    if not problem.whole_k:
        return ""
    scales = f"  const u32 group_scales[1] = {{{dequant.whole_k_scales(problem)}}};\n"
    shifts = dequant.whole_k_shifts(problem, "zero")
    if problem.zero == "sym":
        return scales + f"  const u32 group_shifts[1] = {{{shifts}}};\n"
    return scales + _per_tile(
        shape,
        "group_shifts",
        "-zero point of features g and g + 8",
        f"""\
const u32 zero = ld_global_nc_u8(packed + TABLE_OFFSET + TABLE_SCALE_BYTES
                                       + (strip * 4 + warp % 4) * 8 + lane / 4);
      group_shifts[rb] = {shifts};""",
    )


def offsets(problem: Problem) -> str:
    """Name of what dequantize takes beside the scales."""
    return "group_zeros" if dequant.zero_first(problem) else "group_shifts"


def load_table(problem: Problem) -> str:
    """What a tile starts with: its values from the table, where there are such."""
    reads = dequant.has_factors(problem) or (problem.whole_k and problem.zero == "int")
    return "    load_table(n_tile);\n" if reads else ""


def _per_tile(shape: TmaShape, name: str, comment: str, load: str) -> str:
    """A register for each of a tile's row blocks, and the lambda that loads them from the table."""
    return f"""\
  u32 {name}[ROW_BLOCKS];  // {comment}
  auto load_table = [&](int n_tile) {{
#pragma unroll
    for (int rb = 0; rb < ROW_BLOCKS; ++rb) {{
      const int strip = {shape.strip};
      {load}
    }}
  }};
"""


@dataclass(frozen=True, slots=True)
class _Walk:
    """Texts of how a warpgroup walks over the stages and the slots of the ring.

    Attributes:
        first: its first stage.
        next_stage: goes on to its next one.
        more: whether there is one.
        next_slot: goes on to that one's slot; what follows is done where the ring starts anew.
        slot_before: the slot before SLOT.
    """

    first: str
    next_stage: str
    more: str
    next_slot: str
    slot_before: str

    def before(self, slot: str) -> str:
        return self.slot_before.replace("SLOT", slot)


EVERY_STAGE = _Walk(
    first="0",
    next_stage="++stage",
    more="stage + 1 < num_stages",
    next_slot="if (++slot == STAGES) slot = 0",
    slot_before="SLOT == 0 ? STAGES - 1 : SLOT - 1",
)
IN_TURNS = _Walk(
    first="turn",
    next_stage="stage += TURNS",
    more="stage + TURNS < num_stages",
    next_slot="if ((slot += TURNS) >= STAGES) slot -= STAGES",
    slot_before="SLOT < TURNS ? SLOT + (STAGES - TURNS) : SLOT - TURNS",
)


def _walk(shape: TmaShape) -> _Walk:
    return EVERY_STAGE if shape.config.warpgroups_k == 1 else IN_TURNS


def main_loop(shape: TmaShape) -> str:
    """All stages of one tile; ends with every sum complete and every slot released."""
    first = [
        "    mbarrier_wait(full + slot * 8, parity);",
        "    fetch(slot, 0);",
        "    fetch(slot, 1);",
    ]
    stages = _stages(shape)
    if dequant.has_factors(shape.problem):
        stages = [
            "    auto multiply = [&](auto wide) {",
            *(line if line.startswith("#") else f"  {line}" for line in stages),
            "    };",
            "    u32 marks = 0;  // of this warpgroup's strips, in the sign of every row factor",
            "#pragma unroll",
            "    for (int rb = 0; rb < ROW_BLOCKS; ++rb) marks |= factors[rb];",
            "    if ((int)warp_uniform(marks) < 0) multiply(Constant<true>());",
            "    else multiply(Constant<false>());",
        ]
    return "\n".join([*first, *stages, ""])


def _stages(shape: TmaShape) -> list[str]:
    """The loop over the stages, once the first words are there."""
    walk = _walk(shape)
    return [
        f"    for (int stage = {walk.first}; stage < num_stages; {walk.next_stage}) {{",
        "      const u32 x_slot = warp_uniform(x_descriptor + slot * (STAGE_BYTES / 16));",
        "      const u32 used_slot = slot;",
        f"      {walk.next_slot}, parity ^= 1;",
        "#pragma unroll",
        "      for (int chunk = 0; chunk < CHUNKS; ++chunk) {",
        "#pragma unroll",
        "        for (int s = 0; s < CHUNK; ++s) {",
        "          const int step = chunk * CHUNK + s;",
        *_group_start(shape.problem),
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
        f"        if (chunk == 0) release({walk.before('used_slot')}, stage > {walk.first});",
        "      }",
        "    }",
        "    wgmma_wait_0();",
        "#pragma unroll",
        "    for (int i = 0; i < 2 * CHUNK * ROW_BLOCKS * 4; ++i)",
        "      keep_alive(a[i / (CHUNK * ROW_BLOCKS * 4)][i / (ROW_BLOCKS * 4) % CHUNK]"
        "[i / 4 % ROW_BLOCKS][i % 4]);",
        f"    release({walk.before('slot')}, true);",
    ]


def _fetch_next(shape: TmaShape) -> list[str]:
    """Reads the next slot's packed words while a chunk is multiplied."""
    more = _walk(shape).more
    if not shape.reads_ahead:
        return [
            f"        if (chunk == CHUNKS - 1 && {more}) {{"
            "  // the next words, while this is multiplied",
            "          mbarrier_wait(full + slot * 8, parity);",
            "          fetch(slot, 0);",
            "          fetch(slot, 1);",
            "        }",
        ]
    return [
        "        // The next words, half a stage before they are dequantized; half of these are used up.",
        f"        if (chunk == CHUNKS / 2 - 1 && {more}) {{",
        "          mbarrier_wait(full + slot * 8, parity);",
        "          fetch(slot, 0);",
        "        }",
        f"        if (chunk == CHUNKS - 1 && {more}) fetch(slot, 1);",
    ]


def _group_start(problem: Problem) -> list[str]:
    if problem.whole_k:
        return []
    scale = "scales[rb][step / GROUP_STEPS]"
    usual = f"const u32 scale = {scale};"
    zero = ["const u32 zero = zeros[rb][step / GROUP_STEPS];"] if problem.zero == "int" else []
    lines = [usual, *zero]
    if dequant.has_factors(problem):
        lines = [
            *zero,
            "if constexpr (wide) {",
            f"  group_scales[rb] = {dequant.wide_scales(problem, scale, 'factors[rb]')};",
            f"  {offsets(problem)}[rb] = {dequant.wide_zeros(problem, 'zero')};",
            "  continue;",
            "}",
            f"const u32 scale = mul2({scale}, factors[rb]);",
        ]
    lines += [
        f"group_scales[rb] = {dequant.group_scales(problem, 'scale')};",
        f"{offsets(problem)}[rb] = {dequant.group_offsets(problem, 'scale', 'zero')};",
    ]
    return [
        "          if (step % GROUP_STEPS == 0) {  // a new group",
        "#pragma unroll",
        "            for (int rb = 0; rb < ROW_BLOCKS; ++rb) {",
        *(f"              {line}" for line in lines),
        "            }",
        "          }",
    ]


def _dequantize(problem: Problem) -> list[str]:
    scales = "0" if problem.whole_k else "rb"
    shifts = "0" if problem.whole_k and problem.zero == "sym" else "rb"
    arguments = (
        "(a[chunk % 2][s][rb], words[rb][step / 4][step % 4],"
        f" group_scales[{scales}], {offsets(problem)}[{shifts}]);"
    )
    loop = ["#pragma unroll", "          for (int rb = 0; rb < ROW_BLOCKS; ++rb)"]
    if not dequant.has_factors(problem):
        return [*loop, f"            dequantize{arguments}"]
    return [
        *loop,
        f"            if constexpr (wide) dequantize_wide{arguments}",
        f"            else dequantize{arguments}",
    ]
