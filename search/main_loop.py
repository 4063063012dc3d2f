"""The main loop in the model: what one CTA does, and what bounds the CTAs that run at once."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from ptxgen.arch import GpuSpec
from ptxgen.config import KernelConfig
from ptxgen.problem import Problem
from ptxgen.source import LaunchPlan
from ptxgen.weights.layout import packed_layout

# Where a constant below says "fitted", it was fitted to two thirds of 11,016 trials recorded on an
# H200 (2026-11-29) and checked on the rest; docs/model.md has the method and the quality reached.

MEMORY_LATENCY_US = 0.62
"""Loaded latency of device memory (fitted). An H200 reaches 4.48 TB/s with 16-64 KB in flight an
SM, which by Little's law is 0.5-1.9 us (measured, 2026-11-29)."""

SM_LOAD_GBPS = 112.0
"""Most that one SM loads through its L2 port, which moves 64 bytes a clock."""

CLOCK_GHZ = 1.75
"""SM clock under load; the known GPUs lie between 1.4 and 2.2."""

STAGE_INSTRUCTIONS = 14.0
"""Warp instructions of a packed K block, whatever the tile: loop, copies and waits (fitted)."""

DEQUANT_INSTRUCTIONS = 84.0
"""Of a 16 x 128 weight block: picks, subtractions, fragment loads (counted in the interpreter by
ptxgen.cpucheck.cost)."""

SUBNORMAL_SAVES = 32.0
"""Fewer of them where nibbles stay subnormal: the subtractions."""

SUBNORMAL_TOKEN_INSTRUCTIONS = 8.0
"""More of an n8 tile there: the mma that sums its activations."""

SUBNORMAL_TILE_INSTRUCTIONS = 4.0
"""More of a weight block and n8 tile there: the zero points are taken off."""

WEIGHT_SCALE_INSTRUCTIONS = 44.0
"""More of them where the weights are scaled: 32 multiplications and what feeds them."""

TOKEN_INSTRUCTIONS = 30.0
"""Of an n8 tile and packed K block: ldmatrix and its addresses."""

TILE_INSTRUCTIONS = 8.0
"""mma of a weight block and n8 tile: one a k16 step."""

SUM_SCALE_INSTRUCTIONS = 6.5
"""More of them where the sums are scaled: four multiply-adds and the zeros they start from."""

ISSUE_RATE = 3.1
"""Warp instructions an SM issues a cycle, of 4 at most (fitted)."""

MMA_SYNC_SLOWDOWN = 1.7
"""Tensor time of mma.sync over that of the dense peak (fitted)."""

CHAIN_CYCLES = 72.0
"""Latency of one stage of one warp, its instructions apart: wait, barrier, first loads (fitted)."""

CHAIN_CYCLES_PER_INSTRUCTION = 1.3
"""Cycles that one warp alone takes for an instruction; other warps hide them (fitted)."""

BARRIER_CYCLES = 80.0
"""More latency a stage where the warps of a CTA share activations and wait for one another
(fitted)."""

SERIAL_LOSS = 0.3
"""Share of the shorter of throughput and latency that does not hide behind the longer."""

OVERLAP_LOSS = 0.27
"""Share of the shorter of loading and computing that does not hide behind the longer (fitted)."""


@dataclass(frozen=True, slots=True)
class Tile:
    """What the model reads of a config, with defaults for families that lack it.

    Attributes:
        warp_m: tokens of a warp's tile.
        warp_n: output features of a warp's tile.
        warps_k: warps that split a stage along K.
        block_k: inputs of a stage.
        num_stages: slots of the ring.
        weights_first: weights are loaded before the previous kernel has ended.
        scales_weights: weights are scaled, not sums.
        trigger: when the next kernel of a chain may start; see MmaConfig.
        subnormal: nibbles are multiplied as they are; see MmaConfig.dequant.
        is_async: tensor instructions run beside the others (wgmma) and read tokens by themselves.
    """

    warp_m: int
    warp_n: int
    warps_k: int
    block_k: int
    num_stages: int
    weights_first: bool
    scales_weights: bool
    trigger: str
    subnormal: bool
    is_async: bool

    @classmethod
    def of(cls, config: KernelConfig, plan: LaunchPlan) -> Tile:
        """A config's tile, from its knobs or properties; without warp tiles a CTA is one."""
        return cls(
            warp_m=getattr(config, "warp_m", plan.block_m),
            warp_n=getattr(config, "warp_n", plan.block_n),
            warps_k=getattr(config, "warps_k", 1),
            block_k=getattr(config, "block_k", 128),
            num_stages=getattr(config, "num_stages", 2),
            weights_first=getattr(config, "weights_first", False),
            scales_weights=getattr(config, "scale_on", "weights") == "weights",
            trigger=getattr(config, "trigger", "start"),
            subnormal=getattr(config, "dequant", "magic") == "subnormal",
            is_async=config.family.startswith("wgmma"),
        )


@dataclass(frozen=True, slots=True)
class WaveLimits:
    """How long each part of the GPU would need for one wave by itself, in microseconds.

    Attributes:
        memory: device memory at its full rate.
        in_flight: device memory at the rate that the loads in flight allow.
        l2: the L2 ports of the SMs.
        issue: instructions of the busiest SM.
        tensor: multiplications of the busiest SM.
        chain: the stages of one warp, one after the other.
    """

    memory: float
    in_flight: float
    l2: float
    issue: float
    tensor: float
    chain: float

    @property
    def total_us(self) -> float:
        """Loading and computing, most of the shorter one hidden behind the longer."""
        load = max(self.memory, self.in_flight, self.l2)
        throughput = max(self.issue, self.tensor)
        compute = max(throughput, self.chain) + SERIAL_LOSS * min(throughput, self.chain)
        return max(load, compute) + OVERLAP_LOSS * min(load, compute)


@dataclass(frozen=True, slots=True)
class Work:
    """What one CTA of a launch does.

    Attributes:
        ctas: of the whole grid.
        m_tiles: tiles along the tokens, which read the same weights.
        stages: of the pipeline, of the CTA that has most.
        weight_bytes: packed weights, scales and zeros.
        token_bytes: activations.
        flops: of a stage, in padded tiles.
        instructions: of one warp in a stage.
    """

    ctas: int
    m_tiles: int
    stages: int
    weight_bytes: float
    token_bytes: float
    flops: float
    instructions: float

    @classmethod
    def of(cls, problem: Problem, plan: LaunchPlan, tile: Tile, m: int) -> Work:
        m_tiles = plan.m_tiles(m)
        stages = ceil(ceil(problem.k / tile.block_k) / plan.split_k)
        padded_m = -(-plan.block_m // 8) * 8
        layout = packed_layout(problem)
        # mma and wgmma do without row factors and what follows them.
        read_bytes = layout.total_bytes - layout.factor_bytes - layout.tag_bytes
        return cls(
            ctas=m_tiles * plan.n_tiles * plan.split_k,
            m_tiles=m_tiles,
            stages=stages,
            weight_bytes=read_bytes / (plan.n_tiles * plan.split_k),
            token_bytes=2 * plan.block_m * stages * tile.block_k,
            flops=2 * padded_m * plan.block_n * tile.block_k,
            instructions=_instructions(tile),
        )


def _instructions(tile: Tile) -> float:
    """Warp instructions of one warp in a stage; ptxgen.cpucheck.cost counts them exactly."""
    blocks = max(1.0, tile.block_k / 128 / tile.warps_k)
    rows, tokens = max(1, tile.warp_n // 16), -(-tile.warp_m // 8)
    per_row = DEQUANT_INSTRUCTIONS + (WEIGHT_SCALE_INSTRUCTIONS if tile.scales_weights else 0.0)
    per_tile = TILE_INSTRUCTIONS + (0.0 if tile.scales_weights else SUM_SCALE_INSTRUCTIONS)
    per_token = TOKEN_INSTRUCTIONS
    if tile.subnormal:
        per_row -= SUBNORMAL_SAVES
        per_token += SUBNORMAL_TOKEN_INSTRUCTIONS
        per_tile += SUBNORMAL_TILE_INSTRUCTIONS
    multiply = 0.0 if tile.is_async else tokens * (per_token + rows * per_tile)
    return blocks * (STAGE_INSTRUCTIONS + rows * per_row + multiply)


def in_flight_bytes(work: Work, plan: LaunchPlan, tile: Tile) -> float:
    """What one CTA keeps in flight: its ring but for the slot in use, or all it loads."""
    ring = (tile.num_stages - 1) * tile.block_k * (plan.block_n / 2 + 2 * plan.block_m)
    return min(ring, work.weight_bytes + work.token_bytes)


def wave_limits(work: Work, plan: LaunchPlan, tile: Tile, gpu: GpuSpec, ctas: int) -> WaveLimits:
    """What bounds `ctas` CTAs that run at once; weights come from memory once for all m tiles."""
    active = min(ctas, gpu.num_sms)
    in_flight = ctas * in_flight_bytes(work, plan, tile)
    memory_bytes = ctas * (work.weight_bytes + work.token_bytes / plan.n_tiles) / work.m_tiles
    l2_bytes = ctas * (work.weight_bytes + work.token_bytes)
    per_sm = -(-ctas // gpu.num_sms)
    issue = per_sm * plan.threads / 32 * work.instructions / ISSUE_RATE
    rate = gpu.tensor_tflops / (1.0 if tile.is_async else MMA_SYNC_SLOWDOWN)
    tensor = per_sm * work.flops / (rate / gpu.num_sms * 1e3 / CLOCK_GHZ)
    private = (tile.warp_m, tile.warp_n) == (plan.block_m, plan.block_n)
    chain = CHAIN_CYCLES + CHAIN_CYCLES_PER_INSTRUCTION * work.instructions
    chain += 0.0 if private else BARRIER_CYCLES
    stage_us = work.stages / (CLOCK_GHZ * 1e3)  # of a cycle in every stage
    return WaveLimits(
        memory=memory_bytes / (gpu.read_gbps * 1e3),
        in_flight=memory_bytes / (in_flight / (MEMORY_LATENCY_US * 1e3) * 1e3),
        l2=l2_bytes / (active * SM_LOAD_GBPS * 1e3),
        issue=issue * stage_us,
        tensor=tensor * stage_us,
        chain=chain * stage_us,
    )
