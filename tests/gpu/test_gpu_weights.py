"""Quantizing, packing and the reference on a GPU give what the CPU gives, and fast."""

from __future__ import annotations

import time

import pytest
import torch

from ptxgen.problem import Problem
from ptxgen.reference import random_problem_data, reference_output, relative_error
from ptxgen.weights.pack import pack, unpack
from ptxgen.weights.quantize import QuantizedWeight, dequantize, quantize

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device"),
]

PROBLEMS = [
    Problem(232, 384, group, dtype, zero)  # type: ignore[arg-type]
    for group in (32, 128, 384)
    for dtype in ("fp16", "bf16")
    for zero in ("sym", "int")
]


def to(weight: QuantizedWeight, device: str) -> QuantizedWeight:
    zeros = weight.zeros.to(device) if weight.zeros is not None else None
    return QuantizedWeight(weight.q.to(device), weight.scales.to(device), zeros)


@pytest.mark.parametrize("problem", PROBLEMS, ids=Problem.key)
def test_the_gpu_packs_and_unpacks_as_the_cpu_does(problem: Problem) -> None:
    weight = random_problem_data(problem, 0).weight
    packed = pack(to(weight, "cuda"), problem)
    assert packed.is_cuda
    assert torch.equal(packed.cpu(), pack(weight, problem))
    back = unpack(packed, problem)
    assert torch.equal(back.q.cpu(), weight.q)
    assert torch.equal(back.scales.cpu().view(torch.int16), weight.scales.view(torch.int16))


@pytest.mark.parametrize("problem", PROBLEMS, ids=Problem.key)
def test_the_gpu_quantizes_as_well_as_the_cpu_does(problem: Problem) -> None:
    weight = torch.randn(problem.n, problem.k, generator=torch.Generator().manual_seed(1)) * 0.02
    found = quantize(weight.cuda(), problem)
    on_cpu = quantize(weight, problem)
    # a division may round the other way: never more than one step, and hardly ever
    steps = (found.q.cpu().int() - on_cpu.q.int()).abs()
    assert int(steps.max()) <= 1
    assert float(steps.float().mean()) < 1e-3
    exact = dequantize(on_cpu, problem, torch.float64)
    assert relative_error(dequantize(found, problem, torch.float64).cpu(), exact) < 1e-2


def test_the_gpus_reference_is_the_cpus() -> None:
    problem = Problem(232, 384, 128, "bf16", "int", bias=True)
    data = random_problem_data(problem, 5, device="cuda")
    assert data.bias is not None
    found = reference_output(data.x, data.weight, problem, data.bias)
    expected = reference_output(data.x.cpu(), to(data.weight, "cpu"), problem, data.bias.cpu())
    assert relative_error(found.cpu(), expected) < 1e-13


def test_a_large_weight_quantizes_and_packs_in_under_a_second() -> None:
    problem = Problem(28672, 4096, 128, "fp16", "int")
    weight = torch.randn(28672, 4096, device="cuda")
    pack(quantize(weight, problem), problem)  # loads torch's kernels
    torch.cuda.synchronize()
    start = time.perf_counter()
    pack(quantize(weight, problem), problem)
    torch.cuda.synchronize()
    assert time.perf_counter() - start < 1.0
