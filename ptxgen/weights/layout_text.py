"""The packed layout in words and as formulas, for people and programs without this package."""

from __future__ import annotations

from typing import Any

from ptxgen.problem import Problem
from ptxgen.weights import layout as packed
from ptxgen.weights.layout import LAYOUT_VERSION, WEIGHT_BYTES, packed_layout

_FORMULA = """\
All offsets are in bytes, all divisions are integer divisions, words and scales are little-endian.
For output feature n and input k:
  strip = n / 64,  block = k / 128,  base = (strip * K_BLOCKS + block) * BLOCK_BYTES
  r = n % 64 / 16,  h = n % 16 / 8,  g = n % 8
  k64 = k % 128 / 64,  step = k % 64 / 16,  b = k % 16 / 8,  t = k % 8 / 2,  c = k % 2
  word = base + 4 * (((r * 2 + k64) * 32 + 4 * g + t) * 4 + step)
  q = (uint32 at word) >> (4 * (h + 2 * b + 4 * c)) & 15"""

_GROUPED = """
For group j = k % 128 / GROUP_SIZE of the block:
  scale at base + 4096 + 2 * (((r * GROUPS_PER_BLOCK + j) * 8 + g) * 2 + h)"""

_GROUPED_ZERO = """
  zero byte at base + 4096 + 128 * GROUPS_PER_BLOCK + (r * GROUPS_PER_BLOCK + j) * 8 + g
  zero = zero byte >> (4 * h) & 15"""

_WHOLE_K = """
One scale a feature, in a table after the last block:
  scale at BLOCKS_BYTES + 2 * (((strip * 4 + r) * 8 + g) * 2 + h)"""

_WHOLE_K_ZERO = """
  zero byte at BLOCKS_BYTES + 128 * STRIPS + (strip * 4 + r) * 8 + g
  zero = zero byte >> (4 * h) & 15"""

_FACTORS = """
One factor a feature, for kernels that want small scales, in a table after the last block:
  fp16 at BLOCKS_BYTES + 2 * (((strip * 4 + r) * 8 + g) * 2 + h)
  its exponent field = min(30, 33 - exponent field of the row's largest scale), its mantissa 0
A row is wide where that is below 27 and the exponent field of its largest scale is more than 5
above that of its smallest one but 0. A wide row has 27 there instead, or 23 where its largest
scale's is 27 or more and its smallest one's 5 or more. In strips with a wide row all 64 factors
have their sign bit set.
The last 16 bytes are the version, the number of such strips, 0 and 0, 32 bits each."""

_SYMMETRIC = """
  zero = 8"""

_VALUE = """
weight[n][k] = (q - zero) * scale"""

_WORDS = (
    "Blocks of 64 output features x 128 inputs, ordered [N / 64][K / 128], N and K padded up with "
    "weights that equal their zero point (8 where it is padding too) and scale 0. A block holds "
    "4096 bytes of weights in the A-fragment order of mma.m16n8k16: per 16 features x 64 inputs, "
    "32 lanes x 4 words, one word for each k16 step; then its scales and its zero points. Where "
    "one group spans the whole K, scales and zero points follow the last block as tables; fp16 "
    "weights with smaller groups have a table of row factors there, and 16 more bytes."
)


def layout_formula(problem: Problem) -> str:
    """Where each value of a packed weight lies, as formulas over the names of layout_words."""
    zero_part = _WHOLE_K_ZERO if problem.whole_k else _GROUPED_ZERO
    scales = _WHOLE_K if problem.whole_k else _GROUPED
    factors = _FACTORS if packed_layout(problem).factor_bytes else ""
    zeros = zero_part if problem.zero == "int" else _SYMMETRIC
    return _FORMULA + scales + zeros + factors + _VALUE


def layout_words(problem: Problem) -> dict[str, Any]:
    """The layout of a problem's packed tensor: words, formula, and its numbers. JSON-friendly."""
    layout = packed_layout(problem)
    return {
        "version": LAYOUT_VERSION,
        "words": _WORDS,
        "formula": layout_formula(problem),
        "GROUP_SIZE": problem.group_size,
        "STRIPS": layout.strips,
        "K_BLOCKS": layout.k_blocks,
        "BLOCK_ROWS": packed.BLOCK_ROWS,
        "BLOCK_K": packed.BLOCK_K,
        "BLOCK_BYTES": layout.block_bytes,
        "WEIGHT_BYTES": WEIGHT_BYTES,
        "GROUPS_PER_BLOCK": layout.groups_per_block,
        "BLOCKS_BYTES": layout.blocks_bytes,
        "TOTAL_BYTES": layout.total_bytes,
    }
