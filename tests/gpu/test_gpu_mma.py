"""The mma family on a GPU: right for every M, shape, group, dtype and zero kind."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest
import torch
from gpu_kernels import Layer, arch

from ptxgen.config import KernelConfig
from ptxgen.families import candidates, default_config, violations
from ptxgen.families.mma.config import MmaConfig
from ptxgen.families.wgmma.config import WgmmaConfig
from ptxgen.problem import Problem
from ptxgen.weights.pack import pack
from ptxgen.weights.quantize import TORCH_DTYPES, QuantizedWeight

pytestmark = pytest.mark.gpu

ODD = [(48, 64), (232, 2752), (1440, 7392), (2880, 2880), (1024, 10944), (256, 27392)]
KINDS = list(itertools.product(("fp16", "bf16"), ("sym", "int")))


@pytest.mark.parametrize(("n", "k"), ODD)
@pytest.mark.parametrize(("dtype", "zero"), KINDS)
def test_odd_shapes_with_every_group_size(n: int, k: int, dtype: str, zero: str) -> None:
    for number, group in enumerate((32, 64, 128, k)):
        if k % group:
            continue
        problem = Problem(n, k, group, dtype, zero, bias=bool(number % 2))  # type: ignore[arg-type]
        for m in (1, 7, 16, 40, 65):
            layer = Layer.create(problem, default_config(problem, arch(), m, 132))
            result = layer.check(m)
            assert result.ok, (problem.key(), m, result)


@pytest.mark.parametrize("number", range(24))
def test_random_configs(number: int) -> None:
    chooser = random.Random(number)  # noqa: S311
    dtype, zero = chooser.choice(KINDS)
    n, k = chooser.choice([*ODD, (4096, 4096), (320, 14336)])
    group = chooser.choice([g for g in (32, 64, 128, k) if k % g == 0])
    problem = Problem(n, k, group, dtype, zero, bias=bool(number % 2))  # type: ignore[arg-type]
    m = chooser.choice([1, 2, 4, 8, 16, 32, 64, 128])
    space = list(candidates(problem, arch(), m))
    for config in chooser.sample(space, 6):
        layer = Layer.create(problem, config)
        for batch in (1, m, m + 3):
            result = layer.check(batch)
            assert result.ok, (problem.key(), config.key(), batch, result)


@pytest.mark.parametrize("block_m", [1, 8, 24, 64])
@pytest.mark.parametrize("split_k", [1, 3])
@pytest.mark.parametrize("dequant", ["magic", "subnormal"])
def test_every_m_from_1_to_65(block_m: int, split_k: int, dequant: str) -> None:
    """One kernel and one workspace for all batches, in an order that shrinks and grows."""
    problem = Problem(232, 2752, 64, "fp16", "int", bias=True)
    config = MmaConfig(
        block_m=block_m,
        warp_m=min(block_m, 32),
        block_n=64,
        warp_n=32,
        block_k=256,
        warps_k=2,
        num_stages=3,
        split_k=split_k,
        scale_on="accumulators",
        weights_first=True,
        min_ctas=1,
        dequant=dequant,
    )
    assert violations(problem, config, arch()) == []
    layer = Layer.create(problem, config)
    for m in [*range(1, 66), 1, 129, 3, 257, 2]:
        result = layer.check(m)
        assert result.ok, (m, result)


CLUSTERS: list[tuple[KernelConfig, Problem, tuple[int, ...]]] = [
    (
        MmaConfig(8, 8, 32, 32, 512, 4, 3, 2, "accumulators", True, 1, cluster=True),
        Problem(4096, 4096),
        (1, 5, 8, 9, 33),
    ),
    (
        MmaConfig(16, 16, 64, 32, 256, 2, 3, 4, "accumulators", False, 2, cluster=True),
        Problem(232, 2752, 64, "bf16", "int", bias=True),
        (1, 15, 16, 17, 65),
    ),
    (
        MmaConfig(32, 16, 128, 32, 128, 1, 3, 8, "weights", True, 1, "end", cluster=True),
        Problem(1440, 7392, 32, "fp16", "int", bias=True),
        (1, 31, 32, 64, 100),
    ),
    (
        MmaConfig(4, 4, 48, 48, 256, 2, 2, 3, "accumulators", True, 1, cluster=True),
        Problem(48, 2880, 2880, "bf16"),
        (1, 3, 4, 13),
    ),
    (
        WgmmaConfig(64, 128, 2, 4, 2, False, 1, cluster=True),
        Problem(8192, 4096),
        (1, 33, 64, 65, 300),
    ),
    (
        WgmmaConfig(128, 128, 1, 3, 4, False, 1, cluster=True),
        Problem(232, 2752, 64, "bf16", "int", bias=True),
        (1, 96, 127, 128, 129),
    ),
    (
        WgmmaConfig(32, 256, 4, 3, 8, True, 1, raster=4, cluster=True),
        Problem(1440, 7392, 32, "fp16", "int", bias=True),
        (17, 32, 70, 257),
    ),
    (
        WgmmaConfig(16, 64, 1, 4, 3, True, 2, cluster=True),
        Problem(2880, 2880, 2880, "fp16", "int"),
        (1, 16, 31),
    ),
]


@pytest.mark.parametrize("number", range(len(CLUSTERS)))
def test_split_k_over_a_cluster(number: int) -> None:
    """Right for every M, the bits of the workspace's sums, and the same ones chained and again."""
    config, problem, sizes = CLUSTERS[number]
    if reasons := violations(problem, config, arch()):
        pytest.skip(f"{config.key()} is illegal here: {reasons[0]}")
    layer = Layer.create(problem, config)
    through = Layer.create(problem, replace(config, cluster=False))  # type: ignore[call-arg]
    assert layer.kernel.plan.workspace_bytes(max(sizes)) == 0
    for m in sizes:
        result = layer.check(m)
        assert result.ok, (config.key(), m, result)
        x = layer.x(m)
        first = layer(x)
        assert torch.equal(first, through(x)), (config.key(), m)
        for launch in range(50):
            again = layer(x, chained=launch % 2 == 1)
            assert torch.equal(again, first), (config.key(), m)


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("scale_on", ["weights", "accumulators"])
def test_every_nibble_and_zero_point_is_bit_exact(dtype: str, scale_on: str) -> None:
    """One-hot activations and scale 1: the output is q - z itself, for all 256 pairs."""
    n, k = 256, 256
    problem = Problem(n, k, 32, dtype, "int")  # type: ignore[arg-type]
    rows, columns = torch.arange(n), torch.arange(k)
    q = ((rows[:, None] + columns[None, :] * 7) % 16).to(torch.uint8)
    zeros = ((rows[:, None] // 16 + torch.arange(k // 32)[None, :] * 5) % 16).to(torch.uint8)
    scales = torch.ones(n, k // 32, dtype=TORCH_DTYPES[problem.dtype])
    config = MmaConfig(
        block_m=64,
        warp_m=32,
        block_n=64,
        warp_n=16,
        block_k=128,
        warps_k=1,
        num_stages=2,
        split_k=1,
        scale_on=scale_on,
        weights_first=False,
        min_ctas=1,
    )
    layer = Layer.create(problem, config)
    layer.packed = pack(QuantizedWeight(q.cuda(), scales.cuda(), zeros.cuda()), problem)
    out = layer(torch.eye(k, dtype=TORCH_DTYPES[problem.dtype], device="cuda"))
    wide = zeros.repeat_interleave(32, dim=1)
    pairs = set(zip(q.flatten().tolist(), wide.flatten().tolist(), strict=True))
    assert len(pairs) == 256
    expected = q.float() - wide.float()
    assert torch.equal(out.float().cpu(), expected.t())


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_overflow_is_inf_only_where_the_result_is_beyond_the_dtype(dtype: str) -> None:
    problem = Problem(5120, 13824, 128, dtype)  # type: ignore[arg-type]
    layer = Layer.create(problem, default_config(problem, arch(), 17, 132))
    x = layer.x(17)
    x[:, :4] *= 2000
    out, ref = layer(x), layer.reference(x)
    limit = torch.finfo(TORCH_DTYPES[problem.dtype]).max
    assert not out.isnan().any()
    beyond = ref.abs() > limit * 1.001
    within = ref.abs() < limit * 0.999
    assert out[beyond].isinf().all()
    assert out[within].isfinite().all()


@pytest.mark.parametrize(("n", "k"), [(152064, 3584), (3584, 18944), (57344, 8192)])
def test_large_layers(n: int, k: int) -> None:
    problem = Problem(n, k)
    for m in (1, 33):
        result = Layer.create(problem, default_config(problem, arch(), m, 132)).check(m)
        assert result.ok, result


def test_results_do_not_depend_on_the_launch() -> None:
    """Split K adds up in a fixed order: 200 launches give the same bits."""
    problem = Problem(1024, 8192)
    space = candidates(problem, arch(), 8)
    config = next(c for c in space if isinstance(c, MmaConfig) and c.split_k == 4)
    layer = Layer.create(problem, config)
    x = layer.x(8)
    first = layer(x)
    for _ in range(200):
        assert torch.equal(layer(x), first)
