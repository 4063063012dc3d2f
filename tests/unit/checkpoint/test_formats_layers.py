"""Fused layers, tensor-parallel shares, converted scales, and what is no problem."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from format_makers import (
    AWQ_CONFIG,
    GPTQ_CONFIG,
    Values,
    awq_gemm,
    gptq,
    named,
    random_values,
    with_group,
    write_checkpoint,
)
from torch import Tensor

from ptxgen.checkpoint.fuse import fuse, fuse_layers
from ptxgen.checkpoint.layer import LayerWeights, LinearLayer, dequantize_layer
from ptxgen.checkpoint.open import Checkpoint, open_checkpoint
from ptxgen.checkpoint.scales import convert_scales
from ptxgen.checkpoint.slices import column_slice, row_slice
from ptxgen.errors import CheckpointError, ProblemError, TensorError, UnsupportedFormatError

ATTENTION = "model.layers.0.self_attn"
MLP = "model.layers.0.mlp"


def opened(
    folder: Path, layers: dict[str, Values], *, desc_act: bool = False, group: int = 32
) -> Checkpoint:
    tensors = named({name: gptq(values, 2) for name, values in layers.items()})
    config = {
        **with_group(GPTQ_CONFIG, group),
        "checkpoint_format": "gptq_v2",
        "desc_act": desc_act,
    }
    write_checkpoint(folder, tensors, config)
    return open_checkpoint(folder)


def weight_of(layer: LinearLayer) -> Tensor:
    return dequantize_layer(layer.load(), layer.group_size)


def test_qkv_and_gate_up_are_fused_in_their_order(tmp_path: Path) -> None:
    layers = {
        f"{ATTENTION}.v_proj": random_values(16, 64, 32, seed=3),
        f"{ATTENTION}.k_proj": random_values(16, 64, 32, seed=2, bias=True),
        f"{ATTENTION}.q_proj": random_values(32, 64, 32, seed=1, bias=True),
        f"{ATTENTION}.o_proj": random_values(64, 32, 32, seed=4),
        f"{MLP}.up_proj": random_values(96, 64, 32, seed=6),
        f"{MLP}.gate_proj": random_values(96, 64, 32, seed=5),
    }
    with opened(tmp_path, layers) as checkpoint:
        fused, apart = fuse_layers(checkpoint.layers)
        assert not apart
        by_name = {layer.name.rpartition(".")[2]: layer for layer in fused}
        assert by_name.keys() == {"qkv_proj", "o_proj", "gate_up_proj"}
        qkv = by_name["qkv_proj"]
        parts = [layers[f"{ATTENTION}.{name}_proj"] for name in "qkv"]
        assert torch.equal(weight_of(qkv), torch.cat([part.weight() for part in parts]))
        bias = torch.cat([parts[0].bias, parts[1].bias, torch.zeros(16, dtype=torch.float16)])
        assert torch.equal(qkv.load().bias, bias)
        problem = qkv.problem()
        assert (problem.n, problem.k, problem.zero, problem.bias) == (64, 64, "int", True)
        gate_up = [layers[f"{MLP}.{name}_proj"].weight() for name in ("gate", "up")]
        assert torch.equal(weight_of(by_name["gate_up_proj"]), torch.cat(gate_up))
        attention = [layer for layer in checkpoint.layers if layer.name[-6:-5] in "qkv"]
        assert len(attention) == 3
        assert qkv.stored_bytes == sum(layer.stored_bytes for layer in attention)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"k": 96}, "K"),
        ({"group_size": 64}, "group size"),
        ({"zero": "sym"}, "zero points"),
        ({"scale_dtype": "bf16"}, "scales of"),
        ({"permutation": torch.arange(64)}, "act-order"),
    ],
)
def test_layers_that_differ_stay_apart(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    layers = {f"{MLP}.{name}_proj": random_values(32, 64, 32) for name in ("gate", "up")}
    with opened(tmp_path, layers) as checkpoint:
        gate, up = checkpoint.layers
        other = replace(up, **changes)
        fused, apart = fuse_layers([gate, other])
        assert fused == (gate, other)
        assert words in apart[0].reason
        assert apart[0].names == (f"{MLP}.gate_proj", f"{MLP}.up_proj")
        with pytest.raises(CheckpointError, match=f"has {words} .* and {MLP}.up_proj"):
            fuse([gate, other], "gate_up")


def test_act_order_layers_are_fused_where_they_permute_alike(tmp_path: Path) -> None:
    gate = random_values(32, 128, 32, seed=1, act_order=True)
    alike = replace(random_values(32, 128, 32, seed=2), g_idx=gate.g_idx)
    names = (f"{MLP}.gate_proj", f"{MLP}.up_proj")
    with opened(tmp_path / "a", dict(zip(names, (gate, alike), strict=True)), desc_act=True) as one:
        (fused,), apart = fuse_layers(one.layers)
        assert not apart
        assert torch.equal(weight_of(fused), torch.cat([gate.weight(), alike.weight()]))
    other = random_values(32, 128, 32, seed=2, act_order=True)
    with opened(tmp_path / "b", dict(zip(names, (gate, other), strict=True)), desc_act=True) as two:
        fused_not, (reason,) = fuse_layers(two.layers)
        assert len(fused_not) == 2
        assert "permute their inputs differently" in reason.reason


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_shares_of_all_ranks_are_the_layer(tmp_path: Path, tp: int) -> None:
    values = random_values(32, 256, 32, seed=7, bias=True)
    with opened(tmp_path, {f"{MLP}.down_proj": values}) as checkpoint:
        (layer,) = checkpoint.layers
        columns = [column_slice(layer, rank, tp) for rank in range(tp)]
        rows = [row_slice(layer, rank, tp) for rank in range(tp)]
        assert torch.equal(torch.cat([weight_of(part) for part in columns]), values.weight())
        assert torch.equal(torch.cat([weight_of(part) for part in rows], dim=1), values.weight())
        assert torch.equal(torch.cat([part.load().bias for part in columns]), values.bias)
        assert [part.bias for part in rows] == [True] + [False] * (tp - 1)
        assert [part.load().bias is not None for part in rows] == [part.bias for part in rows]
        for part in (*columns, *rows):
            assert part.quantized()[1].n == part.n


def test_one_group_of_all_inputs_is_split_with_its_scale(tmp_path: Path) -> None:
    values = random_values(32, 384, 384, seed=8)
    with opened(tmp_path, {f"{MLP}.down_proj": values}, group=-1) as checkpoint:
        (layer,) = checkpoint.layers
        parts = [row_slice(layer, rank, 2) for rank in range(2)]
        assert [part.problem().whole_k for part in parts] == [True, True]
        assert torch.equal(torch.cat([weight_of(part) for part in parts], dim=1), values.weight())


def shaped(n: int, k: int, group: int, **more: Any) -> LinearLayer:
    """A layer of this shape; its values are not read."""
    return LinearLayer(
        name=f"{MLP}.down_proj",
        n=n,
        k=k,
        group_size=group,
        dtype="fp16",
        scale_dtype="fp16",
        zero="sym",
        bias=False,
        format="test",
        parts=(),
        stored_bytes=0,
        loader=lambda device: LayerWeights(torch.empty(0), torch.empty(0)),
        **more,
    )


@pytest.mark.parametrize(
    ("k", "group", "tp"),
    [
        (29568, 128, 4),  # 7392: 57.75 groups a rank
        (29568, 128, 2),  # 14784: 115.5
        (11008, 128, 4),  # 2752: 21.5
        (2880, 128, 1),  # 22.5, in one rank already
        (28672, 128, 3),
    ],
)
def test_groups_that_straddle_ranks_name_layer_tp_group_and_k(k: int, group: int, tp: int) -> None:
    layer = shaped(8192, k, group)
    with pytest.raises((ProblemError, UnsupportedFormatError)) as caught:
        row_slice(layer, 0, tp).problem()
    message = str(caught.value)
    for part in (layer.name, str(k), str(group)):
        assert part in message
    assert tp == 1 or f"tp = {tp}" in message


@pytest.mark.parametrize(
    ("n", "k", "group", "tp"),
    [
        (8192, 29568, 32, 4),
        (2880, 2880, 32, 1),
        (4096, 27392, 64, 1),
        (192, 192, 64, 1),
        (152064, 3584, 128, 1),
        (151936, 18944, 128, 1),
        (64, 4096, 128, 1),
        (32, 4096, 128, 1),
        (59136, 59136, 128, 1),
    ],
)
def test_shapes_from_the_field_are_problems(n: int, k: int, group: int, tp: int) -> None:
    problem = row_slice(shaped(n, k, group), tp - 1, tp).problem()
    assert (problem.n, problem.k, problem.group_size) == (n, k // tp, group)


def test_act_order_is_not_split_along_inputs() -> None:
    layer = shaped(64, 256, 32, permutation=torch.arange(256))
    with pytest.raises(ProblemError, match="act-order"):
        row_slice(layer, 0, 2)


@pytest.mark.parametrize(("rank", "tp"), [(2, 2), (-1, 2), (0, 0), (0, True)])
@pytest.mark.parametrize("share", [row_slice, column_slice])
def test_ranks_that_do_not_exist(share: Any, rank: int, tp: int) -> None:
    with pytest.raises(ProblemError, match="is no share"):
        share(shaped(64, 256, 32), rank, tp)


def test_output_features_that_do_not_split() -> None:
    with pytest.raises(ProblemError, match="N = 100 cannot be split over tp = 8"):
        column_slice(shaped(100, 256, 32), 0, 8)


@pytest.mark.parametrize(
    ("n", "k", "group", "words"),
    [(64, 256, 16, "group size 16"), (64, 512, 256, "group size 256"), (36, 256, 32, "n = 36")],
)
def test_what_no_kernel_takes_is_named(n: int, k: int, group: int, words: str) -> None:
    layer = shaped(n, k, group)
    assert any(words in reason for reason in layer.missing())
    with pytest.raises(UnsupportedFormatError, match=words):
        layer.problem()


def test_scales_of_another_dtype_are_rounded_with_a_report(tmp_path: Path) -> None:
    values = random_values(64, 128, 32, seed=9)
    config = {**AWQ_CONFIG, "version": "gemm"}
    write_checkpoint(
        tmp_path, named({MLP: awq_gemm(values)}), config, config={"torch_dtype": "bfloat16"}
    )
    with open_checkpoint(tmp_path) as checkpoint:
        (layer,) = checkpoint.layers
        assert layer.dtype == "fp16"  # of the scales: exact
        same, _, none = layer.quantized()
        weight, problem, rounding = layer.quantized("bf16")
    assert torch.equal(same.scales, values.scales.t())
    assert none.words() == ""
    expected = values.scales.t().to(torch.bfloat16)
    assert torch.equal(weight.scales, expected)
    assert problem.dtype == "bf16"
    changed = (expected.double() != values.scales.t().double()).sum()
    assert rounding.changed == int(changed) > 0
    assert 0 < rounding.largest <= 2.0**-8
    assert f"{rounding.changed} scales were rounded" in rounding.words()


def test_scales_that_vanish_or_overflow() -> None:
    tiny, rounding = convert_scales(torch.tensor([1e-30, 1.0]), torch.float16, "x")
    assert tiny.tolist() == [0, 1]
    assert (rounding.changed, rounding.largest) == (1, 1.0)
    with pytest.raises(TensorError, match="layer x has scales up to 70000"):
        convert_scales(torch.tensor([7e4]), torch.float16, "x")
    exact, none = convert_scales(torch.tensor([0.5, 2.0]), torch.bfloat16, "x")
    assert exact.dtype == torch.bfloat16
    assert none.changed == 0


def test_fp32_scales_take_the_models_dtype(tmp_path: Path) -> None:
    values = random_values(64, 128, 32, seed=9, dtype=torch.float32)
    write_checkpoint(
        tmp_path,
        named({MLP: awq_gemm(values)}),
        {**AWQ_CONFIG, "version": "gemm"},
        config={"torch_dtype": "bfloat16"},
    )
    with open_checkpoint(tmp_path) as checkpoint:
        assert (checkpoint.layers[0].dtype, checkpoint.layers[0].scale_dtype) == ("bf16", "fp32")
        assert np.isfinite(checkpoint.layers[0].quantized()[2].largest)
