"""Broken wgmma_tma kernels of CTAs and warpgroups that work together: turns, clusters, stream-K."""

from __future__ import annotations

from cpucheck_mutants import (
    COUNTER,
    EARLY,
    FAULT,
    ORDER,
    RACE,
    REWRITTEN,
    UNWRITTEN,
    VALUE,
    Mutant,
    mutant,
)

TURNS = "in turns, a ring that turns twice"
SPLIT = "split K in two"
SPLIT_FOUR = "split K in four, uneven, tails, bias"
MULTICAST = "multicast over two, a tile beyond N"
BOTH = "multicast and split K"
STREAM_K = "stream-K"

START = r"  cluster_arrive_relaxed\(\);\n  cluster_wait\(\);  // the mbarriers"
TAIL = r" +// Not before all slots are released(?:.*\n){5}"

TEAM_MUTANTS: list[Mutant] = [
    # ---- warpgroups in turns
    mutant(
        "both groups start with the first slot", TURNS, r"slot = turn,", "slot = 0,", VALUE, FAULT
    ),
    mutant(
        "a slot waits for the warps of both groups",
        TURNS,
        r"mbarrier_init\(empty \+ slot \* 8, SLOT_READERS\)",
        "mbarrier_init(empty + slot * 8, CONSUMER_WARPS)",
        FAULT,
    ),
    mutant(
        "the slot of the other group is released",
        TURNS,
        r"used_slot < TURNS \? used_slot \+ \(STAGES - TURNS\) : used_slot - TURNS",
        "used_slot == 0 ? STAGES - 1 : used_slot - 1",
        RACE,
        FAULT,
    ),
    mutant(
        "sums meet in a ring that is in use",
        TURNS,
        r"has been used up -*\n    named_barrier_sync\(1, CONSUMERS\);\n",
        "has been used up\n",
        RACE,
    ),
    mutant(
        "sums are added before they are there",
        TURNS,
        r"    named_barrier_sync\(1, CONSUMERS\);\n    if \(turn > 0\) return;",
        "    if (turn > 0) return;",
        RACE,
        VALUE,
    ),
    mutant(
        "both groups go on to the store",
        TURNS,
        r"    if \(turn > 0\) return;\n",
        "",
        RACE,
        VALUE,
    ),
    mutant(
        "a thread adds another one's sums",
        TURNS,
        r"tid % FINISHERS \* 16",
        "(tid + turn * 32) % FINISHERS * 16",
        VALUE,
        RACE,
    ),
    # ---- split K over a cluster
    mutant(
        "no cluster barrier before sums are sent",
        SPLIT,
        START,
        "  __syncthreads();  //",
        RACE,
        FAULT,
    ),
    mutant("mbarriers are not passed on", SPLIT, r"    fence_mbarrier_init\(\);\n", "", RACE),
    mutant(
        "sums are read before they are here",
        SPLIT,
        r"\n    mbarrier_wait\(smem_base \+ RECEIVED_OFFSET, 0\);",
        "",
        RACE,
        FAULT,
    ),
    mutant(
        "fewer sums are awaited than sent",
        SPLIT_FOUR,
        r"RECEIVED_OFFSET, RECEIVED_BYTES\)",
        "RECEIVED_OFFSET, RECEIVED_BYTES / 3)",
        RACE,
        FAULT,
    ),
    mutant(
        "all send to the first place",
        SPLIT_FOUR,
        r"\(rank < owner \? rank : rank - 1\) \* PART",
        "0 * PART",
        RACE,
        FAULT,
    ),
    mutant(
        "sums of another CTA",
        SPLIT_FOUR,
        r"from < rank \? from : from - 1",
        "(from + 1) % 3",
        VALUE,
    ),
    mutant(
        "a CTA along K starts one stage late",
        SPLIT_FOUR,
        r"first_stage = \(int\)\(K_BLOCKS \* blockIdx\.z / SPLIT_K\)",
        "first_stage = (int)(K_BLOCKS * blockIdx.z / SPLIT_K) + (blockIdx.z > 2)",
        VALUE,
    ),
    # ---- multicast
    mutant(
        "no cluster barrier before activations are sent",
        MULTICAST,
        START,
        "  __syncthreads();  //",
        RACE,
        FAULT,
    ),
    mutant(
        "a CTA whose tile lies beyond N leaves early",
        MULTICAST,
        r"(  // ---- this CTA's share)",
        r"  if (blockIdx.y * BLOCK_N >= N) return;\n\1",
        FAULT,
    ),
    mutant(
        "room for the warps of one CTA",
        MULTICAST,
        r"CONSUMER_WARPS \* MULTICAST",
        "CONSUMER_WARPS",
        RACE,
        FAULT,
    ),
    mutant(
        "room is told to one CTA only",
        MULTICAST,
        r"empty \+ slot \* 8, lane % 2",
        "empty + slot * 8, 0",
        FAULT,
    ),
    mutant("shared memory goes while others may arrive", MULTICAST, TAIL, "", FAULT),
    Mutant(
        "shared memory goes behind a cluster barrier that releases nothing",
        MULTICAST,
        ((TAIL, ""), (r"\}\s*\Z", "  cluster_arrive_relaxed();\n  cluster_wait();\n}\n")),
        frozenset([FAULT]),
    ),
    mutant("activations go to one CTA", MULTICAST, r"sharing = 3u", "sharing = 1u", FAULT),
    mutant(
        "both CTAs copy the same tokens",
        MULTICAST,
        r"copied_first = sharer \* COPIED",
        "copied_first = 0 * COPIED",
        RACE,
        FAULT,
    ),
    mutant(
        "activations of the other half of K",
        BOTH,
        r"3u << \(blockIdx\.z \* 2\)",
        "3u << (2 - blockIdx.z * 2)",
        VALUE,
        RACE,
        FAULT,
    ),
    # ---- stream-K
    mutant(
        "a part is counted in before its sums are out",
        STREAM_K,
        r"        bulk_wait\(\);\n",
        "",
        EARLY,
    ),
    mutant(
        "sums are sent before they are there",
        STREAM_K,
        r" +mbarrier_wait\(empty \+ sums_slot \* 8, sums_parity\);.*\n",
        "",
        RACE,
        FAULT,
    ),
    mutant(
        "sums are not fenced",
        STREAM_K,
        r"      fence_proxy_async\(\);\n",
        "",
        RACE,
    ),
    mutant(
        "slots are filled before their sums are sent",
        STREAM_K,
        r" +if \(slot == sums_slot\) send_sums\(\);\n",
        "",
        RACE,
        VALUE,
    ),
    mutant(
        "slots are filled while their sums are read",
        STREAM_K,
        r" +bulk_wait_read\(\);.*\n",
        "",
        RACE,
    ),
    mutant(
        "nobody waits for the slices",
        STREAM_K,
        r" +mbarrier_wait\(full \+ slot \* 8, parity\);\n(    const u32 slices)",
        r"\1",
        RACE,
        FAULT,
    ),
    mutant(
        "a slice is finished without all parts",
        STREAM_K,
        r"return all_there \? 1u << own : 0",
        "return 1u << own",
        EARLY,
        REWRITTEN,
        ORDER,
    ),
    mutant(
        "slices left to the last CTA are forgotten",
        STREAM_K,
        r"return before >> 16 \| 1u",
        "return 1u",
        UNWRITTEN,
        VALUE,
    ),
    mutant("the counter is left as it is", STREAM_K, r"  \*counter = 0;\n", "", COUNTER),
    mutant(
        "a part is left out",
        STREAM_K,
        r"j < min\(GROUP, parts - part\)",
        "j < min(GROUP, parts - part - 1)",
        VALUE,
    ),
]
