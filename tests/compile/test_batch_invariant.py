"""Batch invariance, bit for bit, in the interpreter: kernels of one order of sums agree on a row.

The data makes every sum cancel, so that an output is nothing but the rounding of its sums: another
order gives other bits nearly everywhere, which the last test shows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ptxgen.arch import ARCHS
from ptxgen.compile import compile_source
from ptxgen.config import KernelConfig
from ptxgen.families import emit, family_named
from ptxgen.families.invariant import INVARIANT, invariant_default, is_invariant
from ptxgen.families.wgmma.config import WgmmaConfig
from ptxgen.families.wgmma_tma.config import WgmmaTmaConfig
from ptxgen.interp import GlobalMemory, Launch, Schedule, encode_map, load_program, run
from ptxgen.problem import Problem
from ptxgen.reference import ProblemData, random_problem_data
from ptxgen.weights.pack import pack
from ptxgen.weights.quantize import QuantizedWeight

pytestmark = pytest.mark.compile

ARCH = ARCHS["sm_90a"]
ROWS = 16
PLAIN = Problem(32, 1024, 64)
TAILS = Problem(40, 1184, 32, "bf16", "int")


def cancelling(problem: Problem) -> ProblemData:
    """Inputs in pairs of equal weights and opposite activations: every exact output is 0."""
    data = random_problem_data(problem, ROWS)
    generator = torch.Generator().manual_seed(1)
    shuffled = torch.randperm(problem.k, generator=generator)
    one, other = shuffled[: problem.k // 2], shuffled[problem.k // 2 :]
    # Of many magnitudes: the sum of a group would be exact in FP32 otherwise.
    powers = torch.randint(-4, 12, (problem.k,), generator=generator)
    x, q = (data.x * 2.0**powers).to(data.x.dtype), data.weight.q.clone()
    x[:, other], q[:, other] = -x[:, one], q[:, one]
    scales = data.weight.scales[:, :1].expand_as(data.weight.scales).contiguous()
    zeros = data.weight.zeros
    if zeros is not None:
        zeros = zeros[:, :1].expand_as(zeros).contiguous()
    return ProblemData(x, QuantizedWeight(q, scales, zeros), data.bias)


def rows_of(problem: Problem, config: KernelConfig, data: ProblemData, rows: slice) -> Tensor:
    """Bits of the outputs of a batch made of some rows, int16 [rows, N]."""
    x = data.x[rows].contiguous()
    m = len(x)
    source = emit(problem, config, ARCH)
    plan, memory = source.plan, GlobalMemory()
    space = np.zeros(max(16, plan.workspace_bytes(m)), np.uint8)
    x_at = memory.allocate("x", x.view(torch.int16).numpy(), readonly=True)
    args: tuple[int | bytes, ...] = (
        x_at,
        memory.allocate("packed", pack(data.weight, problem).numpy(), readonly=True),
        0,
        memory.allocate("y", np.full((m, problem.n), 0x7FFF, np.int16)),
        memory.allocate("workspace", space),
        m,
        problem.k,
        problem.n,
    )
    if (recipe := plan.x_map(x_at, m, problem.k)) is not None:
        args = (*args, encode_map(recipe))
    launch = Launch(plan.grid(m), (plan.threads, 1, 1), plan.smem_bytes, args)
    program = load_program(compile_source(source).ptx, source.entry)
    run(program, launch, memory, Schedule(), None)
    return torch.from_numpy(memory.array("y").copy())


BATCHES: dict[str, tuple[dict[str, Any], slice]] = {
    "M=1": ({"block_m": 1, "warp_m": 1}, slice(6, 7)),
    "M=5": ({"num_stages": 2, "weights_first": True}, slice(3, 8)),
    "M=8": ({"block_n": 64, "trigger": "end"}, slice(0, 8)),
    "M=8, wide warps": ({"block_n": 64, "warp_n": 64, "min_ctas": 2}, slice(8, 16)),
    "M=16, two tiles": ({}, slice(0, 16)),
    "M=16, two warps": ({"block_m": 16, "warp_m": 8}, slice(0, 16)),
}


@pytest.mark.parametrize("problem", [PLAIN, TAILS], ids=lambda problem: problem.key())
def test_a_row_has_the_same_bits_in_every_batch_and_kernel(problem: Problem) -> None:
    data = cancelling(problem)
    whole = rows_of(problem, invariant_default(problem, ARCH, ROWS), data, slice(0, ROWS))
    assert (whole != 0).float().mean() > 0.5  # rounding, and no hidden exactness
    for name, (knobs, rows) in BATCHES.items():
        config = replace(INVARIANT, **knobs)
        assert is_invariant(problem, config), name
        assert torch.equal(rows_of(problem, config, data, rows), whole[rows]), name


OTHER_ORDERS: dict[str, KernelConfig] = {
    "two warps": replace(INVARIANT, warps_k=2),
    "one block each": replace(INVARIANT, block_k=1024),
    "split": replace(INVARIANT, split_k=2),
    "scaled weights": replace(INVARIANT, scale_on="weights"),
    "two sums in turns": replace(INVARIANT, block_n=16, warp_n=16),
    "wgmma": WgmmaConfig(16, 64, 1, 3, 1, False, 1),
}


@pytest.mark.parametrize("name", OTHER_ORDERS)
def test_another_key_gives_other_bits(name: str) -> None:
    data, config = cancelling(PLAIN), OTHER_ORDERS[name]
    one = rows_of(PLAIN, INVARIANT, data, slice(0, 8))
    other = rows_of(PLAIN, config, data, slice(0, 8))
    assert not is_invariant(PLAIN, config)
    assert (one != other).float().mean() > 0.2


@pytest.mark.parametrize("split_k", [1, 2])
def test_wgmma_kernels_of_one_key_agree_whatever_their_tiles(split_k: int) -> None:
    data, key = cancelling(PLAIN), family_named("wgmma").summation_key
    first = WgmmaConfig(16, 64, 1, 3, split_k, False, 1)
    second = WgmmaConfig(8, 128, 2, 4, split_k, True, 1, raster=4)
    assert key(PLAIN, first) == key(PLAIN, second)
    whole = rows_of(PLAIN, first, data, slice(0, 16))
    assert torch.equal(rows_of(PLAIN, second, data, slice(0, 16)), whole)
    assert torch.equal(rows_of(PLAIN, second, data, slice(5, 8)), whole[5:8])


@pytest.mark.parametrize("split_k", [1, 2])
def test_kernels_of_both_wgmma_families_agree_where_their_orders_do(split_k: int) -> None:
    """With weights that are normal numbers in both units: the keys differ in the family alone."""
    data = cancelling(PLAIN)
    first = WgmmaConfig(16, 64, 1, 3, split_k, False, 1)
    second = WgmmaTmaConfig(
        block_m=16,
        block_n=64,
        warpgroups=1,
        num_stages=3,
        chunk=2,
        split_k=split_k,
        multicast=1,
        min_ctas=1,
        max_ctas=0,
    )
    own = family_named("wgmma_tma").summation_key(PLAIN, second)
    assert own.replace("wgmma_tma", "wgmma") == family_named("wgmma").summation_key(PLAIN, first)
    whole = rows_of(PLAIN, first, data, slice(0, 16))
    assert (whole != 0).float().mean() > 0.2
    assert torch.equal(rows_of(PLAIN, second, data, slice(0, 16)), whole)


def test_a_cluster_adds_up_as_the_workspace_does() -> None:
    data = cancelling(PLAIN)
    split = replace(INVARIANT, split_k=2)
    whole = rows_of(PLAIN, split, data, slice(0, 8))
    assert torch.equal(rows_of(PLAIN, replace(split, cluster=True), data, slice(0, 8)), whole)
