"""The model of the wgmma_tma family: waves, what bounds one, and how CTAs that share a tile meet.

A producer warp keeps a ring of slots full while warpgroups dequantize one chunk and multiply
another; CTAs that live on one SM share its port, its issue slots and its tensor cores.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from math import ceil

from ptxgen.arch import RESERVED_SMEM_BYTES, ArchSpec, GpuSpec
from ptxgen.families.wgmma_tma.config import WgmmaTmaConfig
from ptxgen.families.wgmma_tma.dequant import zero_first
from ptxgen.families.wgmma_tma.shape import (
    CHUNK_STEPS,
    REGISTERS_PER_LANE,
    WARPGROUP_THREADS,
    TmaShape,
)
from ptxgen.outcome import Resources
from ptxgen.problem import Problem
from search.chain_cost import first_fill_us, launch_us
from search.main_loop import CLOCK_GHZ, WaveLimits
from search.prediction import Prediction

# Where a constant below says "fitted", it was fitted to the trials of three of eight layers,
# recorded on an H200 (2026-11-29), and checked on the other five; docs/model.md has the quality.

SM_QUARTERS = 4
"""Parts of an SM, each with its own registers, issue slot and tensor core."""

REGISTER_STEP = 8
"""Registers of a thread are allocated in steps of so many."""

TENSOR_CYCLES_PER_TOKEN = 0.5
"""Of an m64k16 operand, on all four tensor cores of an SM: the dense peak."""

ROW_BLOCK_CYCLES = {"one fma": 180.0, "zero first": 239.0}
"""In which a quarter of an SM issues what one warp needs for its rows of a 64 x 128 weight block: 9
or 13 instructions for 8 weights of a lane (ptxgen.families.wgmma_tma.dequant) and some 50 to 60
more, at 0.69 a cycle. The 13 are fitted; the 9 bring the median of 1,246 later trials within 1 %
(eight layers, M = 32 to 128, H200, 2026-11-30)."""

WARP_CYCLES = 38.0
"""The same of what a warp does once a stage: waits, addresses, barriers (fitted)."""

LONE_WARP = 1.53
"""Those cycles where no other warp of the quarter fills the gaps, over the cycles where one does
(fitted)."""

CHUNK_CYCLES = 4.0
"""More of a stage for each of its chunks: less than can be measured, kept for the order."""

OVERLAP_POWER = 1.9
"""Issue and tensor time hide behind each other, but not where both are long: a p-norm (fitted)."""

SM_PORT_GBPS = 126.0
"""64 bytes a clock at 1.98 GHz, the H200's highest. All SMs at once load tiles of 256 x 64 at
96 GB/s each, 12.7 TB/s together (2026-11-29): not L2 as a whole binds, but port and latency."""

SLOT_LATENCY_US = 0.325
"""From the release of a slot to its first bytes (fitted)."""

OVERLAP_LOSS = 0.066
"""Share of the shorter of two things at once that does not hide behind the longer (fitted)."""

FILL_US = 1.8
"""Barriers, tensor map and the first slots (fitted)."""

WAVE_FILL_US = 1.23
"""The same for a later wave, shared by the CTAs of an SM; a persistent grid has none (fitted)."""

EPILOGUE_US = 0.65
"""Rounding, turning and stores of a tile; hardly longer for larger ones (fitted)."""

CLUSTER_US = 0.3
"""A cluster barrier, and waiting for others' sums (fitted anew to the same layers, 2026-11-30;
1.03, of two barriers, set splits of K 5 to 8 % behind)."""

CLUSTER_US_PER_KB = 0.02
"""For each KB of FP32 sums that a CTA gets from the others: 50 GB/s an SM (fitted anew as well)."""

MEET_US = 3.6
"""Stream-K: fence, counter and the wait for the slowest part (fitted)."""

MEET_US_PER_KB = 0.1
"""For each KB of a tile's FP32 sums, written and read back through L2 (fitted)."""

WIDE_CLUSTER = 2
CLUSTER_SMS = 120 / 132
"""Share of the SMs that clusters of over two CTAs reach: an H200 runs 66 clusters of 2, 30 of 4 and
15 of 8 at once (measured, 2026-11-29)."""


def estimate_registers(shape: TmaShape) -> int:
    """A guess at a thread's registers when the kernel starts; legal configs always fit."""
    if shape.moves_registers:
        lane_warps = shape.threads // WARPGROUP_THREADS
        return REGISTERS_PER_LANE // lane_warps // REGISTER_STEP * REGISTER_STEP
    return min(shape.even_registers, _rounded(shape.needed_registers))


def ctas_per_sm(shape: TmaShape, resources: Resources, arch: ArchSpec) -> int:
    """CTAs that one SM holds at once; 0 where not even one fits.

    Warps are dealt out to the quarters of an SM, so that nine warps take the room of twelve.
    """
    warps = shape.threads // 32
    smem = max(resources.smem_bytes, shape.smem_bytes) + RESERVED_SMEM_BYTES
    quarter_warps = REGISTERS_PER_LANE // max(1, _rounded(resources.registers))
    return min(
        arch.max_ctas_per_sm,
        arch.max_warps_per_sm // warps,
        quarter_warps * SM_QUARTERS // warps,
        arch.smem_per_sm // smem,
    )


def take_apart_tma(
    problem: Problem,
    config: WgmmaTmaConfig,
    resources: Resources,
    m: int,
    *,
    gpu: GpuSpec,
    chained: bool,
) -> Prediction | None:
    """What the model makes of one launch for a batch of m > 0; None where no CTA fits an SM."""
    shape = TmaShape(problem, config)
    resident = ctas_per_sm(shape, resources, gpu.spec)
    if resident < 1:
        return None
    work = _Work.of(shape, m, resident, gpu)
    full_waves, rest = divmod(work.units, work.slots)
    limits = _limits(work, work.slots if full_waves else rest)
    wave_us = _wave_us(limits)
    last_us = _wave_us(_limits(work, rest)) if rest else 0.0
    # Of a stream-K grid every CTA has an equal share of the last tiles, at the pace of a full wave.
    shares = config.stream_k and rest > 0
    share_us = _wave_us(_limits(work, work.slots)) * rest / work.slots
    if shares:
        last_us = share_us
    main_us = full_waves * wave_us + last_us
    waves = full_waves + (rest > 0)
    later_fill_us = 0.0 if config.max_ctas else WAVE_FILL_US / work.resident
    fill_us = first_fill_us(
        FILL_US,
        weights_first=True,
        trigger="start",
        filled=work.ctas / (resident * work.sms),
        chained=chained,
    )
    return Prediction(
        ctas_per_sm=resident,
        ctas=work.ctas,
        slots=resident * work.sms,
        in_flight_bytes=min(work.resident, ceil(work.units / work.sms)) * work.ring_bytes,
        launch_us=launch_us(gpu, chained=chained),
        fill_us=fill_us + (waves - 1) * later_fill_us,
        main_us=main_us,
        tail_us=max(0.0, last_us - share_us) if full_waves else 0.0,
        epilogue_us=waves * EPILOGUE_US,
        split_us=waves * _cluster_us(shape) + (_meet_us(config) if shares else 0.0),
        limits=limits,
    )


@dataclass(frozen=True, slots=True)
class _Work:
    """What a launch does, and what one unit of it takes: a CTA's share of one tile.

    Attributes:
        units: tiles times the parts of K that each is cut into.
        ctas: of the grid.
        sms: that CTAs reach.
        resident: CTAs that work side by side on an SM, where there are enough.
        slots: units that are worked on at once, > 0.
        ring_bytes: that a CTA keeps in flight.
        memory_us: of device memory, all units together.
        port_us: of an SM's port, one unit.
        latency_us: of the slots of a ring, one unit.
        issue_us: of the issue slots of an SM.
        tensor_us: of its tensor cores.
        chain_us: of a warpgroup by itself.
    """

    units: int
    ctas: int
    sms: int
    resident: int
    slots: int
    ring_bytes: float
    memory_us: float
    port_us: float
    latency_us: float
    issue_us: float
    tensor_us: float
    chain_us: float

    @classmethod
    def of(cls, shape: TmaShape, m: int, resident: int, gpu: GpuSpec) -> _Work:
        problem, config = shape.problem, shape.config
        units = -(-m // config.block_m) * shape.n_tiles * config.split_k
        sms = int(gpu.num_sms * (CLUSTER_SMS if shape.cluster > WIDE_CLUSTER else 1.0))
        ctas = units
        if config.max_ctas:
            ctas = config.max_ctas if config.stream_k else min(units, config.max_ctas)
            resident = min(resident, -(-config.max_ctas // sms))
        slots = resident * sms
        stages = ceil(shape.layout.k_blocks / config.split_k)
        stage_us = stages / (CLOCK_GHZ * 1e3)  # of a cycle in every stage
        return cls(
            units=units,
            ctas=ctas,
            sms=sms,
            resident=resident,
            slots=min(slots, config.max_ctas) if config.max_ctas else slots,
            ring_bytes=min(config.num_stages, stages) * shape.copied_bytes,
            memory_us=problem.bytes_moved(m) / (gpu.read_gbps * 1e3),
            port_us=stages * shape.copied_bytes / (SM_PORT_GBPS * 1e3),
            latency_us=stages * SLOT_LATENCY_US / config.num_stages,
            issue_us=stage_us * _issue_cycles(shape, shape.strips, config.warpgroups),
            tensor_us=stage_us * shape.strips * _block_tensor_cycles(config),
            chain_us=stage_us * _chain_cycles(shape) / config.warpgroups_k,
        )


def _issue_cycles(shape: TmaShape, blocks: int, warps: int) -> float:
    """A stage's cycles of a quarter of an SM, of so many weight blocks and warps."""
    way = "zero first" if zero_first(shape.problem) else "one fma"
    return blocks * ROW_BLOCK_CYCLES[way] + warps * WARP_CYCLES


def _block_tensor_cycles(config: WgmmaTmaConfig) -> float:
    """Tensor cycles of a 64 x 128 weight block."""
    return CHUNK_STEPS * TENSOR_CYCLES_PER_TOKEN * config.block_m


def _chain_cycles(shape: TmaShape) -> float:
    """A stage of one warpgroup by itself: it dequantizes a chunk while it multiplies another."""
    issue = LONE_WARP * _issue_cycles(shape, shape.row_blocks, 1)
    tensor = shape.row_blocks * _block_tensor_cycles(shape.config)
    chunks = CHUNK_STEPS // shape.config.chunk
    return max(issue, tensor) + chunks * CHUNK_CYCLES


def _limits(work: _Work, units: int) -> WaveLimits:
    """What bounds so many units that are worked on at once."""
    per_sm = -(-units // work.sms)
    return WaveLimits(
        memory=work.memory_us * units / work.units,
        in_flight=work.latency_us,
        l2=per_sm * work.port_us,
        issue=per_sm * work.issue_us,
        tensor=per_sm * work.tensor_us,
        chain=work.chain_us,
    )


def _wave_us(limits: WaveLimits) -> float:
    """Loading and computing side by side.

    A slot is away for its latency and then for its turn at the port, so these two add up.
    """
    load = _beside(limits.memory, limits.in_flight + limits.l2)
    powers = math.pow(limits.issue, OVERLAP_POWER) + math.pow(limits.tensor, OVERLAP_POWER)
    return _beside(load, _beside(math.pow(powers, 1 / OVERLAP_POWER), limits.chain))


def _beside(one_us: float, other_us: float) -> float:
    """Two things at once: the longer one, and what of the shorter one does not hide behind it."""
    return max(one_us, other_us) + OVERLAP_LOSS * min(one_us, other_us)


def _cluster_us(shape: TmaShape) -> float:
    """The exchange of sums between the CTAs of a cluster that split K."""
    if shape.config.split_k == 1:
        return 0.0
    return CLUSTER_US + CLUSTER_US_PER_KB * shape.exchange_bytes / 1024


def _meet_us(config: WgmmaTmaConfig) -> float:
    """Sums of a shared tile through the workspace."""
    return MEET_US + MEET_US_PER_KB * 4 * config.block_m * config.block_n / 1024


def _rounded(registers: int) -> int:
    return -(-registers // REGISTER_STEP) * REGISTER_STEP
