"""Batch invariance on a GPU: a row's bits are the same for every M and every kernel of the order.

The data makes every sum cancel, so that an output is nothing but the rounding of its sums.
"""

from __future__ import annotations

import random

import pytest
import torch
from gpu_kernels import Layer, arch, load_kernel
from torch import Tensor

from ptxgen.config import KernelConfig
from ptxgen.families.invariant import INVARIANT, InvariantFamily, invariant_default
from ptxgen.families.mma import MMA
from ptxgen.launch import WorkspacePool
from ptxgen.problem import M_BUCKETS, Problem, bucket_of
from ptxgen.reference import random_problem_data
from ptxgen.weights.pack import pack
from ptxgen.weights.quantize import QuantizedWeight

pytestmark = pytest.mark.gpu

BATCHES = (*range(1, 66), 128, 257)
ROWS = max(BATCHES)
KERNELS_A_BUCKET = 3
PROBLEMS = (
    Problem(512, 4096),
    Problem(232, 2752, 64, "bf16", "int"),
    Problem(256, 1440, 32, "fp16", "int"),
    Problem(128, 2880, 2880, "bf16"),
)


def cancelling(problem: Problem) -> tuple[Tensor, QuantizedWeight]:
    """Inputs in pairs of equal weights and opposite activations: every exact output is 0."""
    data = random_problem_data(problem, ROWS, 0, "cuda")
    generator = torch.Generator("cuda").manual_seed(1)
    shuffled = torch.randperm(problem.k, generator=generator, device="cuda")
    one, other = shuffled[: problem.k // 2], shuffled[problem.k // 2 :]
    powers = torch.randint(-4, 12, (problem.k,), generator=generator, device="cuda")
    x, q = (data.x * 2.0**powers).to(data.x.dtype), data.weight.q.clone()
    x[:, other], q[:, other] = -x[:, one], q[:, one]
    scales = data.weight.scales[:, :1].expand_as(data.weight.scales).contiguous()
    zeros = data.weight.zeros
    if zeros is not None:
        zeros = zeros[:, :1].expand_as(zeros).contiguous()
    return x, QuantizedWeight(q, scales, zeros)


def kernels_of(problem: Problem, m: int) -> list[KernelConfig]:
    """What a tune may choose for a bucket: some of its candidates, and the default."""
    found = list(InvariantFamily(MMA).candidates(problem, arch(), m))
    chooser = random.Random(m)  # noqa: S311 (no secret)
    drawn = chooser.sample(found, min(KERNELS_A_BUCKET, len(found)))
    return [*drawn, invariant_default(problem, arch(), m)]


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.key())
def test_rows_do_not_depend_on_the_batch(problem: Problem) -> None:
    x, weight = cancelling(problem)
    packed, pool = pack(weight, problem), WorkspacePool()

    def layer(config: KernelConfig) -> Layer:
        return Layer(problem, load_kernel(problem, config), weight, packed, None, pool)

    whole = layer(INVARIANT)(x)
    assert (whole != 0).float().mean() > 0.2  # rounding, and no hidden exactness
    buckets = sorted({bucket_of(m, M_BUCKETS) for m in BATCHES})
    for bucket in buckets:
        mine = [m for m in BATCHES if bucket_of(m, M_BUCKETS) == bucket]
        for config in kernels_of(problem, bucket):
            run = layer(config)
            for m in mine:
                first = (7 * m) % (ROWS - m + 1)  # a row is at another place in each batch
                out = run(x[first : first + m])
                same = torch.equal(
                    out.view(torch.int16), whole[first : first + m].view(torch.int16)
                )
                assert same, (problem.key(), m, config.key())
