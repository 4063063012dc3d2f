"""GpuLayer on the CPU: its tensors belong together, whatever is asked for first."""

from __future__ import annotations

import pytest
import torch

from ptxgen.problem import Problem
from ptxgen.weights.layout import packed_layout
from ptxgen.weights.pack import unpack
from ptxgen.weights.quantize import TORCH_DTYPES, dequantize
from search.gpu_layer import GpuLayer

CPU = torch.device("cpu")
L2_BYTES = 60 << 10
PROBLEMS = [
    Problem(64, 256, 128),
    Problem(72, 544, 32, "bf16", "int", bias=True),
]


def layer_of(problem: Problem, seed: int = 0) -> GpuLayer:
    return GpuLayer(problem, seed, CPU, L2_BYTES)


@pytest.mark.parametrize("problem", PROBLEMS, ids=Problem.key)
def test_the_reference_is_that_of_the_packed_weight(problem: Problem) -> None:
    layer = layer_of(problem)
    expected = (
        layer.x(5).double() @ dequantize(unpack(layer.packed[0], problem), problem, torch.float64).T
    )
    if problem.bias:
        assert layer.bias is not None
        expected += layer.bias.double()
    assert layer.reference(5).dtype == torch.float64
    assert torch.allclose(layer.reference(5), expected, rtol=1e-12)


@pytest.mark.parametrize("problem", PROBLEMS, ids=Problem.key)
def test_weight_copies_are_equal_and_fill_the_cache_four_times(problem: Problem) -> None:
    layer = layer_of(problem)
    assert len({copy.data_ptr() for copy in layer.packed}) == len(layer.packed) > 1
    assert all(torch.equal(copy, layer.packed[0]) for copy in layer.packed)
    size = packed_layout(problem).total_bytes
    assert len(layer.packed) * size >= 4 * L2_BYTES > (len(layer.packed) - 1) * size
    dense_size = 2 * problem.n * problem.k
    assert layer.dense_copies() * dense_size >= 4 * L2_BYTES


@pytest.mark.parametrize("problem", PROBLEMS, ids=Problem.key)
def test_every_dense_copy_gives_the_product(problem: Problem) -> None:
    layer = layer_of(problem)
    unit = torch.finfo(TORCH_DTYPES[problem.dtype]).eps
    for copy in range(layer.dense_copies()):
        out = layer.output(7).fill_(torch.nan)
        layer.dense_product(7, copy, out)
        difference = (out.double() - layer.reference(7)).norm() / layer.reference(7).norm()
        assert difference < 2 * unit


def test_inputs_of_one_batch_are_kept_and_always_the_same() -> None:
    layer, other = layer_of(PROBLEMS[0]), layer_of(PROBLEMS[0])
    first, wanted = layer.x(3).clone(), layer.reference(3).clone()
    assert layer.x(3).data_ptr() == layer.x(3).data_ptr()
    other.reference(64)
    assert torch.equal(other.x(3), first)
    assert torch.equal(other.reference(3), wanted)
    assert not torch.equal(layer_of(PROBLEMS[0], seed=1).x(3), first)


def test_memory_for_the_dense_weight_is_made_once() -> None:
    layer = layer_of(PROBLEMS[1])
    assert layer.unpacked().shape == (72, 544)
    assert layer.unpacked().dtype == torch.bfloat16
    assert layer.unpacked().data_ptr() == layer.unpacked().data_ptr()
