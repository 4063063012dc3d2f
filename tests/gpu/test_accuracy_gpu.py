"""Outputs within the bound of ptxgen.error_bound on a GPU, for scales of all sizes within a row."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from gpu_kernels import Layer, arch, load_kernel

from ptxgen.compile import compile_source
from ptxgen.config import KernelConfig
from ptxgen.dequantize.emit import emit_dequantize
from ptxgen.dequantize.product import write_dense
from ptxgen.device import LoadedKernel, device_facts
from ptxgen.error_bound import error_bound
from ptxgen.families import FAMILIES, default_config, violations
from ptxgen.families.wgmma_tma.config import WgmmaTmaConfig
from ptxgen.launch import WorkspacePool
from ptxgen.problem import Dtype, Problem, Zero
from ptxgen.reference import ProblemData, reference_output
from ptxgen.spread_data import spread_data
from ptxgen.weights.pack import pack
from ptxgen.weights.quantize import QuantizedWeight
from ptxgen.weights.spread import spread

pytestmark = pytest.mark.gpu

BASE = WgmmaTmaConfig(
    block_m=32,
    block_n=128,
    warpgroups=2,
    num_stages=4,
    chunk=2,
    split_k=1,
    multicast=1,
    min_ctas=1,
    max_ctas=0,
)
SCHEDULES: dict[str, WgmmaTmaConfig] = {
    "two row blocks": replace(BASE, block_m=48, warpgroups=1, num_stages=3, chunk=1),
    "registers moved": replace(BASE, block_m=256, num_stages=2),
    "split K in four": replace(BASE, block_m=64, split_k=4),
    "multicast and split K": replace(BASE, multicast=2, split_k=4),
    "persistent": replace(BASE, block_m=16, max_ctas=132, raster=8),
    "stream-K": replace(BASE, max_ctas=132, stream_k=True),
    "in turns": replace(BASE, warpgroups=1, block_n=64, warpgroups_k=2),
}
BATCHES = [1, 8, 16, 17, 33, 64, 129, 256, 1024]


def on_gpu(data: ProblemData) -> ProblemData:
    weight = data.weight
    zeros = None if weight.zeros is None else weight.zeros.cuda()
    placed = QuantizedWeight(weight.q.cuda(), weight.scales.cuda(), zeros)
    return ProblemData(data.x.cuda(), placed, None if data.bias is None else data.bias.cuda())


def worst(problem: Problem, config: KernelConfig, m: int) -> float:
    """The largest error in units of its bound."""
    data = on_gpu(spread_data(problem, m, seed=m))
    if problem.dtype == "fp16":
        found = spread(data.weight)
        assert found.wide_strips == found.strips
    kernel = load_kernel(problem, config)
    packed = pack(data.weight, problem)
    layer = Layer(problem, kernel, data.weight, packed, data.bias, WorkspacePool())
    return off(layer(data.x), data, problem)


def off(y: torch.Tensor, data: ProblemData, problem: Problem) -> float:
    exact = reference_output(data.x, data.weight, problem, data.bias)
    bound = error_bound(data.x, data.weight, problem, exact, data.bias)
    return float(((y.double() - exact).abs() / bound).nan_to_num(float("inf")).max())


@pytest.mark.parametrize("m", BATCHES)
@pytest.mark.parametrize("zero", ["sym", "int"])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_built_in_kernels_are_within_the_bound_at_every_batch(
    dtype: Dtype, zero: Zero, m: int
) -> None:
    problem = Problem(264, 2048, 64, dtype, zero, bias=True)
    assert worst(problem, default_config(problem, arch(), m, device_facts().num_sms), m) <= 1


@pytest.mark.parametrize("family", list(FAMILIES))
@pytest.mark.parametrize("zero", ["sym", "int"])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_every_family_is(dtype: Dtype, zero: Zero, family: str) -> None:
    problem = Problem(264, 1024, 32, dtype, zero)
    config = FAMILIES[family].default_config(problem, arch(), 40, device_facts().num_sms)
    if violations(problem, config, arch()):
        pytest.skip(f"{family} has no kernel for this GPU")
    assert worst(problem, config, 40) <= 1


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("zero", ["sym", "int"])
def test_every_schedule_of_wgmma_tma_is(zero: Zero, name: str) -> None:
    problem = Problem(648, 2048, 128, "fp16", zero)
    config = SCHEDULES[name]
    if reasons := violations(problem, config, arch()):
        pytest.skip("; ".join(reasons))
    assert worst(problem, config, 150) <= 1


@pytest.mark.parametrize("zero", ["sym", "int"])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_dequantize_and_matmul_is(dtype: Dtype, zero: Zero) -> None:
    problem = Problem(264, 1024, 32, dtype, zero)
    data = on_gpu(spread_data(problem, 40))
    source = emit_dequantize(problem, arch())
    torch.zeros(1, device="cuda")
    kernel = LoadedKernel(compile_source(source).cubin, source.entry, source.plan)
    dense = torch.empty(problem.n, problem.k, dtype=data.x.dtype, device="cuda")
    write_dense(kernel, problem, pack(data.weight, problem), dense)
    assert off(data.x.double() @ dense.double().t(), data, problem) <= 1


def test_cancelling_sums_in_bf16_are_off_by_one_rounding_of_the_weights() -> None:
    """Scales of 6e-8, 1000, 1e-3 and 2e-6 in a row, x of +-60: outputs are thousands off."""
    problem = Problem(256, 2048, 32, "bf16")
    generator = torch.Generator().manual_seed(0)
    scales = torch.tensor([6e-8, 1000.0, 1e-3, 2e-6]).repeat(256, 16).bfloat16()
    q = torch.randint(0, 16, (256, 2048), generator=generator, dtype=torch.uint8)
    for m in (1, 16, 17, 200):
        x = (120 * torch.rand(m, 2048, generator=generator) - 60).bfloat16()
        data = on_gpu(ProblemData(x, QuantizedWeight(q, scales), None))
        config = default_config(problem, arch(), m, device_facts().num_sms)
        packed = pack(data.weight, problem)
        kernel = load_kernel(problem, config)
        layer = Layer(problem, kernel, data.weight, packed, None, WorkspacePool())
        assert off(layer(data.x), data, problem) <= 1
