"""Deliberately broken wgmma_tma kernels: text edits, and how each is to be caught."""

from __future__ import annotations

from cpucheck_mutants import FAULT, GUARD, RACE, UNWRITTEN, VALUE, Mutant, mutant
from cpucheck_tma_team_mutants import BOTH, TEAM_MUTANTS

RING = "ring turns twice"
TAILS = "tails of m, n and k, two row blocks, bias"
WIDE, WIDE_SYM = "the last strip is wide", "the last strip is wide, one fma elsewhere"
WHOLE_K = "whole K, two warpgroups, fewer tokens than a tile"
PERSISTENT = "persistent, rasters"


TMA_MUTANTS: list[Mutant] = [
    *TEAM_MUTANTS,
    # ---- the ring: mbarriers, their phases and their bytes
    mutant("slots are never released", RING, r"\n +if \(chunk == 0\) release\(.*", "", FAULT),
    mutant(
        "the last slot of a tile is not released",
        PERSISTENT,
        r"\n +release\(slot == 0 \? STAGES - 1 : slot - 1, true\);",
        "",
        FAULT,
    ),
    mutant(
        "the slot in use is released",
        RING,
        r"release\(used_slot == 0 \? STAGES - 1 : used_slot - 1, stage > 0\)",
        "release(used_slot, stage + 1 < num_stages)",
        RACE,
    ),
    mutant(
        "a lane releases for lanes that may still read",
        RING,
        r"\(u32 slot, bool yes\) \{\n    __syncwarp\(\);",
        "(u32 slot, bool yes) {",
        RACE,
    ),
    mutant(
        "the consumers wait for the phase before",
        RING,
        r"mbarrier_wait\(full \+ slot \* 8, parity\)",
        "mbarrier_wait(full + slot * 8, parity ^ 1)",
        RACE,
        FAULT,
        times=2,
    ),
    mutant(
        "the next slot is read before it is full",
        RING,
        r"\n            mbarrier_wait\(full \+ slot \* 8, parity\);\n +fetch",
        "\n            fetch",
        RACE,
        FAULT,
    ),
    mutant(
        "the producer waits for the phase before",
        RING,
        r"mbarrier_wait\(empty \+ slot \* 8, parity \^ 1\)",
        "mbarrier_wait(empty + slot * 8, parity)",
        RACE,
        FAULT,
    ),
    mutant(
        "the parity does not turn with the ring",
        RING,
        r"if \(\+\+slot == STAGES\) slot = 0, parity \^= 1;\n#pragma",
        "if (++slot == STAGES) slot = 0;\n#pragma",
        RACE,
        FAULT,
    ),
    mutant(
        "fewer bytes are announced than copied",
        RING,
        r"\* 8, COPIED_BYTES\)",
        "* 8, COPIED_BYTES - 16)",
        RACE,
        FAULT,
    ),
    mutant(
        "more bytes are announced than copied",
        RING,
        r"\* 8, COPIED_BYTES\)",
        "* 8, COPIED_BYTES + 16)",
        FAULT,
    ),
    mutant(
        "room for one warp less than there are",
        RING,
        r"empty \+ slot \* 8, CONSUMER_WARPS\)",
        "empty + slot * 8, CONSUMER_WARPS - 1)",
        RACE,
        FAULT,
    ),
    mutant(
        "nobody waits until the mbarriers are there",
        RING,
        r"  __syncthreads\(\);\n\n  // ---- the producer",
        "  // ---- the producer",
        RACE,
        FAULT,
    ),
    # ---- wgmma: its operands and their registers
    mutant(
        "fragments are written while they are read",
        RING,
        r"wgmma_wait_1\(\);  // the chunk",
        "// the chunk",
        FAULT,
    ),
    mutant("swizzle of 64 bytes", RING, r"0x40000040", "0x80000040", VALUE, FAULT),
    mutant("no swizzle", RING, r"0x40000040", "0x00000040", VALUE, FAULT),
    mutant(
        "the second slab of activations is the first",
        RING,
        r"step / 4 \* X_SLAB_BYTES",
        "step / 4 * 0",
        VALUE,
    ),
    mutant(
        "the second slab goes over the first",
        RING,
        r"half \* X_SLAB_BYTES",
        "half * 0",
        RACE,
        FAULT,
    ),
    mutant(
        "the second slab lies at half its place",
        RING,
        r"half \* X_SLAB_BYTES",
        "half * (X_SLAB_BYTES / 2)",
        RACE,
        FAULT,
        VALUE,
    ),
    # ---- quantization groups and tails
    mutant("one scale a stage", TAILS, r"step % GROUP_STEPS == 0", "step == 0", VALUE),
    mutant("scale of the next group", TAILS, r"group \* 32\)", "(group ^ 1) * 32)", VALUE),
    mutant("zero of the wrong feature", TAILS, r"= zero & 15 \|", "= zero >> 4 |", VALUE),
    mutant("zero of the wrong group", TAILS, r"group \* 8\)", "(group ^ 1) * 8)", VALUE),
    mutant(
        "whole-K scale of another strip",
        WHOLE_K,
        r"\(strip \* 4 \+ warp % 4\) \* 32",
        "(strip * 4 + (warp + 1) % 4) * 32",
        VALUE,
    ),
    mutant("bias twice", TAILS, r"v0 \+= bias_0\[rb\],", "v0 += 2 * bias_0[rb],", VALUE),
    mutant("M tail off by one", TAILS, r"\+ i \* 8 < m &&", "+ i * 8 <= m &&", GUARD, FAULT),
    mutant(
        "M tail loses its last token",
        TAILS,
        r"\+ i \* 8 < m &&",
        "+ i * 8 < m - 1 &&",
        UNWRITTEN,
    ),
    mutant("N tail reads on", TAILS, r" && out_feature.* < N\)", ")", GUARD, FAULT),
    mutant("strips beyond N are read", TAILS, r", STRIPS - 1\)\)", ", STRIPS))", FAULT),
    # ---- results are turned
    mutant(
        "rows are stored before all their features are there",
        RING,
        r"named_barrier_sync\(2 \+ share, 128\);  // all features",
        "__syncwarp();  // all features",
        RACE,
        FAULT,
    ),
    mutant(
        "a batch is turned while the one before is read",
        TAILS,
        r"\n +named_barrier_sync\(2 \+ share, 128\);  // the next batch.*",
        "",
        RACE,
    ),
    mutant(
        "two warpgroups turn in one place",
        WHOLE_K,
        r"OUT_OFFSET \+ share \* \(BATCH \* 1024\)",
        "OUT_OFFSET",
        RACE,
    ),
    mutant(
        "rows are read unswizzled", RING, r"\(out_piece / 2 \^ out_row\)", "(out_piece / 2)", VALUE
    ),
    mutant("row blocks lie half a strip apart", TAILS, r"rb \* 128;", "rb * 64;", VALUE, UNWRITTEN),
    # ---- dequantization, and the unit of its sums
    mutant("scale of feature g + 8", RING, r"a\[2\] = fma2_by_low", "a[2] = fma2_by_high", VALUE),
    mutant("scale of feature g", RING, r"a\[1\] = fma2_by_high", "a[1] = fma2_by_low", VALUE),
    mutant(
        "scale of feature g, zero point of feature g + 8",
        TAILS,
        r"a\[3\] = mul2_by_high",
        "a[3] = mul2_by_low",
        VALUE,
    ),
    mutant(
        "zero point of feature g + 8, scale of feature g",
        TAILS,
        r"a\[0\] = mul2_by_low\(sub2_by_low",
        "a[0] = mul2_by_low(sub2_by_high",
        VALUE,
    ),
    mutant(
        "fragment registers 1 and 2 swapped",
        TAILS,
        r"a\[1\] = (?P<one>.*);\n  word >>= 8;\n  a\[2\] = (?P<two>.*);",
        r"a[2] = \g<one>;\n  word >>= 8;\n  a[1] = \g<two>;",
        VALUE,
    ),
    mutant("half the scale of features g + 8", RING, r"0x5c006c00", "0x58006c00", VALUE),
    mutant("half the scale of features g", RING, r"0x5c006c00", "0x5c006800", VALUE),
    mutant("shift of half the zero points", RING, r"0x98009800", "0x98009400", VALUE),
    mutant("bf16 has the wrong power of two", TAILS, r"0x60006200", "0x60806200", VALUE),
    mutant("zero of features g + 8 in bits of g", TAILS, r"240\) << 16", "240) << 12", VALUE),
    mutant(
        "whole-K nibbles of features g + 8 like those of g",
        WHOLE_K,
        r"NIBBLE_SCALE = 0x68007800",
        "NIBBLE_SCALE = 0x78007800",
        VALUE,
    ),
    mutant(
        "whole-K zero of the wrong feature", WHOLE_K, r"mul2\(zero & 15", "mul2(zero >> 4", VALUE
    ),
    mutant("whole-K zero points doubled", WHOLE_K, r"0xf800f800", "0xfc00f800", VALUE),
    mutant(
        "whole-K unit left as it is",
        WHOLE_K,
        r"unit_8\[rb\] \*= 0x1p9f",
        "unit_8[rb] *= 0x1p8f",
        VALUE,
    ),
    mutant("bf16 sums in the wrong unit", TAILS, r"v3 \*= 0x1p64f", "v3 *= 0x1p63f", VALUE),
    mutant("bf16 sums left in their unit", BOTH, r"v0 \*= 0x1p64f, v1 \*= 0x1p64f, ", "", VALUE),
    mutant(
        "scales without row factors",
        RING,
        r"mul2\((scales\[rb\]\[.*\]), factors\[rb\]\)",
        r"\1",
        VALUE,
    ),
    mutant(
        "sums keep their row factor", RING, r"v0 \*= unit_0\[rb\], v1 \*= unit_0\[rb\], ", "", VALUE
    ),
    mutant(
        "inverse factor of feature g + 8",
        RING,
        r"inverse_factor\(factors\[rb\]\), unit_8\[rb\] = inverse_factor\(factors\[rb\] >> 16\)",
        "inverse_factor(factors[rb]), unit_8[rb] = unit_0[rb]",
        VALUE,
    ),
    mutant(
        "row factors of another strip",
        RING,
        r"TABLE_OFFSET \+ \(strip \* 4 \+ warp % 4\) \* 32",
        "TABLE_OFFSET + (strip * 4 + (warp + 1) % 4) * 32",
        VALUE,
    ),
    mutant(
        "the first tile's row factors for all",
        PERSISTENT,
        r"load_table\(n_tile\)",
        "load_table(0)",
        VALUE,
    ),
    # ---- strips of a wide spread of scales, which the last strip of WIDE is
    mutant("the strip's mark is in its factor", WIDE, r" & SIZES", "", VALUE),
    mutant("its scales keep the row factor's 2^12", WIDE, r"0x0c000c00", "0x3c003c00", VALUE),
    mutant("its zero points are no floats", WIDE, r" \| MAGIC;", ";", VALUE),
    mutant("its symmetric zero point is 7", WIDE_SYM, r"0x54806408", "0x54706407", VALUE),
    mutant(
        "its zeros are those of the fast way",
        WIDE,
        r"if \(wide\) deq",
        "if (false) deq",
        VALUE,
    ),
    mutant(
        "its scales are those of the fast way",
        WIDE,
        r"if \(wide\) \{",
        "if (false) {",
        VALUE,
    ),
    mutant("it alone takes the fast way", WIDE, r"\(int\)marks < 0", "(int)marks >= 0", VALUE),
    mutant("twice the row factors", RING, r"\(127 \+ 15 \+ 12 - \(", "(126 + 15 + 12 - (", VALUE),
    # ---- what ptxas mends by itself, and the PTX does not have
    mutant("no wgmma fence", RING, r"        wgmma_fence\(\);\n", "", FAULT),
    mutant("sums are read in flight", RING, r"    wgmma_wait_0\(\);\n", "", FAULT, VALUE),
]

PTX_MUTANTS = {
    "no wgmma fence": "wgmma.fence.sync.aligned;",
    "sums are read in flight": "wgmma.wait_group.sync.aligned 0;",
}
"""The same, lost behind NVRTC: words of the PTX that are left out."""

SEEN_UNDER = {
    "a slice is finished without all parts": "reverse",
    "slices left to the last CTA are forgotten": "reverse",
}
"""The policy of the schedule that shows it: CTAs that run alone wait for other parts in vain."""
