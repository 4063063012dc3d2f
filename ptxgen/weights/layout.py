"""The one packed weight layout that every kernel family reads: constants, sizes, offsets.

A *block* holds 64 output features x 128 inputs and is contiguous, 16-byte aligned, in this order:

1. weights, 4096 bytes: [row block 0..3][k64 0..1][lane 0..31][k16 step 0..3] 32-bit words. A row
   block is 16 output features; word (lane, step) is one lane's share of the 16 x 16 A fragment of
   mma.m16n8k16 (PTX ISA, "Matrix Fragments for mma.m16n8k16"), which is also one warp's slice of a
   wgmma m64k16 register A operand. With g = lane / 4 and t = lane % 4, nibble i of the word is
       feature = g + 8 * (i % 2)            (within the row block)
       input   = 2 * t + 8 * (i / 2 % 2) + i / 4    (within the k16 step)
   so that (word >> 4 j) & 0x000f000f is fragment register j (j = 0..3), both halves in place.
2. scales, 64 * groups_per_block values of the problem's dtype: [row block][group][g 0..7][2], the
   pair being features g and g + 8 of the row block: one 32-bit load gives a lane both scales.
3. zero points (only where zero is "int"), 32 * groups_per_block bytes: [row block][group][g 0..7],
   one byte a pair: feature g in the low nibble, g + 8 in the high one.

Blocks are ordered [N / 64][K / 128] (a strip of 64 features is one contiguous stream along K), both
padded up. Padding has weight = zero point and scale 0, so it adds exactly nothing; the zero point
of padding is 8. Where the group is the whole K, blocks hold weights only; after the last block come
two tables: scales [N / 64][row block][g][2], then zero bytes [N / 64][row block][g], in the orders
above; there padded inputs share their row's scale and zero point, and again weight = zero point.

fp16 weights with smaller groups have another table there: row factors [N / 64][row block][g][2],
fp16. The size of a row factor is 2^12 * f, where the power of two f brings the largest scale of
the row into [2^-9, 2^-8), or f = 2^3 where it would be more. A kernel may multiply scales by f, to
have room for the 2^24 that makes a number of a subnormal one, and divide the row's sums by f.
Where that would round a weight of a row more than once, or more coarsely, the row's f is 1 or 2^-4
(see ptxgen.weights.spread), and all 64 factors of its strip are negative: kernels do without the
2^24 there. A tag of 16 bytes ends such a packed tensor: LAYOUT_VERSION and the number of strips
with negative factors, 32 bits each, and 8 bytes of 0. Version 2 had neither marks nor tag, so that
its tensors are refused by their size; those of other problems are the same in both.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ptxgen.problem import Problem

LAYOUT_VERSION = 3

BLOCK_ROWS = 64
BLOCK_K = 128
ROW_BLOCK = 16
TAG_BYTES = 16
WEIGHT_BYTES = BLOCK_ROWS * BLOCK_K // 2
FRAGMENT_BYTES = ROW_BLOCK * 64 // 2
"""One row block x 64 inputs: 32 lanes x 16 bytes."""


@dataclass(frozen=True, slots=True)
class PackedLayout:
    """Sizes and offsets, in bytes, of a problem's packed tensor."""

    strips: int
    k_blocks: int
    groups_per_block: int
    scale_bytes: int
    zero_bytes: int
    table_scale_bytes: int
    table_zero_bytes: int
    factor_bytes: int
    tag_bytes: int

    @property
    def block_bytes(self) -> int:
        return WEIGHT_BYTES + self.scale_bytes + self.zero_bytes

    @property
    def blocks_bytes(self) -> int:
        return self.strips * self.k_blocks * self.block_bytes

    @property
    def total_bytes(self) -> int:
        tables = self.table_scale_bytes + self.table_zero_bytes + self.factor_bytes
        return self.blocks_bytes + tables + self.tag_bytes


@lru_cache(maxsize=256)
def packed_layout(problem: Problem) -> PackedLayout:
    """The layout of a problem's packed tensor (a contiguous uint8 tensor of total_bytes).

    Kept, as the rules ask for it once or more for each of tens of thousands of configs.
    """
    strips = -(-problem.n // BLOCK_ROWS)
    k_blocks = -(-problem.k // BLOCK_K)
    groups = 0 if problem.whole_k else BLOCK_K // problem.group_size
    has_zeros = problem.zero == "int"
    has_factors = bool(groups) and problem.dtype == "fp16"
    return PackedLayout(
        strips=strips,
        k_blocks=k_blocks,
        groups_per_block=groups,
        scale_bytes=2 * BLOCK_ROWS * groups,
        zero_bytes=BLOCK_ROWS // 2 * groups if has_zeros else 0,
        table_scale_bytes=2 * BLOCK_ROWS * strips if problem.whole_k else 0,
        table_zero_bytes=BLOCK_ROWS // 2 * strips if problem.whole_k and has_zeros else 0,
        factor_bytes=2 * BLOCK_ROWS * strips if has_factors else 0,
        tag_bytes=TAG_BYTES if has_factors else 0,
    )
