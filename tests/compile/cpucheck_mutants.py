"""Deliberately broken kernels: text edits of emitted sources, and how each is to be caught."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from ptxgen.arch import arch_named
from ptxgen.cpucheck.reduced import Case
from ptxgen.cpucheck.run import FailureKind
from ptxgen.families.mma.config import MmaConfig
from ptxgen.problem import Problem
from ptxgen.source import KernelSource

VALUE, RACE, FAULT = FailureKind.VALUE, FailureKind.RACE, FailureKind.FAULT
GUARD, UNWRITTEN, COUNTER = FailureKind.GUARD, FailureKind.UNWRITTEN, FailureKind.COUNTER
EARLY, REWRITTEN = FailureKind.EARLY, FailureKind.REWRITTEN
ORDER = FailureKind.ORDER

SM90 = arch_named("sm_90a")

_SHARED = MmaConfig(
    block_m=16,
    warp_m=8,
    block_n=32,
    warp_n=16,
    block_k=128,
    warps_k=1,
    num_stages=3,
    split_k=1,
    scale_on="weights",
    weights_first=False,
    min_ctas=1,
)
_PRIVATE = replace(_SHARED, block_m=8, block_n=16, block_k=256, warps_k=2, scale_on="accumulators")

CASES = {
    # Warps share activations; two tiles along M and N, both with a tail; K ends inside a block.
    "shared": Case(Problem(40, 7 * 128 - 32, 32, "fp16", "int", True), _SHARED, SM90, 19),
    # The ring is a third of K; every warp has its own activations; the last stage lacks a block.
    "private": Case(Problem(24, 7 * 256 - 128, 64, "bf16", "int"), _PRIVATE, SM90, 5),
    "weights_first": Case(
        Problem(16, 8 * 128, 128, "fp16", "sym"),
        replace(_PRIVATE, block_k=128, warps_k=1, weights_first=True),
        SM90,
        3,
    ),
    "split": Case(
        Problem(40, 7 * 128, 128, "fp16", "sym", True), replace(_SHARED, split_k=3), SM90, 16
    ),
    "whole_k": Case(
        Problem(24, 512, 512, "fp16", "int"), replace(_PRIVATE, block_n=32, warp_n=32), SM90, 8
    ),
}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One broken kernel.

    Attributes:
        name: what was broken.
        case: key of CASES.
        edits: (pattern, replacement) of re.sub; each must apply exactly `times` times.
        caught_by: at least one of these kinds of failure must be found.
        times: of each edit.
    """

    name: str
    case: str
    edits: tuple[tuple[str, str], ...]
    caught_by: frozenset[FailureKind]
    times: int = 1

    def apply(self, source: KernelSource) -> KernelSource:
        """The source with the edits in it. Raises ValueError where one does not apply."""
        text = source.text
        for pattern, replacement in self.edits:
            text, count = re.subn(pattern, replacement, text)
            if count != self.times:
                raise ValueError(f"{self.name}: {pattern!r} applied {count} times")
        return replace(source, text=text)


def mutant(
    name: str, case: str, pattern: str, replacement: str, *caught_by: FailureKind, times: int = 1
) -> Mutant:
    return Mutant(name, case, ((pattern, replacement),), frozenset(caught_by), times)


BARRIER = r"__syncthreads\(\);  // everybody's copies"
WARP_BARRIER = r"__syncwarp\(\);  // everybody's copies"

MUTANTS = [
    # ---- synchronisation: found by the shadow, whatever the values
    mutant("no CTA barrier in the main loop", "shared", BARRIER, "//", RACE),
    mutant("only a warp barrier in the main loop", "shared", BARRIER, "__syncwarp(); //", RACE),
    mutant("no warp barrier in the main loop", "private", WARP_BARRIER, "//", RACE),
    mutant("waits for one stage too few", "shared", r"wait_group 1;", "wait_group 2;", RACE, FAULT),
    mutant("waits for one stage too few, alone", "private", r"group 1;", "group 2;", RACE, FAULT),
    mutant("no wait at all", "private", r" cp_async_wait_1\(\);\n", "\n", RACE, FAULT),
    mutant(
        "no empty groups after the last load",
        "private",
        r"    cp_async_commit\(\);\n    consume",
        "    if (stage + STAGES - 1 < num_stages) cp_async_commit();\n    consume",
        RACE,
        FAULT,
    ),
    mutant(
        "reduction starts in a ring that is still read",
        "shared",
        r"__syncthreads\(\);  // the ring is done with",
        "//",
        RACE,
    ),
    mutant(
        "no barrier between the fragments' stores and the sums",
        "shared",
        r"  __syncthreads\(\);\n\n  auto sum_over_warps",
        "\n  auto sum_over_warps",
        RACE,
        FAULT,
    ),
    mutant(
        "no barrier before the counter's value is shared",
        "split",
        r"__syncthreads\(\);  // all partials are out",
        "//",
        EARLY,
    ),
    mutant(
        "no barrier before the counter's value is read",
        "split",
        r"(arrive_on_tile\(counter\);[^\n]*\n)  __syncthreads\(\);",
        r"\1",
        RACE,
    ),
    # ---- the ring
    mutant(
        "prologue is one stage short",
        "private",
        r"(#pragma unroll\n  for \(int stage = 0; stage < STAGES - )1(; \+\+stage\) \{\n)",
        r"\g<1>2\2",
        FAULT,
        RACE,
        VALUE,
    ),
    mutant(
        "slot wraps one stage late",
        "shared",
        r"slot == \(STAGES - 1\) \* STAGE_BYTES \? 0",
        "slot == STAGES * STAGE_BYTES ? 0",
        FAULT,
        VALUE,
    ),
    mutant(
        "slot wraps one stage early",
        "private",
        r"slot == \(STAGES - 1\) \* STAGE_BYTES \? 0",
        "slot == (STAGES - 2) * STAGE_BYTES ? 0",
        VALUE,
        RACE,
    ),
    mutant("loads into the slot in use", "private", r"free_slot = slot;", "", VALUE, RACE),
    mutant(
        "loads one stage beyond the last",
        "shared",
        r"if \(stage \+ STAGES - 1 < num_stages\) \{",
        "if (stage + STAGES - 1 <= num_stages) {",
        FAULT,
    ),
    mutant(
        "a CTA along K starts one stage late",
        "split",
        r"TOTAL_STAGES \* blockIdx\.z / SPLIT_K\)",
        "TOTAL_STAGES * blockIdx.z / SPLIT_K + (blockIdx.z > 0))",
        VALUE,
    ),
    # ---- fragments and dequantization
    mutant(
        "fragment registers 1 and 2 swapped",
        "shared",
        r"a\[1\] = sub2\((?P<one>.*)\);\n  word >>= 8;\n  a\[2\] = sub2\((?P<two>.*)\);",
        r"a[2] = sub2(\g<one>);\n  word >>= 8;\n  a[1] = sub2(\g<two>);",
        VALUE,
    ),
    mutant("nibble picks swapped", "shared", r"word >>= 8;", "word >>= 4;", VALUE),
    mutant("wrong zero constant", "split", r"0x64086408", "0x64076407", VALUE, times=1),
    mutant("zero constant of the other half", "split", r"0x54805480", "0x54705470", VALUE),
    mutant("zero of the wrong row", "shared", r"_low\((zeros [^)]+)\)", r"_low(\1 >> 4)", VALUE),
    mutant(
        "zero points of the next row block",
        "shared",
        r"BLOCK_SCALE_BYTES \+ row_block %",
        "BLOCK_SCALE_BYTES + (row_block + 1) %",
        VALUE,
    ),
    mutant(
        "the last piece of scales and zero points is not copied",
        "shared",
        r"< ROW_BLOCKS \* ROW_BLOCK_PIECES",
        "< ROW_BLOCKS * ROW_BLOCK_PIECES - 1",
        VALUE,
        FAULT,
    ),
    mutant("zero of the wrong group", "private", r"group \* 8\)", "(group ^ 1) * 8)", VALUE),
    mutant("scale of the wrong group", "shared", r"group \* 32\)", "(group ^ 1) * 32)", VALUE),
    mutant(
        "scales of features g and g + 8 swapped",
        "private",
        r"unpack_to_float\(scale_0, scale_8, scales",
        "unpack_to_float(scale_8, scale_0, scales",
        VALUE,
    ),
    mutant(
        "group's sums never start again",
        "private",
        r"i < 4 \* CHAINS; \+\+i\) part",
        "i < 4 * CHAINS - 1; ++i) part",
        VALUE,
    ),
    mutant(
        "activation halves swapped", "shared", r"a, (b\[.*\]), (b\[.*\])\);", r"a, \2, \1);", VALUE
    ),
    mutant("ldmatrix reads unswizzled", "shared", r"\^ \(token_row % 8\)", "", VALUE, times=2),
    mutant("copies are unswizzled", "private", r" \^ \(row % 8\)\) \* 16", ") * 16", VALUE),
    mutant(
        "whole-K zero of another row", "whole_k", r"row_block \* 8", "(row_block ^ 1) * 8", VALUE
    ),
    mutant(
        "whole-K scale of another row", "whole_k", r"row_block \* 32", "(row_block ^ 1) * 32", VALUE
    ),
    # ---- tails
    mutant(
        "M tail off by one in the loads",
        "shared",
        r"m_first \+ row < m ",
        "m_first + row <= m ",
        FAULT,
    ),
    mutant(
        "M tail off by one in the stores",
        "shared",
        r"if \(m_first \+ token < m\) store",
        "if (m_first + token <= m) store",
        FAULT,
        GUARD,
    ),
    mutant(
        "M tail loses its last token",
        "shared",
        r"if \(m_first \+ token < m\) store",
        "if (m_first + token < m - 1) store",
        UNWRITTEN,
    ),
    mutant("N tail off by one", "shared", r"if \(n >= N\)", "if (n > N)", GUARD, FAULT),
    mutant("N tail loses features", "shared", r"if \(n >= N\)", "if (n >= N - 4)", UNWRITTEN),
    mutant("K tail reads on", "shared", r" && inside \? 16", " ? 16", VALUE, FAULT),
    mutant(
        "a block beyond K is read",
        "private",
        r"const bool inside = \(first_stage \+ stage\) \* STAGE_BLOCKS",
        "const bool inside = 0",
        VALUE,
        FAULT,
    ),
    # ---- the reduction
    mutant(
        "counter is not waited for",
        "split",
        r"  if \(\*arrived_before != SPLIT_K - 1\) return;\n",
        "",
        EARLY,
        REWRITTEN,
    ),
    mutant(
        "the first CTA of a tile reduces",
        "split",
        r"!= SPLIT_K - 1\) return",
        "!= 0) return",
        VALUE,
    ),
    mutant(
        "counter never returns to zero",
        "split",
        r'"r"\(SPLIT_K - 1\)',
        '"r"(SPLIT_K)',
        COUNTER,
    ),
    mutant(
        "partial sums go to the next slice",
        "split",
        r"partials \+ blockIdx\.z \*",
        "partials + (blockIdx.z ^ 1) *",
        VALUE,
        FAULT,
    ),
    mutant("a slice is left out", "split", r"s < SPLIT_K;", "s < SPLIT_K - 1;", VALUE),
    mutant("a warp's sums are left out", "private", r"w < WARPS_K;", "w < WARPS_K - 1;", VALUE),
    mutant(
        "bias is added twice",
        "split",
        r"(v\.x \+= b0, v\.y \+= b1, v\.z \+= b2, v\.w \+= b3;)",
        r"\1 \1",
        VALUE,
    ),
    mutant("bias of the neighbour", "shared", r"bias \+ 2 \* n\)", "bias + 2 * (n ^ 4))", VALUE),
]
