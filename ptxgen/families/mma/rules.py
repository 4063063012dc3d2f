"""The one statement of which mma configs are legal, and why the others are not."""

from __future__ import annotations

from collections.abc import Iterator

from ptxgen.arch import RESERVED_SMEM_BYTES, ArchSpec
from ptxgen.families.choices import choice_violations
from ptxgen.families.mma.config import KNOBS, MmaConfig
from ptxgen.families.mma.shape import Shape, TiledConfig
from ptxgen.problem import Problem
from ptxgen.weights.layout import BLOCK_K

MAX_ACCUMULATORS = 112
"""Of 255 registers; the rest hold fragments and addresses. Above it every config tried spilled."""

MAX_GRID_Y = 65535

MAX_CLUSTER = 8
"""Most CTAs of a cluster that every device with clusters runs (CUDA C Programming Guide)."""


def violations(problem: Problem, config: MmaConfig, arch: ArchSpec) -> list[str]:
    """Why the config is illegal for the problem on the arch; empty where it is legal."""
    found = [*choice_violations(config, KNOBS)] or [*_tile_violations(config)]
    if found:
        return found
    shape = Shape(problem, config)
    return [
        *_split_violations(shape),
        *cluster_violations(config, arch),
        *resource_violations(shape, arch),
    ]


def _tile_violations(config: MmaConfig) -> Iterator[str]:
    if config.block_m % config.warp_m:
        yield f"warp_m = {config.warp_m} does not divide block_m = {config.block_m}"
    if config.warp_m < 8 and config.block_m != config.warp_m:
        yield f"warp_m = {config.warp_m} below 8 needs block_m to be the same, not {config.block_m}"
    if config.block_n % config.warp_n:
        yield f"warp_n = {config.warp_n} does not divide block_n = {config.block_n}"
    if config.block_k % (config.warps_k * BLOCK_K):
        yield (
            f"block_k = {config.block_k} does not give each of {config.warps_k} warps along K "
            f"whole packed blocks of {BLOCK_K} inputs"
        )


def _split_violations(shape: Shape) -> Iterator[str]:
    problem, config = shape.problem, shape.config
    if config.split_k > shape.total_stages:
        yield f"split_k = {config.split_k} is more than the {shape.total_stages} stages of K"
    if shape.n_tiles > MAX_GRID_Y:
        yield f"{shape.n_tiles} tiles along N are more than the grid's {MAX_GRID_Y}"
    if shape.fragments % shape.warps_m:
        yield f"{shape.fragments} weight fragments do not share out over {shape.warps_m} warps"
    if shape.x_threads % shape.x_chunks and shape.x_chunks % shape.x_threads:
        yield f"{shape.x_chunks} activation chunks do not share out over {shape.x_threads} threads"
    if problem.whole_k and config.scale_on != "accumulators":
        yield "a scale of the whole K is applied once, to the accumulators"
    if shape.subnormal:
        yield from _subnormal_violations(shape)


def _subnormal_violations(shape: Shape) -> Iterator[str]:
    """A raw nibble's power of two and zero point go into an FP32 sum of each group."""
    if shape.problem.dtype != "fp16":
        yield (
            f"dequant = subnormal needs fp16: times an activation, a {shape.problem.dtype} subnormal "
            f"would fall below what FP32 holds"
        )
    if shape.problem.whole_k or shape.config.scale_on != "accumulators":
        yield "dequant = subnormal needs groups whose scales are applied to the accumulators"


def cluster_violations(config: TiledConfig, arch: ArchSpec) -> Iterator[str]:
    """Why the CTAs that split K cannot form a cluster, where they are asked to."""
    if not config.cluster:
        return
    if not arch.has_clusters:
        yield f"cluster needs sm_90 or sm_90a; {arch.name} has no clusters"
    if not 2 <= config.split_k <= MAX_CLUSTER:
        yield (
            f"cluster joins the CTAs that split K, 2 to {MAX_CLUSTER} of them, "
            f"not split_k = {config.split_k}"
        )


def resource_violations(
    shape: Shape, arch: ArchSpec, max_accumulators: int = MAX_ACCUMULATORS
) -> Iterator[str]:
    """What the shape needs that the arch does not have."""
    config = shape.config
    if shape.threads > arch.threads_per_cta:
        yield f"{shape.threads} threads are more than a CTA's {arch.threads_per_cta}"
    if shape.smem_bytes > arch.smem_per_cta:
        yield (
            f"{shape.smem_bytes} bytes of shared memory are more than the {arch.smem_per_cta} "
            f"that a CTA may have on {arch.name}"
        )
    if shape.accumulators > max_accumulators:
        yield f"{shape.accumulators} accumulators a thread are more than {max_accumulators}"
    resident = config.min_ctas * (shape.smem_bytes + RESERVED_SMEM_BYTES)
    if config.min_ctas > 1 and resident > arch.smem_per_sm:
        yield (
            f"{config.min_ctas} CTAs need {resident} bytes of shared memory; "
            f"an SM of {arch.name} has {arch.smem_per_sm}"
        )
    if config.min_ctas * shape.threads > 32 * arch.max_warps_per_sm:
        yield (
            f"{config.min_ctas} CTAs of {shape.threads} threads are more than an SM's "
            f"{32 * arch.max_warps_per_sm}"
        )
    registers = arch.registers_per_sm // (config.min_ctas * shape.threads)
    if shape.accumulators + 40 > registers:
        yield (
            f"{shape.accumulators} accumulators and 40 other registers are more than the "
            f"{registers} that {config.min_ctas} CTAs of {shape.threads} threads leave a thread"
        )
