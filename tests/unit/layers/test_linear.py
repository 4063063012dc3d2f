"""W4A16Linear without a device: construction, state, copies, tracing."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch
from torch import nn

from ptxgen.errors import TensorError
from ptxgen.problem import Problem
from ptxgen.reference import random_problem_data
from ptxgen.weights.layout import packed_layout
from ptxgen.weights.pack import unpack
from ptxtune.layers import operator
from ptxtune.layers.linear import W4A16Linear

PROBLEM = Problem(64, 256, 64, "bf16", "int", bias=True)


@pytest.fixture
def layer() -> W4A16Linear:
    data = random_problem_data(PROBLEM, 1)
    return W4A16Linear.from_quantized(data.weight, PROBLEM, data.bias)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("group", "steps"), [(64, 64), (-1, 256)])
def test_a_float_layer_is_quantized_to_the_nearest(
    dtype: torch.dtype, bias: bool, group: int, steps: int
) -> None:
    linear = nn.Linear(256, 64, bias=bias, dtype=dtype)
    made = W4A16Linear.from_linear(linear, group)
    assert made.problem.group_size == steps
    assert made.problem.bias is bias
    weight = unpack(made.packed, made.problem)
    scales = weight.scales.float().repeat_interleave(steps, dim=1)
    error = ((weight.q.float() - 8) * scales - linear.weight.float()).abs()
    # Half a step, and 7.5 steps of a scale that was rounded to the dtype.
    assert bool((error <= scales * (0.5 + 8 * torch.finfo(dtype).eps / 2)).all())
    assert not bias or torch.equal(made.bias, linear.bias)  # type: ignore[arg-type]


def test_other_dtypes_are_refused() -> None:
    with pytest.raises(TensorError, match=r"torch\.float32.*convert the layer"):
        W4A16Linear.from_linear(nn.Linear(256, 64))


def test_a_state_dict_goes_out_and_in(layer: W4A16Linear) -> None:
    saved = io.BytesIO()
    torch.save(layer.state_dict(), saved)
    saved.seek(0)
    empty = W4A16Linear.empty(PROBLEM)
    empty.load_state_dict(torch.load(saved, weights_only=True))
    assert torch.equal(empty.packed, layer.packed)
    assert torch.equal(empty.bias, layer.bias)  # type: ignore[arg-type]


def test_a_state_of_another_problem_is_refused(layer: W4A16Linear) -> None:
    """64 x 256 and 128 x 128 pack to the same number of bytes."""
    other = Problem(128, 128, 64, "bf16", "int", bias=False)
    assert packed_layout(other).total_bytes == packed_layout(PROBLEM).total_bytes
    with pytest.raises(TensorError, match="pack the weight again"):
        W4A16Linear.empty(other).load_state_dict(layer.state_dict(), strict=False)


def test_an_empty_layer_on_meta_takes_no_memory() -> None:
    assert W4A16Linear.empty(PROBLEM, "meta").packed.is_meta


def test_a_deep_copy_has_a_weight_of_its_own(layer: W4A16Linear) -> None:
    other = copy.deepcopy(layer)
    other.packed.zero_()
    assert not torch.equal(other.packed, layer.packed)
    assert other.problem == layer.problem


def test_it_says_what_it_is(layer: W4A16Linear) -> None:
    assert PROBLEM.key() in repr(layer)


def test_without_a_gpu_it_says_so(layer: W4A16Linear) -> None:
    with pytest.raises(TensorError, match="is on cpu; move the layer"):
        layer.prepare()


def test_tracing_needs_no_device(layer: W4A16Linear) -> None:
    traced: Any = torch.export.export(
        W4A16Linear.empty(PROBLEM, "meta"),
        (torch.empty(4, 256, dtype=torch.bfloat16, device="meta"),),
    )
    names = [str(node.target) for node in traced.graph.nodes]
    assert "ptxtune.w4a16_linear.default" in names


def test_what_does_not_fit_is_refused(layer: W4A16Linear) -> None:
    with pytest.raises(TensorError, match=r"needs .* bytes"):
        W4A16Linear(PROBLEM, layer.packed[:-1], layer.bias)
    with pytest.raises(TensorError, match="bias is missing"):
        W4A16Linear(PROBLEM, layer.packed)
    with pytest.raises(TensorError, match="has none"):
        W4A16Linear(Problem(64, 256, 64, "bf16", "int"), layer.packed, layer.bias)


def test_a_forked_child_refuses_its_parents_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator, "_ready", {("key", 0): object()})
    monkeypatch.setattr(operator, "_prepared", {})
    monkeypatch.setattr(operator, "_forked", [])
    operator._after_fork()
    assert not operator._ready
    with pytest.raises(TensorError, match="does not survive a fork"):
        operator._late("n64-k256-g128-fp16-sym", torch.empty(1))
