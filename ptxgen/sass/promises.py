"""What a config promises of its machine code, from its knobs alone; the emitter is not asked."""

from __future__ import annotations

from dataclasses import dataclass

from ptxgen.arch import ArchSpec
from ptxgen.config import KernelConfig
from ptxgen.families.mma.config import MmaConfig
from ptxgen.families.wgmma_tma.config import WgmmaTmaConfig
from ptxgen.problem import Problem
from ptxgen.sass.warpgroup import WarpgroupPromises, warpgroup_promises
from ptxgen.source import LaunchPlan

PACKED_BLOCK_K = 128
REGISTER_STEP = 8
"""Registers are allocated to a thread by eight (CUDA occupancy rules)."""


@dataclass(frozen=True, slots=True)
class Promises:
    """Numbers a stage of the main loop, as one warp executes it.

    Attributes:
        mma: tensor instructions: k16 steps x row blocks x n8 token tiles; where nibbles stay
            subnormal, one more for each step and tile, which sums the activations.
        weight_loads: 16-byte loads of weights from shared memory.
        scale_loads: 4-byte loads of scales from shared memory.
        zero_loads: 1-byte loads of zero points from shared memory.
        activation_loads: ldmatrix.
        max_registers: of a thread, so that min_ctas CTAs fit an SM.
    """

    mma: int
    weight_loads: int
    scale_loads: int
    zero_loads: int
    activation_loads: int
    max_registers: int


def promises_of(
    problem: Problem, config: KernelConfig, arch: ArchSpec, plan: LaunchPlan
) -> Promises | WarpgroupPromises | None:
    """The promises of a config; None for a family that makes none."""
    if isinstance(config, WgmmaTmaConfig):
        return warpgroup_promises(problem, config, arch, plan)
    if not isinstance(config, MmaConfig):
        return None
    blocks = config.block_k // PACKED_BLOCK_K // config.warps_k
    rows = config.warp_n // 16
    tokens = -(-config.warp_m // 8)
    groups = 0 if problem.whole_k else PACKED_BLOCK_K // problem.group_size
    steps = blocks * PACKED_BLOCK_K // 16
    # One n8 tile takes two k16 steps with each ldmatrix.x4; more of them go two tiles at a time.
    activation_loads = steps // 2 if tokens == 1 else steps * -(-tokens // 2)
    registers = arch.registers_per_sm // (config.min_ctas * plan.threads)
    registers = registers // REGISTER_STEP * REGISTER_STEP
    return Promises(
        mma=steps * (rows + (config.dequant == "subnormal")) * tokens,
        weight_loads=2 * blocks * rows,
        scale_loads=groups * blocks * rows,
        zero_loads=groups * blocks * rows if problem.zero == "int" else 0,
        activation_loads=activation_loads,
        max_registers=min(arch.registers_per_thread, registers),
    )
