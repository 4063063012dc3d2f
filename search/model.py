"""The model that ranks kernels unrun: roofline, occupancy, bytes in flight and waves.

It orders candidates for a real run and stands in for the measurement where there is no GPU. It
knows what a kernel moves and computes, not what ptxas made of it; read its microseconds as a
ranking. The wgmma_tma family has a model of its own, search.model_tma.
"""

from __future__ import annotations

from math import ceil

from db.records import DeviceRecord, Protocol
from ptxgen.arch import RESERVED_SMEM_BYTES, ArchSpec, GpuSpec
from ptxgen.config import KernelConfig
from ptxgen.families.wgmma_tma.config import WgmmaTmaConfig
from ptxgen.families.wgmma_tma.shape import TmaShape
from ptxgen.outcome import Resources
from ptxgen.problem import Problem
from ptxgen.source import LaunchPlan
from search.chain_cost import first_fill_us, launch_us
from search.main_loop import SM_LOAD_GBPS, Tile, Work, in_flight_bytes, wave_limits
from search.model_tma import estimate_registers, take_apart_tma
from search.prediction import Prediction

MODEL_VERSION = 7
"""Raised whenever predictions change; stored with predicted runs."""

# Where a constant below says "fitted", it was fitted to two thirds of 11,016 trials recorded on an
# H200 (2026-11-29) and checked on the rest; docs/model.md has the method and the quality reached.

FILL_US = 0.9
"""First loads, activations and pipeline fill before the main loop (fitted; at 4096 x 4096 on an
H200 2,000 of 5,800 cycles pass before the steady state)."""

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


HIGHEST_MHZ = 3200
"""No GPU of these architectures clocks higher."""


def floor_us(problem: Problem, m: int, read_gbps: float, tensor_tflops: float) -> float:
    """The physical floor: the longer of reading every byte once and of the multiplications.

    Args:
        problem: what is computed.
        m: batch size.
        read_gbps: streaming read of device memory, 10^9 bytes/s.
        tensor_tflops: dense tensor rate, 10^12 FLOP/s.
    """
    return max(problem.bytes_moved(m) / (read_gbps * 1e3), problem.flops(m) / (tensor_tflops * 1e6))


def least_us(problem: Problem, m: int, device: DeviceRecord, max_sm_mhz: int | None) -> float:
    """A time that no launch can fall below: what a result is rejected by, where floor_us rates it.

    The floor takes the rate that tensor cores sustain. A short run of a cool GPU passes it: 28672 x
    4096 took 590 us at M = 2,048 where the floor is 742 (H200, 2026-11-30).

    Args:
        problem: what is computed.
        m: batch size.
        device: with its read ceiling; without one only the multiplications bound.
        max_sm_mhz: its highest SM clock; None where it is not known.
    """
    flops_per_us = device.arch.tensor_flops * device.num_sms * (max_sm_mhz or HIGHEST_MHZ)
    read_us = problem.bytes_moved(m) / (device.read_gbps * 1e3) if device.read_gbps else 0.0
    return max(read_us, problem.flops(m) / flops_per_us)


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
    if isinstance(config, WgmmaTmaConfig):
        registers = estimate_registers(TmaShape(problem, config))
        return Resources(registers, 0, plan.smem_bytes)
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
    """Predicted microseconds of one launch for a batch of m > 0; infinite where no CTA fits.

    For ranking: of large batches it may lie below floor_us; what is shown does not, see
    search.above_floor.
    """
    found = take_apart(problem, config, plan, resources, m, gpu=gpu, protocol=protocol)
    return float("inf") if found is None else found.total_us


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
    chained = protocol is Protocol.CHAINED and plan.pdl
    if isinstance(config, WgmmaTmaConfig):
        return take_apart_tma(problem, config, resources, m, gpu=gpu, chained=chained)
    tile = Tile.of(config, plan)
    ctas_per_sm = occupancy(plan, resources, gpu.spec)
    if ctas_per_sm < 1:
        return None
    work = Work.of(problem, plan, tile, m)
    slots = _slots(plan, ctas_per_sm, gpu)
    full_waves, rest = divmod(work.ctas, slots)
    limits = wave_limits(work, plan, tile, gpu, slots if full_waves else rest)
    last_us = wave_limits(work, plan, tile, gpu, rest).total_us if rest else 0.0
    main_us = last_us if not full_waves else full_waves * limits.total_us + last_us
    waves = full_waves + (rest > 0)
    share_us = limits.total_us * rest / slots if full_waves else last_us
    first_fill = first_fill_us(
        FILL_US,
        weights_first=tile.weights_first,
        trigger=tile.trigger,
        filled=work.ctas / slots,
        chained=chained,
    )
    reduction_us = REDUCTION_US_PER_KB * tile.warps_k * plan.block_m * plan.block_n / 256
    resident = min(ctas_per_sm, -(-work.ctas // gpu.num_sms))
    return Prediction(
        ctas_per_sm=ctas_per_sm,
        ctas=work.ctas,
        slots=slots,
        in_flight_bytes=resident * in_flight_bytes(work, plan, tile),
        launch_us=launch_us(gpu, chained=chained),
        fill_us=first_fill + (waves - 1) * WAVE_FILL_US,
        main_us=main_us,
        tail_us=max(0.0, last_us - share_us),
        epilogue_us=EPILOGUE_US + reduction_us,
        split_us=_split_us(plan, work, gpu),
        limits=limits,
    )


def _slots(plan: LaunchPlan, ctas_per_sm: int, gpu: GpuSpec) -> int:
    """CTAs that the GPU holds at once."""
    spans = ceil(plan.cluster_k / ctas_per_sm)
    return int(ctas_per_sm * gpu.num_sms * (CLUSTER_SMS if spans > 2 else 1.0))


def _split_us(plan: LaunchPlan, work: Work, gpu: GpuSpec) -> float:
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
