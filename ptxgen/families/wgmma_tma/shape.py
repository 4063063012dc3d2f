"""Everything that follows from a problem and a wgmma_tma config: slots, barriers, shared memory."""

from __future__ import annotations

from dataclasses import dataclass

from ptxgen.arch import ARCHS
from ptxgen.families.wgmma_tma.config import WgmmaTmaConfig
from ptxgen.problem import Problem
from ptxgen.weights.layout import BLOCK_K, BLOCK_ROWS, PackedLayout, packed_layout

HOPPER = ARCHS["sm_90a"]
"""The one arch of this family."""

SWIZZLE_ATOM = 1024
"""8 rows of 128 bytes: what a 128-byte swizzle repeats after."""

BOX_INPUTS = 64
"""Inputs of a TMA box: 128 bytes, the width of the swizzle."""

OUT_ROW_BYTES = 128
"""Results of a token in a strip: a line of y."""

WARPGROUP_THREADS = 128
CHUNK_STEPS = BLOCK_K // 16
ADDRESS_REGISTERS = 28
MAX_REGISTERS = 255
REGISTERS_PER_LANE = 512
"""65,536 registers of an SM over its 4 x 32 lanes."""
PRODUCER_REGISTERS, CONSUMER_REGISTERS = 40, 232
"""Of a thread after setmaxnreg: 128 x 40 + 256 x 232 are what 384 threads of 168 started with."""


@dataclass(frozen=True, slots=True)
class TmaShape:
    """Derived sizes of one kernel; see the properties."""

    problem: Problem
    config: WgmmaTmaConfig

    @property
    def layout(self) -> PackedLayout:
        return packed_layout(self.problem)

    @property
    def consumers(self) -> int:
        """Threads that multiply."""
        return self.finishers * self.config.warpgroups_k

    @property
    def finishers(self) -> int:
        """Of them, those that finish a tile: the warpgroups that share out its features."""
        return WARPGROUP_THREADS * self.config.warpgroups

    @property
    def needed_registers(self) -> int:
        """Estimate of a consumer thread's registers: sums, fragments, packed words, addresses."""
        fragments = 8 * self.config.chunk * self.row_blocks
        return self.accumulators + fragments + 8 * self.row_blocks + ADDRESS_REGISTERS

    @property
    def even_registers(self) -> int:
        """Registers of a thread where consumers and one producer warp have equally many."""
        warps = (self.consumers // 32 + 1) * self.config.min_ctas
        return min(MAX_REGISTERS, REGISTERS_PER_LANE // -(-warps // 4) // 8 * 8)

    @property
    def moves_registers(self) -> bool:
        """The producer is a whole warpgroup, which gives registers to the consumers.

        Nine warps leave 168 registers a thread, as three of them share a quarter of the SM's.
        """
        few = self.needed_registers > self.even_registers
        return few and self.consumers == 2 * WARPGROUP_THREADS and self.config.min_ctas == 1

    @property
    def available_registers(self) -> int:
        """Registers of a consumer thread."""
        return CONSUMER_REGISTERS if self.moves_registers else self.even_registers

    @property
    def cluster(self) -> int:
        """CTAs of a cluster."""
        return self.config.split_k * self.config.multicast

    @property
    def copied_tokens(self) -> int:
        """Tokens of a tile that one CTA copies, for all CTAs that share them."""
        return self.config.block_m // self.config.multicast

    @property
    def threads(self) -> int:
        """The consumers and the producer: one warp, or a warpgroup that gives registers away."""
        return self.consumers + (WARPGROUP_THREADS if self.moves_registers else 32)

    @property
    def row_blocks(self) -> int:
        """m64 operands of a warpgroup, one 64-feature strip each."""
        return self.config.block_n // (BLOCK_ROWS * self.config.warpgroups)

    @property
    def reads_ahead(self) -> bool:
        """Packed words are read half a stage early: 3-5 % for two row blocks and up to 64 tokens.

        One row block loses 0-7 %, as it waits for its slot earlier, and so do larger tiles, which
        have the time anyway (H200, 192 configs, 2026-11-30). In a ring of two the next slot is the one
        before, which is released only then: it would never be filled, nor would it in one of four
        with two warpgroups in turns.
        """
        config = self.config
        enough = config.num_stages > 2 * config.warpgroups_k
        return self.row_blocks == 2 and config.block_m <= 64 and enough

    @property
    def finds_next_early(self) -> bool:
        """Consumers look up their next tile before they store the one that they have.

        0.7 % less time from 256 tokens on; with stream_k 1 % less to 3 % more (H200, 2026-11-30).
        """
        return self.config.max_ctas > 0 and not self.config.stream_k

    @property
    def strips(self) -> int:
        """64-feature strips of a CTA's tile."""
        return self.config.block_n // BLOCK_ROWS

    @property
    def token_tiles(self) -> int:
        return self.config.block_m // 8

    @property
    def accumulators(self) -> int:
        """FP32 accumulator registers of a consumer thread."""
        return 4 * self.row_blocks * self.token_tiles

    @property
    def owned_tiles(self) -> int:
        """n8 tiles of tokens whose sums one CTA of a cluster finishes."""
        return self.token_tiles // self.config.split_k

    @property
    def x_slab_bytes(self) -> int:
        """Activations of 64 inputs."""
        return self.config.block_m * 2 * BOX_INPUTS

    @property
    def weights_offset(self) -> int:
        """Where the packed blocks of a slot start, behind its activations."""
        return self.x_slab_bytes * BLOCK_K // BOX_INPUTS

    @property
    def copied_bytes(self) -> int:
        """What the mbarrier of a slot waits for."""
        return self.weights_offset + self.strips * self.layout.block_bytes

    @property
    def stage_bytes(self) -> int:
        return -(-self.copied_bytes // SWIZZLE_ATOM) * SWIZZLE_ATOM

    @property
    def exchange_offset(self) -> int:
        """Where the other CTAs of the cluster put their partial sums: behind the ring's last slot."""
        return (self.config.num_stages - 1) * self.stage_bytes + self.slot_room

    @property
    def exchange_bytes(self) -> int:
        """One FP32 part for each other CTA of the cluster."""
        part = 4 * 4 * self.row_blocks * self.owned_tiles * self.finishers
        return part * (self.config.split_k - 1)

    @property
    def units(self) -> int:
        """n8 tiles of tokens of all of a warpgroup's row blocks."""
        return self.row_blocks * self.token_tiles

    @property
    def unit_bytes(self) -> int:
        """FP32 sums of one, of all warpgroups: four a thread."""
        return 16 * self.consumers

    @property
    def part_bytes(self) -> int:
        """FP32 sums of a tile."""
        return self.units * self.unit_bytes

    @property
    def slot_room(self) -> int:
        """Bytes of a slot; those up to the next atom are missing behind the last one."""
        return -(-self.copied_bytes // OUT_ROW_BYTES) * OUT_ROW_BYTES

    @property
    def sum_units(self) -> int:
        """Units whose sums a slot has room for: one at least, 2 KB a warpgroup, whose weights take 4."""
        return min(self.units, self.slot_room // self.unit_bytes)

    @property
    def sum_slots(self) -> int:
        """Slots for the sums of a tile."""
        return -(-self.units // self.sum_units)

    @property
    def parts_together(self) -> int:
        """Parts of a shared tile whose sums of a batch share a slot."""
        return self.slot_room // (self.batch_tiles * self.unit_bytes)

    @property
    def batch_tiles(self) -> int:
        """n8 tiles of tokens of a row block that a warpgroup turns and stores at once.

        Four take 0.5 % less time than two where a thread has 128 sums (H200, 2026-11-30), but leave no
        room for the ring of small groups: two do there.
        """
        choices: tuple[int, ...] = (4, 3, 2, 1)
        if self.accumulators >= 128:
            four = self.out_offset + self._out_bytes(4) + self.barrier_bytes
            choices = (4, 2, 1) if four <= HOPPER.smem_per_cta else (2, 1)
        return next(count for count in choices if self.owned_tiles % count == 0)

    @property
    def turns_again(self) -> bool:
        """A warpgroup turns more than one batch in the same memory."""
        units = self.row_blocks * self.owned_tiles
        return self.config.max_ctas > 0 or units > self.batch_tiles

    @property
    def out_offset(self) -> int:
        """Where results are turned: 8 rows, one a token, of a strip's 64 features, for each tile."""
        return self.exchange_offset + self.exchange_bytes

    @property
    def out_bytes(self) -> int:
        """Of all warpgroups that finish a tile."""
        return self._out_bytes(self.batch_tiles)

    @property
    def barrier_offset(self) -> int:
        return self.out_offset + self.out_bytes

    @property
    def barrier_bytes(self) -> int:
        """Two mbarriers a slot, and what extra_offset says."""
        extra = 16 if self.config.stream_k or self.config.split_k > 1 else 0
        return 16 * self.config.num_stages + extra

    @property
    def smem_bytes(self) -> int:
        return self.barrier_offset + self.barrier_bytes

    def _out_bytes(self, batch_tiles: int) -> int:
        return batch_tiles * 8 * OUT_ROW_BYTES * self.config.warpgroups

    @property
    def extra_offset(self) -> int:
        """Where the producer tells which slices of shared tiles the consumers finish (stream_k), or the
        mbarrier that counts what the other CTAs of the cluster send (split_k)."""
        return self.barrier_offset + 16 * self.config.num_stages

    @property
    def n_tiles(self) -> int:
        """Tiles along N; whole clusters of them, the last ones may lie beyond N."""
        multicast = self.config.multicast
        return -(-self.problem.n // (self.config.block_n * multicast)) * multicast

    @property
    def strip_tail(self) -> bool:
        """The last tile along N has strips that do not exist."""
        return self.n_tiles * self.strips > self.layout.strips

    @property
    def feature_tail(self) -> bool:
        """The last tile along N has features that do not exist."""
        return self.n_tiles * self.config.block_n > self.problem.n
