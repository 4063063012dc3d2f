"""The vLLM plugin against a stand-in for vLLM's interface: choice, refusals, weights, the call."""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from ptxgen.problem import Problem
from ptxgen.reference import random_problem_data
from ptxgen.weights.pack import unpack
from ptxgen.weights.quantize import QuantizedWeight
from ptxtune.engines.vllm import plugin
from ptxtune.engines.vllm.versions import KNOWN, known_version, unknown_text

SITE = Path(__file__).parents[2] / "helpers" / "fake_vllm" / "site"
N, K, GROUP = 64, 256, 64


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The stand-in on the path, its modules and ours forgotten afterwards."""
    monkeypatch.syspath_prepend(str(SITE))
    monkeypatch.setattr(plugin, "version", lambda _: "0.26.0")
    yield importlib.import_module("vllm")
    for name in [name for name in sys.modules if name.split(".")[0] == "vllm"]:
        del sys.modules[name]
    sys.modules.pop("ptxtune.engines.vllm.kernel", None)


@pytest.fixture
def kernel(vllm: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Our kernel class, with a device of capability 9.0 and nothing to load."""
    module = importlib.import_module("ptxtune.engines.vllm.kernel")
    prepared = SimpleNamespace(summary=lambda: "M <= 8192 default")
    asked: list[Problem] = []
    monkeypatch.setattr(
        module, "prepare_operator", lambda problem, _: asked.append(problem) or prepared
    )
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))
    module.asked = asked
    return module


def config(module: Any, **changes: Any) -> Any:
    base = module.MPLinearLayerConfig((K, N), (K, N), "uint4b8", torch.float16, GROUP, False)
    return replace(base, **changes)


def possible() -> list[type]:
    linear = importlib.import_module("vllm.model_executor.kernels.linear")
    platforms = importlib.import_module("vllm.platforms")
    return linear._POSSIBLE_KERNELS[platforms.PlatformEnum.CUDA]  # type: ignore[no-any-return]


def test_ours_comes_first_and_once(vllm: ModuleType) -> None:
    for _ in range(3):
        plugin.register()
    assert [kernel.__name__ for kernel in possible()] == [
        "PtxtuneLinearKernel",
        "MacheteLinearKernel",
    ]


def test_off_leaves_vllm_alone(vllm: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTXTUNE_VLLM", "0")
    plugin.register()
    assert [kernel.__name__ for kernel in possible()] == ["MacheteLinearKernel"]


@pytest.mark.parametrize("version", ["", "0.25.1", "0.34.0", "1.0.0", "nightly"])
def test_an_unknown_version_is_one_line_and_no_change(
    vllm: ModuleType,
    version: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(plugin, "version", lambda _: version)
    with caplog.at_level(logging.INFO, logger="vllm.ptxtune"):
        plugin.register()
    assert [kernel.__name__ for kernel in possible()] == ["MacheteLinearKernel"]
    assert [record.getMessage() for record in caplog.records] == [unknown_text(version)]
    assert "\n" not in unknown_text(version)


def test_a_changed_interface_is_one_line_and_no_change(
    vllm: ModuleType, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    linear = importlib.import_module("vllm.model_executor.kernels.linear")
    monkeypatch.delattr(linear, "_POSSIBLE_KERNELS")
    with caplog.at_level(logging.WARNING, logger="vllm.ptxtune"):
        plugin.register()
    assert "its own kernels serve" in caplog.text
    assert len(caplog.records) == 1


@pytest.mark.parametrize("known", KNOWN, ids=str)
def test_patch_releases_of_known_versions_are_known(known: Any) -> None:
    major, minor = known.release
    for text in (f"{major}.{minor}", f"{major}.{minor}.7", f"{major}.{minor}.1+cu130"):
        assert known_version(text) == known
    assert known_version(f"{major}.{minor}9.0") is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"act_type": torch.bfloat16}, None),
        ({"weight_type": "uint4", "zero_points": True}, None),
        ({"group_size": -1}, None),
        ({"has_g_idx": True}, None),
        ({"weight_type": "uint8b128"}, "weights of uint8b128"),
        ({"weight_type": "uint4"}, "weights of uint4"),
        ({"act_type": torch.float32}, "activations of torch.float32"),
        ({"out_type": torch.float32}, "gives torch.float16"),
        ({"group_size": 16}, "group size 16"),
        ({"partition_weight_shape": (K, 12)}, "n = 12"),
        ({"partition_weight_shape": (96, N)}, "does not divide K = 96"),
        ({"has_g_idx": True, "full_weight_shape": (2 * K, N)}, "act-order layer over ranks"),
    ],
)
def test_what_we_can_do_and_why_not(kernel: Any, changes: Any, reason: str | None) -> None:
    can, said = kernel.PtxtuneLinearKernel.can_implement(config(kernel, **changes))
    assert can is (reason is None)
    assert reason is None or reason in said


def test_an_older_gpu_is_left_to_vllm(kernel: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (7, 5))
    can, said = kernel.PtxtuneLinearKernel.can_implement(config(kernel))
    assert not can
    assert "7.5" in said


def words(q: torch.Tensor, dim: int) -> torch.Tensor:
    """uint8 to int32 words of eight values along a dimension, one bit at a time."""
    values = q.movedim(dim, -1).long()
    packed = torch.zeros((*values.shape[:-1], values.shape[-1] // 8), dtype=torch.int64)
    for index in range(values.shape[-1]):
        packed[..., index // 8] |= values[..., index] << 4 * (index % 8)
    packed[packed >= 1 << 31] -= 1 << 32
    return packed.to(torch.int32).movedim(-1, dim)


def loaded_layer(
    module: Any, problem: Problem, weight: QuantizedWeight, transposed: bool, **extra: Any
) -> torch.nn.Module:
    """A layer as vLLM's loaders leave it: [K / 8, N] words, or [N, K / 8] of compressed-tensors."""
    parameter = importlib.import_module("vllm.model_executor.parameter").AxisParameter

    def axis(data: torch.Tensor) -> Any:
        given = data.t().contiguous() if transposed else data.contiguous()
        return parameter(given, 1, 0) if transposed else parameter(given, 0, 1)

    layer = torch.nn.Module()
    layer.register_parameter("qweight", axis(words(weight.q.t(), 0)))
    layer.register_parameter("scales", axis(weight.scales.t()))
    if weight.zeros is not None:
        layer.register_parameter("qzeros", axis(words(weight.zeros.t(), 1)))
    for name, value in extra.items():
        layer.register_parameter(name, torch.nn.Parameter(value, requires_grad=False))
    return layer


@pytest.mark.parametrize("zero", ["sym", "int"])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_weights_are_packed_as_they_were_loaded(
    kernel: Any, zero: Any, transposed: bool, dtype: Any
) -> None:
    problem = Problem(N, K, GROUP, dtype, zero)
    weight = random_problem_data(problem, 1).weight
    layer = loaded_layer(kernel, problem, weight, transposed)
    activations = torch.float16 if dtype == "fp16" else torch.bfloat16
    c = config(
        kernel,
        zero_points=zero == "int",
        weight_type="uint4" if zero == "int" else "uint4b8",
        act_type=activations,
    )
    made = kernel.PtxtuneLinearKernel(c, "qweight", "scales", "qzeros", "g_idx")
    made.process_weights_after_loading(layer)
    back = unpack(layer.qweight.data, problem)
    assert torch.equal(back.q, weight.q)
    assert torch.equal(back.scales, weight.scales)
    assert zero == "sym" or torch.equal(back.zeros, weight.zeros)  # type: ignore[arg-type]
    assert layer.scales.numel() == 0, "kept once, not twice"
    assert kernel.asked == [problem]


def test_act_order_sorts_inputs_and_activations_alike(
    kernel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = Problem(N, K, GROUP)
    weight = random_problem_data(problem, 1).weight
    shuffle = torch.randperm(K, generator=torch.Generator().manual_seed(1))
    groups = (torch.arange(K) // GROUP)[shuffle].to(torch.int32)
    mixed = QuantizedWeight(weight.q[:, shuffle], weight.scales, None)
    layer = loaded_layer(kernel, problem, mixed, False, g_idx=groups)
    made = kernel.PtxtuneLinearKernel(
        config(kernel, has_g_idx=True), "qweight", "scales", None, "g_idx"
    )
    made.process_weights_after_loading(layer)
    seen: list[torch.Tensor] = []
    fake = SimpleNamespace(w4a16_linear=lambda x, *_: seen.append(x) or x.new_zeros(len(x), N))
    monkeypatch.setattr(torch.ops, "ptxtune", fake)
    x = torch.randn(3, K, dtype=torch.float16)
    made.apply_weights(layer, x)
    # What the kernel multiplies, in FP64, against the layer's own order of inputs.
    kept = unpack(layer.qweight.data, problem)
    steps = (kept.q.double() - 8) * kept.scales.double().repeat_interleave(GROUP, dim=1)
    own = (mixed.q.double() - 8) * weight.scales.double()[:, groups.long()]
    assert torch.allclose(seen[0].double() @ steps.t(), x.double() @ own.t(), atol=1e-9)


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_a_bias_is_fused_where_the_layer_has_one(
    kernel: Any, bias: bool, split: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = Problem(N, K, GROUP)
    weight = random_problem_data(problem, 1).weight
    extra = {"bias": torch.ones(N, dtype=torch.float16)} if bias else {}
    layer = loaded_layer(kernel, problem, weight, False, **extra)
    c = config(kernel, full_weight_shape=(2 * K if split else K, N))
    made = kernel.PtxtuneLinearKernel(c, "qweight", "scales", None, None)
    made.process_weights_after_loading(layer)
    assert (replace(problem, bias=True) in kernel.asked) is bias
    assert (problem in kernel.asked) is (split or not bias)
    calls: list[tuple[Any, str]] = []

    def operator(x: torch.Tensor, packed: torch.Tensor, given: Any, key: str) -> torch.Tensor:
        calls.append((given, key))
        return x.new_zeros(len(x), N)

    monkeypatch.setattr(torch.ops, "ptxtune", SimpleNamespace(w4a16_linear=operator))
    x = torch.zeros(2, K, dtype=torch.float16)
    given = torch.full((N,), 2.0, dtype=torch.float16)
    y = made.apply_weights(layer, x, given)
    assert calls[-1] == (
        (given, replace(problem, bias=True).key()) if bias else (None, problem.key())
    )
    assert torch.equal(y, x.new_zeros(2, N) if bias else given.expand(2, N))
    made.apply_weights(layer, x)
    assert calls[-1] == (None, problem.key())
