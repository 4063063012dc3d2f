"""The model that ranks kernels unrun: roofline, occupancy, bytes in flight and waves.

It orders candidates for a real run and stands in for the measurement where there is no GPU. It
knows what a kernel moves and computes, not what ptxas made of it; read its microseconds as a
ranking.
"""

from __future__ import annotations

from dataclasses import dataclass

from db.records import Protocol
from ptxgen.arch import RESERVED_SMEM_BYTES, ArchSpec, GpuSpec
from ptxgen.config import KernelConfig
from ptxgen.outcome import Resources
from ptxgen.problem import Problem
from ptxgen.source import LaunchPlan
from ptxgen.weights.layout import packed_layout

MODEL_VERSION = 1
"""Raised whenever predictions change; stored with predicted runs."""

MEMORY_LATENCY_US = 1.0
"""Loaded latency of device memory. An H200 reaches 4.48 TB/s with 16-64 KB in flight an SM, which
by Little's law is 0.5-1.9 us (measured, 2026-11-29)."""

SM_LOAD_GBPS = 75.0
"""Most that one SM loads through its L2 port, which moves 64 bytes a clock. On an H200 132 SMs took
102 MB of weights and activations in at most 11 us of a kernel of 14.5 us (8192 x 8192, M = 16;
2026-11-29): 70 GB/s each or more."""

CLOCK_GHZ = 1.75
"""SM clock under load; the known GPUs lie between 1.4 and 2.2."""

DEQUANT_CYCLES = 18.0
"""SM cycles a 16 x 128 weight block and warp, tokens apart. On an H200 a block takes 36-39 cycles
with one n8 tile and 55-71 with two (measured, 2026-11-29); this, the mma and the loads below add to
that."""

ACTIVATION_CYCLES = 16.0
"""SM cycles a block and n8 tile to read activations from shared memory, shared by a warp's row
blocks (same measurement)."""

SATURATING_WARPS = 8
"""Warps of an SM that keep its four tensor cores and its issue slots busy: two each."""

FILL_US = 1.4
"""First loads, activations and pipeline fill before the main loop: at 4096 x 4096 on an H200 2,000
of 5,800 cycles pass before the steady state (measured, 2026-11-29)."""

WAVE_FILL_US = 0.4
"""The same for later waves, whose fill hides behind CTAs that still run."""

EPILOGUE_US = 0.4
"""Reduction among the warps of a CTA and the store: 740-1,000 cycles (same measurement)."""

SPLIT_US = 0.8
"""Fence, counter and wait of a reduction across CTAs, its bytes apart."""

HIDDEN_LAUNCH = 0.1
"""Share of the launch cost that stays visible with programmatic dependent launch: 3.46 us become
1.89 where a launch costs 1.7 (measured, 2026-11-29)."""

OVERLAP_LOSS = 0.25
"""Share of the shorter of loading and computing that does not hide behind the longer."""


@dataclass(frozen=True, slots=True)
class Tile:
    """The knobs that the model reads, with defaults for families that lack them."""

    warp_m: int
    warp_n: int
    block_k: int
    num_stages: int
    weights_first: bool

    @classmethod
    def of(cls, config: KernelConfig, plan: LaunchPlan) -> Tile:
        """A config's tile; a family without warp tiles counts as one warp tile a CTA."""
        knobs = config.to_dict()
        return cls(
            warp_m=int(knobs.get("warp_m", plan.block_m)),
            warp_n=int(knobs.get("warp_n", plan.block_n)),
            block_k=int(knobs.get("block_k", 128)),
            num_stages=int(knobs.get("num_stages", 2)),
            weights_first=bool(knobs.get("weights_first", False)),
        )


def floor_us(problem: Problem, m: int, read_gbps: float, tensor_tflops: float) -> float:
    """The physical floor: the longer of reading every byte once and of the multiplications.

    Args:
        problem: what is computed.
        m: batch size.
        read_gbps: streaming read of device memory, 10^9 bytes/s.
        tensor_tflops: dense tensor rate, 10^12 FLOP/s.
    """
    return max(problem.bytes_moved(m) / (read_gbps * 1e3), problem.flops(m) / (tensor_tflops * 1e6))


def occupancy(plan: LaunchPlan, resources: Resources, arch: ArchSpec) -> int:
    """CTAs that one SM holds at once; 0 where not even one fits."""
    warps = -(-plan.threads // 32)
    registers = max(1, -(-resources.registers // 8) * 8) * 32 * warps  # allocated by 8 a thread
    smem = max(resources.smem_bytes, plan.smem_bytes) + RESERVED_SMEM_BYTES
    return min(
        arch.max_ctas_per_sm,
        arch.max_warps_per_sm // warps,
        arch.registers_per_sm // registers,
        arch.smem_per_sm // smem,
    )


def estimate_resources(problem: Problem, config: KernelConfig, plan: LaunchPlan) -> Resources:
    """A guess at registers before the compile; shared memory is the plan's and exact."""
    tile = Tile.of(config, plan)
    sets = 2 if config.to_dict().get("scale_on") == "accumulators" and not problem.whole_k else 1
    accumulators = sets * tile.warp_m * tile.warp_n // 32
    return Resources(min(255, 56 + accumulators), 0, plan.smem_bytes)


def predict_us(
    problem: Problem,
    config: KernelConfig,
    plan: LaunchPlan,
    resources: Resources,
    m: int,
    *,
    gpu: GpuSpec,
    protocol: Protocol,
) -> float:
    """Predicted microseconds of one launch for a batch of m > 0; infinite where no CTA fits."""
    tile = Tile.of(config, plan)
    ctas_per_sm = occupancy(plan, resources, gpu.spec)
    if ctas_per_sm < 1:
        return float("inf")
    work = _Work.of(problem, plan, tile, m)
    slots = ctas_per_sm * gpu.num_sms
    full_waves, rest = divmod(work.ctas, slots)
    total = full_waves * _wave_us(work, plan, tile, gpu, slots)
    if rest:
        total += _wave_us(work, plan, tile, gpu, rest)
    waves = full_waves + (rest > 0)
    chained = protocol is Protocol.CHAINED and plan.pdl
    fill = FILL_US * (0.6 if chained and tile.weights_first else 1.0) + (waves - 1) * WAVE_FILL_US
    launch = gpu.launch_us * (HIDDEN_LAUNCH if chained else 1.0)
    return launch + fill + total + EPILOGUE_US + _split_us(plan, work, gpu)


@dataclass(frozen=True, slots=True)
class _Work:
    """What one CTA of a launch does.

    Attributes:
        ctas: of the whole grid.
        m_tiles: tiles along the tokens, which read the same weights.
        weight_bytes: packed weights, scales and zeros.
        token_bytes: activations.
        flops: in padded tiles.
        blocks: 16 x 128 weight blocks times the warps along the tokens that each unpack them.
    """

    ctas: int
    m_tiles: int
    weight_bytes: float
    token_bytes: float
    flops: float
    blocks: float

    @classmethod
    def of(cls, problem: Problem, plan: LaunchPlan, tile: Tile, m: int) -> _Work:
        m_tiles = plan.m_tiles(m)
        cta_k = problem.k / plan.split_k
        warps_m = max(1, plan.block_m // tile.warp_m)
        padded_m = -(-plan.block_m // 8) * 8
        return cls(
            ctas=m_tiles * plan.n_tiles * plan.split_k,
            m_tiles=m_tiles,
            weight_bytes=packed_layout(problem).total_bytes / (plan.n_tiles * plan.split_k),
            token_bytes=2 * plan.block_m * cta_k,
            flops=2 * padded_m * plan.block_n * cta_k,
            blocks=warps_m * plan.block_n / 16 * cta_k / 128,
        )


def _wave_us(work: _Work, plan: LaunchPlan, tile: Tile, gpu: GpuSpec, ctas: int) -> float:
    """Microseconds in which `ctas` CTAs that run at once do their work."""
    load, compute = _load_us(work, plan, tile, gpu, ctas), _compute_us(work, plan, tile, gpu, ctas)
    return max(load, compute) + OVERLAP_LOSS * min(load, compute)


def _load_us(work: _Work, plan: LaunchPlan, tile: Tile, gpu: GpuSpec, ctas: int) -> float:
    """Device memory and L2, whichever is slower; weights come from memory once for all m tiles."""
    active = min(ctas, gpu.num_sms)
    ring = (tile.num_stages - 1) * tile.block_k * (plan.block_n / 2 + 2 * plan.block_m)
    in_flight = ctas * min(ring, work.weight_bytes + work.token_bytes)
    rate = min(gpu.read_gbps, in_flight / (MEMORY_LATENCY_US * 1e3))
    memory_bytes = ctas * (work.weight_bytes + work.token_bytes / plan.n_tiles) / work.m_tiles
    l2_bytes = ctas * (work.weight_bytes + work.token_bytes)
    return max(memory_bytes / (rate * 1e3), l2_bytes / (active * SM_LOAD_GBPS * 1e3))


def _compute_us(work: _Work, plan: LaunchPlan, tile: Tile, gpu: GpuSpec, ctas: int) -> float:
    """Unpacking, reading activations and the mma of the busiest SM; few warps cannot fill an SM."""
    per_sm = -(-ctas // gpu.num_sms)
    token_tiles = -(-tile.warp_m // 8)
    row_blocks = max(1, tile.warp_n // 16)
    cycles = work.blocks * (DEQUANT_CYCLES + ACTIVATION_CYCLES * token_tiles / row_blocks)
    tensor_us = work.flops / (gpu.tensor_tflops / gpu.num_sms * 1e6)
    busy = min(1.0, per_sm * plan.threads / 32 / SATURATING_WARPS)
    return per_sm * (cycles / (CLOCK_GHZ * 1e3) + tensor_us) / busy


def _split_us(plan: LaunchPlan, work: _Work, gpu: GpuSpec) -> float:
    """FP32 partial tiles written to and read from L2 by all CTAs, and their synchronisation."""
    if plan.split_k == 1:
        return 0.0
    partial_bytes = 2 * 4 * work.ctas * plan.block_m * plan.block_n
    return SPLIT_US + partial_bytes / (gpu.num_sms * SM_LOAD_GBPS * 1e3)
