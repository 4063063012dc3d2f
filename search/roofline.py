"""The roofline of one kernel: from the model's parts and the time it took. Pure."""

from __future__ import annotations

from db.records import Protocol
from ptxgen.arch import GpuSpec
from ptxgen.config import KernelConfig
from ptxgen.outcome import Resources
from ptxgen.problem import Problem
from ptxgen.roofline import Bound, Roofline
from ptxgen.source import LaunchPlan
from search.above_floor import above_floor
from search.model import floor_us, take_apart
from search.prediction import Prediction

AT_FLOOR = 0.85
"""From this share of the floor on, the floor itself binds, whatever the model makes of the rest."""


def roofline(
    problem: Problem,
    config: KernelConfig,
    plan: LaunchPlan,
    resources: Resources,
    m: int,
    *,
    gpu: GpuSpec,
    protocol: Protocol,
    time_us: float,
) -> Roofline | None:
    """Where a kernel stands; None where the model says that not one CTA fits an SM.

    Args:
        problem: what is computed.
        config: the kernel's.
        plan: how it is launched.
        resources: registers and shared memory, from the compiler.
        m: batch size, > 0.
        gpu: with the ceilings that the floor is made of.
        protocol: how launches follow each other.
        time_us: of one launch, > 0; measured, or the model's.
    """
    found = take_apart(problem, config, plan, resources, m, gpu=gpu, protocol=protocol)
    if found is None:
        return None
    found = above_floor(found, problem, m, gpu)
    memory_us = problem.bytes_moved(m) / (gpu.read_gbps * 1e3)
    tensor_us = problem.flops(m) / (gpu.tensor_tflops * 1e6)
    floor_bound = Bound.MEMORY if memory_us >= tensor_us else Bound.TENSOR
    share = floor_us(problem, m, gpu.read_gbps, gpu.tensor_tflops) / time_us
    warps = found.ctas_per_sm * -(-plan.threads // 32)
    return Roofline(
        floor_bound=floor_bound,
        floor_share=share,
        read_gbps=problem.bytes_moved(m) / (time_us * 1e3),
        tflops=problem.flops(m) / (time_us * 1e6),
        in_flight_bytes=found.in_flight_bytes,
        ctas_per_sm=found.ctas_per_sm,
        warps_per_sm=warps,
        occupancy=warps / gpu.spec.max_warps_per_sm,
        ctas=found.ctas,
        waves=found.ctas / found.slots,
        bound=floor_bound if share >= AT_FLOOR else bound_of(found),
        model_us=found.total_us,
        parts_us=_parts(found),
        limits_us=_limits(found),
    )


def bound_of(found: Prediction) -> Bound:
    """The largest of: what bounds the main loop, the tail wave, and all outside the main loop."""
    limits = found.limits
    steady = {
        Bound.MEMORY: limits.memory,
        Bound.IN_FLIGHT: limits.in_flight,
        Bound.L2: limits.l2,
        Bound.ISSUE: limits.issue,
        Bound.TENSOR: limits.tensor,
        Bound.LATENCY: limits.chain,
    }
    shares = {
        max(steady, key=lambda bound: steady[bound]): found.main_us - found.tail_us,
        Bound.TAIL: found.tail_us,
        Bound.LAUNCH: found.total_us - found.main_us,
    }
    return max(shares, key=lambda bound: shares[bound])


def _parts(found: Prediction) -> dict[str, float]:
    return {
        "launch": found.launch_us,
        "fill": found.fill_us,
        "main loop": found.main_us - found.tail_us,
        "tail wave": found.tail_us,
        "epilogue": found.epilogue_us,
        "split": found.split_us,
    }


def _limits(found: Prediction) -> dict[str, float]:
    limits = found.limits
    return {
        Bound.MEMORY.value: limits.memory,
        Bound.IN_FLIGHT.value: limits.in_flight,
        Bound.L2.value: limits.l2,
        Bound.ISSUE.value: limits.issue,
        Bound.TENSOR.value: limits.tensor,
        Bound.LATENCY.value: limits.chain,
    }
