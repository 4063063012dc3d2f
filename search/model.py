"""The model that ranks kernels unrun: roofline, occupancy, bytes in flight and waves.

It orders candidates for a real run and stands in for the measurement where there is no GPU. It
knows what a kernel moves and computes, not what ptxas made of it; read its microseconds as a
ranking.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from db.records import Protocol
from ptxgen.arch import RESERVED_SMEM_BYTES, ArchSpec, GpuSpec
from ptxgen.config import KernelConfig
from ptxgen.outcome import Resources
from ptxgen.problem import Problem
from ptxgen.source import LaunchPlan
from ptxgen.weights.layout import packed_layout

MODEL_VERSION = 2
"""Raised whenever predictions change; stored with predicted runs."""

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

FILL_US = 0.9
"""First loads, activations and pipeline fill before the main loop (fitted; at 4096 x 4096 on an
H200 2,000 of 5,800 cycles pass before the steady state)."""

EARLY_FILL = 0.5
"""Share of the fill that remains under dependent launch with weights first (fitted)."""

CROWD_US = {"start": 3.0, "drained": 0.7, "end": 0.7}
"""Cost, by trigger, of a successor that finds the whole GPU free and starts with its predecessor:
its loads and its waiting CTAs take from the kernel that runs (fitted; a 4096 x 4096 kernel of 128
CTAs that leaves room for three more an SM took 5.5 us plain and 6.6 us chained on an H200,
2026-11-29)."""

END_US = 0.45
"""Cost of a successor that may only start at the end of the main loop (fitted)."""

WAVE_FILL_US = 1.7
"""The same for each later wave, the uneven ends of the waves included (fitted)."""

EPILOGUE_US = 0.75
"""Reduction among the warps of a CTA, store and the end of the grid (fitted)."""

REDUCTION_US_PER_KB = 0.05
"""More of it for each KB of FP32 sums that the warps of a CTA reduce (fitted)."""

SPLIT_US = 1.8
"""Fence, counter and wait of a reduction across CTAs, its bytes apart (fitted)."""

CLUSTER_US = 0.9
"""The same within a cluster: two cluster barriers and a trip to another SM (estimated: half)."""

CLUSTER_LOAD_GBPS = 24.0
"""What one SM loads from the shared memory of others (estimated, from published benchmarks)."""

CLUSTER_SMS = 120 / 132
"""Share of the SMs that clusters reach which span more than two: at one CTA an SM an H200 runs 66
clusters of 2, 30 of 4 and 15 of 8 at once (measured, 2026-11-29)."""

HIDDEN_LAUNCH = 0.1
"""Share of the launch cost that stays visible with programmatic dependent launch: 3.46 us become
1.89 where a launch costs 1.7 (measured, 2026-11-29)."""

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
            is_async=config.family.startswith("wgmma"),
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
    found = take_apart(problem, config, plan, resources, m, gpu=gpu, protocol=protocol)
    return float("inf") if found is None else found.total_us


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
class Prediction:
    """A predicted launch taken apart; times in microseconds.

    Attributes:
        ctas_per_sm: that one SM holds at once.
        ctas: of the grid.
        slots: CTAs that the GPU holds at once.
        in_flight_bytes: that the busiest SM keeps in flight in a full wave.
        launch_us: what the launch costs.
        fill_us: first loads of every wave.
        main_us: the main loops of all waves.
        tail_us: of main_us, what a last wave costs more than its share of a full one.
        epilogue_us: reduction in the CTA, and store.
        split_us: reduction across CTAs.
        limits: of a full wave, or of the only one.
    """

    ctas_per_sm: int
    ctas: int
    slots: int
    in_flight_bytes: float
    launch_us: float
    fill_us: float
    main_us: float
    tail_us: float
    epilogue_us: float
    split_us: float
    limits: WaveLimits

    @property
    def total_us(self) -> float:
        """The whole launch."""
        parts = (self.launch_us, self.fill_us, self.main_us, self.epilogue_us, self.split_us)
        return sum(parts)


def take_apart(
    problem: Problem,
    config: KernelConfig,
    plan: LaunchPlan,
    resources: Resources,
    m: int,
    *,
    gpu: GpuSpec,
    protocol: Protocol,
) -> Prediction | None:
    """What the model makes of one launch for a batch of m > 0; None where no CTA fits."""
    tile = Tile.of(config, plan)
    ctas_per_sm = occupancy(plan, resources, gpu.spec)
    if ctas_per_sm < 1:
        return None
    work = _Work.of(problem, plan, tile, m)
    slots = _slots(plan, ctas_per_sm, gpu)
    full_waves, rest = divmod(work.ctas, slots)
    limits = _wave_limits(work, plan, tile, gpu, slots if full_waves else rest)
    last_us = _wave_limits(work, plan, tile, gpu, rest).total_us if rest else 0.0
    main_us = last_us if not full_waves else full_waves * limits.total_us + last_us
    waves = full_waves + (rest > 0)
    share_us = limits.total_us * rest / slots if full_waves else last_us
    chained = protocol is Protocol.CHAINED and plan.pdl
    first_fill = _fill_us(tile, work.ctas / slots, chained)
    reduction_us = REDUCTION_US_PER_KB * tile.warps_k * plan.block_m * plan.block_n / 256
    resident = min(ctas_per_sm, -(-work.ctas // gpu.num_sms))
    return Prediction(
        ctas_per_sm=ctas_per_sm,
        ctas=work.ctas,
        slots=slots,
        in_flight_bytes=resident * _in_flight_bytes(work, plan, tile),
        launch_us=gpu.launch_us * (HIDDEN_LAUNCH if chained else 1.0),
        fill_us=first_fill + (waves - 1) * WAVE_FILL_US,
        main_us=main_us,
        tail_us=max(0.0, last_us - share_us),
        epilogue_us=EPILOGUE_US + reduction_us,
        split_us=_split_us(plan, work, gpu),
        limits=limits,
    )


def _fill_us(tile: Tile, filled: float, chained: bool) -> float:
    """First loads, and what a predecessor or successor in a chain costs.

    Args:
        tile: of the kernel.
        filled: CTAs of the grid over those that the GPU holds at once.
        chained: whether launches depend on each other.
    """
    fill = FILL_US * (EARLY_FILL if chained and tile.weights_first else 1.0)
    if chained:
        fill += CROWD_US[tile.trigger] * max(0.0, 1.0 - filled)
        fill += END_US if tile.trigger == "end" else 0.0
    return fill


@dataclass(frozen=True, slots=True)
class _Work:
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
    def of(cls, problem: Problem, plan: LaunchPlan, tile: Tile, m: int) -> _Work:
        m_tiles = plan.m_tiles(m)
        stages = ceil(ceil(problem.k / tile.block_k) / plan.split_k)
        padded_m = -(-plan.block_m // 8) * 8
        return cls(
            ctas=m_tiles * plan.n_tiles * plan.split_k,
            m_tiles=m_tiles,
            stages=stages,
            weight_bytes=packed_layout(problem).total_bytes / (plan.n_tiles * plan.split_k),
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
    multiply = 0.0 if tile.is_async else tokens * (TOKEN_INSTRUCTIONS + rows * per_tile)
    return blocks * (STAGE_INSTRUCTIONS + rows * per_row + multiply)


def _in_flight_bytes(work: _Work, plan: LaunchPlan, tile: Tile) -> float:
    """What one CTA keeps in flight: its ring but for the slot in use, or all it loads."""
    ring = (tile.num_stages - 1) * tile.block_k * (plan.block_n / 2 + 2 * plan.block_m)
    return min(ring, work.weight_bytes + work.token_bytes)


def _wave_limits(work: _Work, plan: LaunchPlan, tile: Tile, gpu: GpuSpec, ctas: int) -> WaveLimits:
    """What bounds `ctas` CTAs that run at once; weights come from memory once for all m tiles."""
    active = min(ctas, gpu.num_sms)
    in_flight = ctas * _in_flight_bytes(work, plan, tile)
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


def _slots(plan: LaunchPlan, ctas_per_sm: int, gpu: GpuSpec) -> int:
    """CTAs that the GPU holds at once."""
    spans = ceil(plan.cluster_k / ctas_per_sm)
    return int(ctas_per_sm * gpu.num_sms * (CLUSTER_SMS if spans > 2 else 1.0))


def _split_us(plan: LaunchPlan, work: _Work, gpu: GpuSpec) -> float:
    """FP32 partial tiles that go from CTA to CTA, and their synchronisation.

    Through L2 all are written and read; in a cluster each is read but for its owner's share.
    """
    if plan.split_k == 1:
        return 0.0
    tile_bytes = 4 * plan.block_m * plan.block_n
    if plan.cluster_k > 1:
        read_bytes = work.ctas * tile_bytes * (1 - 1 / plan.cluster_k)
        return CLUSTER_US + read_bytes / (gpu.num_sms * CLUSTER_LOAD_GBPS * 1e3)
    partial_bytes = 2 * work.ctas * tile_bytes
    return SPLIT_US + partial_bytes / (gpu.num_sms * SM_LOAD_GBPS * 1e3)
