"""Everything that follows from a problem and an mma config: warp grid, stage layout, shared memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ptxgen.problem import Problem
from ptxgen.weights.layout import (
    BLOCK_K,
    FRAGMENT_BYTES,
    ROW_BLOCK,
    PackedLayout,
    packed_layout,
)

MAX_CHAINED_TILES = 1
"""Up to so many tiles a warp, two sums take turns: 1-2 % at one tile on an H200, nothing at two."""

RED_PAD = 4
"""Floats of padding a row of the reduction tile: makes a warp's fragment stores conflict-free."""

MAX_VECTORS = 8
"""16-byte loads that a thread of a cluster's reduction has in flight at most; four registers each."""


class TiledConfig(Protocol):
    """What the parts that families share ask of a config; see MmaConfig for the meanings."""

    @property
    def block_m(self) -> int: ...
    @property
    def warp_m(self) -> int: ...
    @property
    def block_n(self) -> int: ...
    @property
    def warp_n(self) -> int: ...
    @property
    def block_k(self) -> int: ...
    @property
    def warps_k(self) -> int: ...
    @property
    def num_stages(self) -> int: ...
    @property
    def split_k(self) -> int: ...
    @property
    def scale_on(self) -> str: ...
    @property
    def weights_first(self) -> bool: ...
    @property
    def min_ctas(self) -> int: ...
    @property
    def trigger(self) -> str: ...
    @property
    def cluster(self) -> bool: ...
    @property
    def dequant(self) -> str: ...
    def key(self) -> str:
        """Readable unique key."""
        ...


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)


@dataclass(frozen=True, slots=True)
class Shape:
    """Derived sizes of one kernel; see the properties."""

    problem: Problem
    config: TiledConfig

    @property
    def layout(self) -> PackedLayout:
        return packed_layout(self.problem)

    @property
    def warps_m(self) -> int:
        return self.config.block_m // self.config.warp_m

    @property
    def warps_n(self) -> int:
        return self.config.block_n // self.config.warp_n

    @property
    def threads(self) -> int:
        return 32 * self.warps_m * self.warps_n * self.config.warps_k

    @property
    def warp_k(self) -> int:
        """Inputs of a stage that one warp consumes."""
        return self.config.block_k // self.config.warps_k

    @property
    def warp_blocks(self) -> int:
        """Packed K blocks of a stage that one warp consumes."""
        return self.warp_k // BLOCK_K

    @property
    def row_blocks(self) -> int:
        """16-feature row blocks of a warp's tile."""
        return self.config.warp_n // ROW_BLOCK

    @property
    def token_tiles(self) -> int:
        """n8 tiles of a warp's tile."""
        return _ceil_div(self.config.warp_m, 8)

    @property
    def chains(self) -> int:
        """Independent sums of a group: few tiles would leave one long chain of dependent mma."""
        tiles = self.row_blocks * self.token_tiles
        partial = self.config.scale_on == "accumulators" and not self.problem.whole_k
        return 2 if partial and tiles <= MAX_CHAINED_TILES else 1

    @property
    def accumulators(self) -> int:
        """FP32 accumulator registers of a thread, the second set of scale_on="accumulators" included."""
        partial = self.config.scale_on == "accumulators" and not self.problem.whole_k
        sets = 1 + self.chains if partial else 1
        token_sums = 4 * self.token_tiles if self.subnormal else 0
        return 4 * self.row_blocks * self.token_tiles * sets + token_sums

    @property
    def subnormal(self) -> bool:
        """Weights enter mma as raw nibbles; see MmaConfig.dequant."""
        return self.config.dequant == "subnormal"

    @property
    def private(self) -> bool:
        """True where no warp shares activations with another, so that no CTA barrier is needed."""
        return self.warps_m == 1 and self.warps_n == 1

    @property
    def x_threads(self) -> int:
        """Threads that share out one stage of activations: a warp where they are private."""
        return 32 if self.private else self.threads

    @property
    def x_chunks(self) -> int:
        """16-byte chunks in a row of the activations that x_threads share out."""
        return (self.warp_k if self.private else self.config.block_k) // 8

    @property
    def long_rows(self) -> bool:
        """Threads that share out activations walk along the rows, of more chunks than threads."""
        return self.x_threads % self.x_chunks != 0

    @property
    def x_row_step(self) -> int:
        """Rows that x_threads copy at once, where rows are not long."""
        return self.x_threads // self.x_chunks

    @property
    def x_rounds(self) -> int:
        """Copies of a thread: of a stage, or of a long row."""
        rows = 1 if self.long_rows else self.config.block_m
        return _ceil_div(rows * self.x_chunks, self.x_threads)

    @property
    def x_rows_uneven(self) -> bool:
        """The last copy is of some threads only."""
        return self.config.block_m * self.x_chunks % self.x_threads != 0

    @property
    def fragments(self) -> int:
        """512-byte weight fragments of a warp's tile in a stage."""
        return 2 * self.row_blocks * self.warp_blocks

    @property
    def meta_scale_bytes(self) -> int:
        """Scales of a warp's tile in one packed K block."""
        return 2 * self.config.warp_n * self.layout.groups_per_block

    @property
    def meta_zero_bytes(self) -> int:
        """Zero points of a warp's tile in one packed K block."""
        has_zeros = self.problem.zero == "int"
        return self.config.warp_n // 2 * self.layout.groups_per_block if has_zeros else 0

    @property
    def meta_bytes(self) -> int:
        """Scales, then zero points, of a warp's tile in one packed K block; 16-byte aligned."""
        return _ceil_div(self.meta_scale_bytes + self.meta_zero_bytes, 16) * 16

    @property
    def weight_stage_bytes(self) -> int:
        return self.fragments * FRAGMENT_BYTES * self.warps_n * self.config.warps_k

    @property
    def meta_stage_bytes(self) -> int:
        return self.meta_bytes * self.warp_blocks * self.warps_n * self.config.warps_k

    @property
    def x_stage_bytes(self) -> int:
        return 2 * self.config.block_m * self.config.block_k

    @property
    def x_offset(self) -> int:
        """Where the activations of a slot start."""
        return self.weight_stage_bytes + self.meta_stage_bytes

    @property
    def stage_bytes(self) -> int:
        return _ceil_div(self.x_offset + self.x_stage_bytes, 128) * 128

    @property
    def reduction_bytes(self) -> int:
        """FP32 tiles through which the warps of a CTA reduce, reusing the ring's memory."""
        return 4 * self.config.warps_k * self.config.block_m * (self.config.block_n + RED_PAD)

    @property
    def red_pad(self) -> int:
        return RED_PAD

    @property
    def uses_workspace(self) -> bool:
        """The CTAs that split K reduce through the workspace."""
        return self.config.split_k > 1 and not self.config.cluster

    @property
    def cluster_batch(self) -> int:
        """Vectors of every rank that a thread of a cluster reads at once; below 2 there is no such loop."""
        share = _ceil_div(self.config.block_m * self.config.block_n // 16, self.config.split_k) * 4
        return min(_ceil_div(share, self.threads), MAX_VECTORS // self.config.split_k)

    @property
    def smem_bytes(self) -> int:
        return max(self.config.num_stages * self.stage_bytes, self.reduction_bytes)

    @property
    def total_stages(self) -> int:
        """Stages of the whole K, shared out over split_k CTAs."""
        return _ceil_div(self.layout.k_blocks * BLOCK_K, self.config.block_k)

    @property
    def n_tiles(self) -> int:
        return _ceil_div(self.problem.n, self.config.block_n)

    @property
    def n_tail(self) -> bool:
        """The last CTA along N has features that do not exist."""
        return self.problem.n % self.config.block_n != 0

    @property
    def k_block_tail(self) -> bool:
        """The last stage has packed K blocks that do not exist."""
        return self.total_stages * self.config.block_k > self.layout.k_blocks * BLOCK_K

    @property
    def strip_tail(self) -> bool:
        """The last CTA along N has row blocks that do not exist."""
        return self.n_tiles * self.config.block_n > self.layout.strips * 64

    @property
    def k_tail(self) -> bool:
        """The last stage has activations beyond K."""
        return self.total_stages * self.config.block_k > self.problem.k
