"""Costs: tensor work, bytes and loads of a stage by hand, and what must not depend on K."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ptxgen.arch import ARCHS
from ptxgen.cpucheck.cost import KernelCost, kernel_cost
from ptxgen.families.mma.config import MmaConfig
from ptxgen.problem import Problem
from ptxgen.sass.promises import promises_of
from ptxgen.source import LaunchPlan

pytestmark = pytest.mark.compile

SM90 = ARCHS["sm_90a"]
BASE = MmaConfig(8, 8, 32, 32, 256, 2, 3, 1, "accumulators", False, 1)


def cost(config: MmaConfig, problem: Problem | None = None) -> KernelCost:
    return kernel_cost(problem or Problem(4096, 4096), config, SM90)


@pytest.mark.parametrize(
    "config",
    [
        BASE,
        replace(BASE, block_m=24, warp_m=24),
        replace(BASE, block_n=64),
        replace(BASE, scale_on="weights", block_m=16, warp_m=8),
    ],
    ids=lambda config: config.digest(),
)
def test_a_stage_by_hand(config: MmaConfig) -> None:
    found = cost(config)
    warps_k, block_k = config.warps_k, config.block_k
    warps = warps_k * (config.block_n // config.warp_n) * (config.block_m // config.warp_m)
    plan = LaunchPlan(32 * warps, 0, config.block_m, config.block_n, 1, 1, True)
    promises = promises_of(Problem(4096, 4096), config, SM90, plan)
    assert promises is not None
    assert found.stage.instructions["tensor"] == warps * promises.mma
    weights = config.block_n * block_k // 2 + 2 * config.block_n * block_k // 128
    assert found.stage.bytes["async_copy"] == weights + 2 * config.block_m * block_k
    assert found.fixed.instructions["tensor"] == 0
    assert found.fixed.bytes["async_copy"] == 0
    assert found.fixed.bytes["global_write"] == 2 * config.block_m * config.block_n
    assert found.stage.bytes["global_write"] == 0


def test_scaling_the_weights_costs_multiplications_of_pairs() -> None:
    on_weights = cost(replace(BASE, scale_on="weights")).stage.instructions
    on_sums = cost(BASE).stage.instructions
    row_blocks_and_steps = 2 * 256 // 16
    assert on_weights["half"] - on_sums["half"] == 4 * row_blocks_and_steps
    assert on_weights.get("fma", 0) < on_sums["fma"]


def test_more_tokens_cost_tensor_work_and_no_dequantization() -> None:
    one, three = cost(BASE), cost(replace(BASE, block_m=24, warp_m=24))
    assert three.stage.instructions["tensor"] == 3 * one.stage.instructions["tensor"]
    assert three.stage.instructions["half"] == one.stage.instructions["half"]
    assert one.stage.total < three.stage.total < 3 * one.stage.total


def test_split_k_is_counted_as_one_cta() -> None:
    assert cost(replace(BASE, split_k=4)) == cost(BASE)
