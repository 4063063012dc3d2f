"""Every format against its description: golden words, exact values, FP32 weights bit by bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from format_makers import (
    AWQ_CONFIG,
    GPTQ_CONFIG,
    HQQ_CONFIG,
    MARLIN_CONFIG,
    TORCHAO_CONFIG,
    Values,
    awq_fast,
    awq_gemm,
    awq_gemv,
    compressed,
    compressed_config,
    golden,
    gptq,
    hqq,
    marlin,
    named,
    random_values,
    torchao_metadata,
    torchao_plain,
    torchao_tiles,
    with_group,
    write_checkpoint,
)
from torch import Tensor

from ptxgen.checkpoint.layer import LayerWeights, LinearLayer, dequantize_layer
from ptxgen.checkpoint.open import open_checkpoint
from ptxgen.errors import CheckpointError, UnsupportedFormatError
from ptxgen.weights.pack import pack, unpack
from ptxgen.weights.quantize import dequantize

NAME = "model.layers.0.mlp.down_proj"

Made = tuple[dict[str, Tensor], dict[str, Any]]
Maker = Callable[[Values], Made]


def gptq_made(version: int, sym: bool = False) -> Maker:
    layout = "gptq" if version == 1 else "gptq_v2"
    config = {**GPTQ_CONFIG, "sym": sym, "checkpoint_format": layout}
    return lambda values: (
        gptq(values, version),
        {**with_group(config, values.group), "desc_act": values.g_idx is not None},
    )


def compressed_made(symmetric: bool, zeros: str, strategy: str = "group") -> Maker:
    return lambda values: (
        compressed(values, zeros),
        compressed_config(
            symmetric=symmetric,
            strategy=strategy,
            group_size=values.group if strategy == "group" else None,
            actorder="group" if values.g_idx is not None else None,
        ),
    )


def awq_made(make: Callable[[Values], dict[str, Tensor]], version: str) -> Maker:
    return lambda values: (
        make(values),
        {**with_group(AWQ_CONFIG, values.group), "version": version},
    )


INTEGER: dict[str, Maker] = {
    "AWQ gemm": awq_made(awq_gemm, "gemm"),
    "AWQ gemv": awq_made(awq_gemv, "gemv"),
    "AWQ gemv_fast": awq_made(awq_fast, "gemv_fast"),
    "GPTQ v1": gptq_made(1),
    "GPTQ v2": gptq_made(2),
    "compressed-tensors": compressed_made(False, "packed"),
    "compressed-tensors, plain zeros": compressed_made(False, "plain"),
}
SYMMETRIC: dict[str, Maker] = {
    "GPTQ v1": gptq_made(1, sym=True),
    "GPTQ v2": gptq_made(2, sym=True),
    "compressed-tensors": compressed_made(True, ""),
    "GPTQ Marlin": lambda values: (marlin(values), with_group(MARLIN_CONFIG, values.group)),
}
TAILED = {name: INTEGER[name] for name in INTEGER if not name.startswith("AWQ")}


def imported(folder: Path, made: Made, **settings: Any) -> tuple[LinearLayer, LayerWeights]:
    tensors, config = made
    write_checkpoint(folder, named({NAME: tensors}), config)
    with open_checkpoint(folder, **settings) as checkpoint:
        assert not checkpoint.refused, checkpoint.refused[0].reason
        (layer,) = checkpoint.layers
        return layer, layer.load()


def check(folder: Path, values: Values, make: Maker, sym: bool = False) -> LinearLayer:
    layer, weights = imported(folder, make(values))
    assert (layer.name, layer.n, layer.k, layer.group_size) == (
        NAME,
        values.n,
        values.k,
        values.group,
    )
    assert layer.zero == ("sym" if sym else "int")
    assert layer.bias is (values.bias is not None)
    order = torch.arange(values.k) if layer.permutation is None else layer.permutation
    assert torch.equal(weights.q, torch.from_numpy(values.q).to(torch.uint8).t()[:, order])
    assert torch.equal(weights.scales, values.scales.t())
    if sym:
        assert weights.zeros is None
    else:
        assert torch.equal(weights.zeros, torch.from_numpy(values.z).to(torch.uint8).t())
    if values.bias is not None:
        assert torch.equal(weights.bias, values.bias)
    weight = dequantize_layer(weights, layer.group_size)
    assert torch.equal(weight, values.weight(sym))  # bit by bit: FP32 holds it
    return layer


def unsigned(tensor: Tensor) -> list[int]:
    bits = 8 * tensor.element_size()
    return [int(value) % (1 << bits) for value in tensor.flatten()]


def test_golden_words_of_awq() -> None:
    gemm, gemv, fast = awq_gemm(golden()), awq_gemv(golden()), awq_fast(golden())
    assert unsigned(gemm["qweight"][0]) == [0x39F5E4A0, 0xB17D6C28]
    assert unsigned(gemm["qweight"][63]) == [0x9F5B4A06, 0x17D3C28E]
    assert unsigned(gemm["qzeros"]) == [0x1357ACE0, 0x9BDF2468, 0x2468BDF1, 0xACE03579]
    assert unsigned(gemv["qweight"][0, :2]) == [0x62FC9630, 0xFC852FC9]
    assert unsigned(fast["qweight"][0, [0, 1, 8, 16]]) == [0xB290, 0xE5C3, 0x06D4, 0x07E5]


def test_golden_words_of_gptq() -> None:
    first, second = gptq(golden(), 1), gptq(golden(), 2)
    assert unsigned(first["qweight"][0, :3]) == [0x62FC9630, 0xB741EB85, 0x0C9630DA]
    assert unsigned(first["qweight"][7, 15:]) == [0x1DA741EB]
    assert unsigned(second["qzeros"]) == [0x1A3C5E70, 0x92B4D6F8, 0x2B4D6F81, 0xA3C5E709]
    assert unsigned(first["qzeros"]) == [0x092B4D5F, 0x81A3C5E7, 0x1A3C5E70, 0x92B4D5F8]


def test_golden_words_of_compressed_tensors_marlin_and_hqq() -> None:
    packed = compressed(golden())
    assert unsigned(packed["weight_packed"][0, :2]) == [0x62FC9630, 0xFC852FC9]
    assert unsigned(packed["weight_packed"][15, 7:]) == [0x1DA741EB]
    assert unsigned(packed["weight_zero_point"]) == [
        0x1A3C5E70,
        0x2B4D6F81,
        0x92B4D6F8,
        0xA3C5E709,
    ]
    k, n = np.indices((16, 64))
    tiles = Values(
        (3 * k + 5 * n + n // 16 + k // 7) % 16, np.zeros((1, 64)), torch.ones(1, 64), 16
    )
    words = unsigned(marlin(tiles)["B"])
    assert [words[at] for at in (0, 1, 5, 127)] == [0x4BC31890, 0x5CD429A1, 0xB23A8F07, 0xD45CA028]
    data = hqq(golden(), torch.zeros(2, 16))["W_q"]
    assert unsigned(data[0, :4]) == [0x08, 0x3B, 0x6E, 0x91]
    assert unsigned(data[15, 31:]) == [0x91]


@pytest.mark.parametrize("make", INTEGER.values(), ids=INTEGER)
def test_golden_matrix_with_integer_zero_points(tmp_path: Path, make: Maker) -> None:
    values = golden()
    assert (values.z == 0).any()
    assert (values.z == 15).any()
    check(tmp_path, values, make)


@pytest.mark.parametrize("make", INTEGER.values(), ids=INTEGER)
def test_random_with_bias_and_bf16_scales(tmp_path: Path, make: Maker) -> None:
    layer = check(tmp_path, random_values(72, 192, 64, dtype=torch.bfloat16, bias=True), make)
    assert layer.dtype == layer.scale_dtype == "bf16"


@pytest.mark.parametrize("make", INTEGER.values(), ids=INTEGER)
def test_square_layers(tmp_path: Path, make: Maker) -> None:
    check(tmp_path, random_values(128, 128, 64, seed=1), make)


@pytest.mark.parametrize("make", INTEGER.values(), ids=INTEGER)
def test_one_group_of_all_inputs(tmp_path: Path, make: Maker) -> None:
    def whole(values: Values) -> Made:
        tensors, config = make(values)
        if "group_size" in config:
            return tensors, with_group(config, -1)
        return tensors, compressed_config(strategy="channel", group_size=None)

    layer = check(tmp_path, random_values(40, 192, 192, seed=2), whole)
    assert layer.problem().whole_k


@pytest.mark.parametrize("make", SYMMETRIC.values(), ids=SYMMETRIC)
@pytest.mark.parametrize(("n", "k", "group"), [(64, 64, 32), (128, 128, 128), (192, 256, 128)])
def test_symmetric(tmp_path: Path, make: Maker, n: int, k: int, group: int) -> None:
    layer = check(tmp_path, random_values(n, k, group, seed=3, bias=True), make, sym=True)
    assert layer.problem().zero == "sym"


@pytest.mark.parametrize("make", TAILED.values(), ids=TAILED)
def test_tails_of_n_and_k(tmp_path: Path, make: Maker) -> None:
    """N and K that fill no word, and a last group that is short."""
    layer = check(tmp_path, random_values(21, 77, 32, seed=4), make)
    assert layer.num_groups == 3
    with pytest.raises(UnsupportedFormatError, match="short last group"):
        layer.problem()


@pytest.mark.parametrize("make", TAILED.values(), ids=TAILED)
def test_act_order(tmp_path: Path, make: Maker) -> None:
    values = random_values(24, 128, 32, seed=5, act_order=True)
    layer = check(tmp_path, values, make)
    assert layer.permutation is not None
    assert (np.diff(values.g_idx[layer.permutation]) >= 0).all()
    with pytest.raises(UnsupportedFormatError, match="act-order"):
        layer.problem()


@pytest.mark.parametrize("per_word", [2, 4, 8, 16])
@pytest.mark.parametrize("version", [1, 2])
def test_gptq_words_of_other_widths(tmp_path: Path, version: int, per_word: int) -> None:
    make = gptq_made(version)
    check(tmp_path, golden(), lambda values: (gptq(values, version, per_word), make(values)[1]))


def float_zeros(values: Values, seed: int = 7) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.rand(values.scales.shape, generator=generator) * 15).to(values.scales.dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("viewed", [False, True])
@pytest.mark.parametrize(("n", "k"), [(16, 64), (64, 64), (20, 96)])
def test_hqq(tmp_path: Path, n: int, k: int, viewed: bool, dtype: torch.dtype) -> None:
    values = random_values(n, k, 32, seed=8, dtype=dtype, bias=True)
    zeros = float_zeros(values)
    zeros[0, 0], zeros[-1, -1] = 0, 15
    layer, weights = imported(tmp_path, (hqq(values, zeros, viewed), HQQ_CONFIG))
    assert torch.equal(weights.q, torch.from_numpy(values.q).to(torch.uint8).t())
    rows = torch.from_numpy(values.group_of())
    exact = torch.from_numpy(values.q).double() - zeros.double()[rows]
    exact *= values.scales.double()[rows]
    assert torch.equal(dequantize_layer(weights, 32), exact.float().t())
    assert (layer.zero, layer.bias) == ("float", True)
    with pytest.raises(UnsupportedFormatError, match="floating-point zero points"):
        layer.problem()


@pytest.mark.parametrize("inner", [2, 4, 8])
def test_torchao_tiles(tmp_path: Path, inner: int) -> None:
    values = random_values(20, 192, 32, seed=9, dtype=torch.bfloat16)
    zeros = float_zeros(values) * 0.01
    made = named({NAME: torchao_tiles(values, zeros, inner)})
    check_torchao(tmp_path, made, values, zeros, "Int4TilePackedTo4dTensor")


@pytest.mark.parametrize(("n", "k"), [(16, 64), (64, 64), (24, 96)])
def test_torchao_plain(tmp_path: Path, n: int, k: int) -> None:
    values = random_values(n, k, 32, seed=10, dtype=torch.bfloat16)
    zeros = float_zeros(values) * 0.01
    check_torchao(
        tmp_path, named({NAME: torchao_plain(values, zeros)}), values, zeros, "Int4Tensor"
    )


def check_torchao(
    folder: Path, tensors: dict[str, Tensor], values: Values, zeros: Tensor, kind: str
) -> None:
    metadata = torchao_metadata({NAME: values}, kind)
    write_checkpoint(folder, tensors, TORCHAO_CONFIG, metadata=metadata)
    with open_checkpoint(folder) as checkpoint:
        assert not checkpoint.refused, checkpoint.refused[0].reason
        (layer,) = checkpoint.layers
        weights = layer.load()
    assert torch.equal(weights.q, torch.from_numpy(values.q).to(torch.uint8).t())
    rows = torch.from_numpy(values.group_of())
    exact = (torch.from_numpy(values.q).double() - 8) * values.scales.double()[rows]
    exact += zeros.double()[rows]
    result = dequantize_layer(weights, 32)
    # offset = zero - 8 s is rounded to FP32 once, the sum a second time
    bound = (exact.abs() + 16 * values.scales.double()[rows]).t() * 2.0**-24
    assert ((result.double() - exact.t()).abs() <= bound).all()
    assert layer.zero == "float"


def test_gemv_fast_differs_from_its_stored_offsets_by_their_rounding_alone(tmp_path: Path) -> None:
    values = random_values(16, 128, 64, seed=11)
    tensors = awq_fast(values)
    layer, weights = imported(tmp_path, INTEGER["AWQ gemv_fast"](values))
    rows = torch.from_numpy(values.group_of())
    stored = tensors["qzeros"][: values.groups].float()[rows]
    reference = torch.from_numpy(values.q).float() * values.scales.float()[rows] + stored
    difference = (dequantize_layer(weights, layer.group_size) - reference.t()).abs()
    assert (difference <= stored.abs().t() * 2.0**-11 + 2.0**-24).all()


def test_gemv_fast_with_offsets_of_no_integer_is_refused(tmp_path: Path) -> None:
    tensors, config = INTEGER["AWQ gemv_fast"](random_values(16, 128, 64))
    tensors["qzeros"][0, 0] += 0.3 * tensors["scales"][0, 0]
    with pytest.raises(UnsupportedFormatError, match="1 of 32 stored offsets"):
        imported(tmp_path, (tensors, config))


@pytest.mark.parametrize("version", [1, 2])
def test_symmetric_gptq_ignores_meaningless_zero_points(tmp_path: Path, version: int) -> None:
    values = random_values(16, 64, 32)
    tensors, config = gptq_made(version, sym=True)(values)
    tensors["qzeros"] = torch.zeros_like(tensors["qzeros"])
    _, weights = imported(tmp_path, (tensors, config))
    assert torch.equal(dequantize_layer(weights, 32), values.weight(sym=True))


def nibble_wise(values: Values) -> dict[str, Tensor]:
    """Version 1 as a tool writes it that takes one from every nibble alone (0 becomes 15)."""
    return {**gptq(values, 2), "qzeros": gptq(replace(values, z=(values.z - 1) % 16), 2)["qzeros"]}


def test_gptq_v1_is_read_by_word_with_a_note(tmp_path: Path) -> None:
    _, weights = imported(tmp_path, gptq_made(1)(golden()))
    assert any("gptq_zeros='nibble'" in note for note in weights.notes)
    torch.testing.assert_close(dequantize_layer(weights, 32), golden().weight(), rtol=0, atol=0)


def test_gptq_v1_by_nibble_reads_sixteen_as_fifteen_of_lower_values(tmp_path: Path) -> None:
    values = golden()
    q = np.where(values.z[values.group_of()] == 0, np.maximum(values.q, 1), values.q)
    values = replace(values, q=q)
    config = gptq_made(1)(values)[1]
    _, weights = imported(tmp_path, (nibble_wise(values), config), gptq_zeros="nibble")
    sixteens = replace(values, z=np.where(values.z == 0, 16, values.z))
    assert torch.equal(dequantize_layer(weights, 32), sixteens.weight())
    assert int(weights.zeros.max()) == 15


def test_gptq_v1_zero_point_sixteen_of_a_group_with_zeros_is_refused(tmp_path: Path) -> None:
    values = golden()
    config = gptq_made(1)(values)[1]
    with pytest.raises(UnsupportedFormatError, match="zero point of 16 hold"):
        imported(tmp_path, (nibble_wise(values), config), gptq_zeros="nibble")


def test_gptq_v1_words_that_may_be_destroyed_are_refused_unless_a_reading_is_named(
    tmp_path: Path,
) -> None:
    tensors, config = gptq_made(1)(golden())
    tensors["qzeros"][0, 0] = -1
    with pytest.raises(CheckpointError, match="1 words of zero points have all bits set"):
        imported(tmp_path / "auto", (tensors, config))
    _, weights = imported(tmp_path / "word", (tensors, config), gptq_zeros="word")
    assert weights.zeros[:8, 0].tolist() == [0, 1, 1, 1, 1, 1, 1, 1]


@pytest.mark.parametrize("make", INTEGER.values(), ids=INTEGER)
def test_imported_weights_pack_and_unpack_exactly(tmp_path: Path, make: Maker) -> None:
    values = random_values(64, 128, 64, seed=12)
    tensors, config = make(values)
    write_checkpoint(tmp_path, named({NAME: tensors}), config)
    with open_checkpoint(tmp_path) as checkpoint:
        weight, problem, rounding = checkpoint.layers[0].quantized()
    assert rounding.changed == 0
    again = unpack(pack(weight, problem), problem)
    assert torch.equal(dequantize(again, problem), values.weight())
