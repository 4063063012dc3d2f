"""Layers that the formats' own packages packed: recorded words, and the packages themselves.

The packages are no dependencies; where one is missing its own comparison is skipped, and the words
it made when they were recorded are read all the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from format_makers import (
    AWQ_CONFIG,
    GPTQ_CONFIG,
    HQQ_CONFIG,
    TORCHAO_CONFIG,
    Values,
    awq_fast,
    awq_gemm,
    awq_gemv,
    compressed,
    compressed_config,
    gptq,
    hqq,
    named,
    torchao_metadata,
    torchao_plain,
    write_checkpoint,
)
from package_words import MAKERS, float_zeros, recorded, reference, values_of
from torch import Tensor

from ptxgen.checkpoint import gguf_file
from ptxgen.checkpoint.gguf_file import GgufTensor
from ptxgen.checkpoint.layer import LayerWeights, dequantize_layer
from ptxgen.checkpoint.open import open_checkpoint

IMPORTED_AS = {"autoawq": "awq", "compressed-tensors": "compressed_tensors"}
NEEDED_BESIDE = {"gptqmodel": ("transformers", "pcre"), "hqq": ("termcolor",)}
WITH_FORMULA = [
    name for name in MAKERS if name.startswith(("awq gemm", "compressed", "hqq", "gguf"))
]
CONFIGS: dict[str, dict[str, Any]] = {
    "awq gemm": {**AWQ_CONFIG, "version": "gemm"},
    "awq gemv": {**AWQ_CONFIG, "version": "gemv"},
    "awq gemv_fast": {**AWQ_CONFIG, "version": "gemv_fast"},
    "gptq v1": GPTQ_CONFIG,
    "gptq v2": {**GPTQ_CONFIG, "checkpoint_format": "gptq_v2"},
    "gptq v2 act-order": {**GPTQ_CONFIG, "checkpoint_format": "gptq_v2", "desc_act": True},
    "compressed-tensors group": compressed_config(),
    "compressed-tensors channel": compressed_config(strategy="channel", group_size=None),
    "hqq": HQQ_CONFIG,
    "torchao plain": TORCHAO_CONFIG,
}


def needs_package(maker: str) -> None:
    package = MAKERS[maker][0]
    wanted = (IMPORTED_AS.get(package, package), *NEEDED_BESIDE.get(package, ()))
    for name in wanted:
        if find_spec(name) is None:
            pytest.skip(f"compares with {package}, and {name} is not installed")


def imported(folder: Path, maker: str, tensors: dict[str, Tensor]) -> tuple[LayerWeights, int]:
    if maker.startswith("gguf"):
        return imported_gguf(maker, tensors["data"])
    metadata = (
        torchao_metadata({"layer": values_of(maker)}, "Int4Tensor")
        if maker.startswith("torchao")
        else None
    )
    write_checkpoint(folder, named({"layer": tensors}), CONFIGS[maker], metadata=metadata)
    with open_checkpoint(folder) as checkpoint:
        assert not checkpoint.refused, checkpoint.refused[0].reason
        (layer,) = checkpoint.layers
        return layer.load(), layer.group_size


def imported_gguf(maker: str, data: Tensor) -> tuple[LayerWeights, int]:
    values = values_of(maker)
    kind = maker.split()[1]
    tensor = GgufTensor(
        "blk.0.ffn_down.weight", kind, (values.n, values.k), data.numel(), data.numpy()
    )
    file = gguf_file.GgufFile.__new__(gguf_file.GgufFile)  # the file itself has its own tests
    file.tensors, file.architecture, file.path = {tensor.name: tensor}, "", Path("none.gguf")
    layer = gguf_file.describe(file, "blk.0.ffn_down")
    return layer.load(), layer.group_size


@pytest.mark.parametrize("maker", MAKERS)
def test_recorded_words_give_the_values_that_were_packed(tmp_path: Path, maker: str) -> None:
    values = values_of(maker)
    weights, group = imported(tmp_path, maker, recorded(maker))
    weight = dequantize_layer(weights, group)
    rows = torch.from_numpy(values.group_of())
    if maker == "hqq":
        expected = (torch.from_numpy(values.q).double() - float_zeros(values).double()[rows]) * (
            values.scales.double()[rows]
        )
        assert torch.equal(weight, expected.float().t())
    elif maker == "torchao plain":
        assert torch.equal(weights.q, torch.from_numpy(values.q).to(torch.uint8).t())
        assert torch.equal(weights.scales, values.scales.t())
        offsets = float_zeros(values).float() - 8 * values.scales.float()
        assert torch.equal(weights.offsets, offsets.t())
    elif maker.startswith("gguf"):  # which quantized anew, to its own scales
        step = values.scales.float()[rows].t()
        error = (weight - values.weight()).abs()
        assert (error <= (0.6 if maker.endswith("Q4_1") else 2.2) * step).all()
    else:
        assert torch.equal(weight, values.weight())


SLOW: dict[str, Callable[[Values], dict[str, Tensor]]] = {
    "awq gemm": awq_gemm,
    "awq gemv": awq_gemv,
    "awq gemv_fast": awq_fast,
    "gptq v1": gptq,
    "gptq v2": lambda values: gptq(values, 2),
    "gptq v2 act-order": lambda values: gptq(values, 2),
    "compressed-tensors group": compressed,
    "compressed-tensors channel": compressed,
    "hqq": lambda values: hqq(values, float_zeros(values)),
    "torchao plain": lambda values: torchao_plain(values, float_zeros(values)),
}


@pytest.mark.parametrize("maker", SLOW)
def test_words_made_from_the_descriptions_are_the_recorded_ones(maker: str) -> None:
    """So that what other tests make of them is what files hold: an exact round trip."""
    before = recorded(maker)
    made = SLOW[maker](values_of(maker))
    assert before.keys() <= made.keys()
    for name, tensor in before.items():
        assert torch.equal(made[name], tensor), name


@pytest.mark.parametrize("maker", MAKERS)
def test_the_package_makes_the_recorded_words(maker: str) -> None:
    needs_package(maker)
    made = MAKERS[maker][1](values_of(maker))
    before = recorded(maker)
    assert made.keys() == before.keys()
    for name, tensor in made.items():
        assert torch.equal(tensor, before[name]), name


@pytest.mark.parametrize("maker", WITH_FORMULA)
def test_the_package_dequantizes_to_the_same_bits(tmp_path: Path, maker: str) -> None:
    needs_package(maker)
    tensors = recorded(maker)
    weights, group = imported(tmp_path, maker, tensors)
    expected = reference(maker, tensors, values_of(maker))
    assert torch.equal(dequantize_layer(weights, group), expected)


def test_torchao_metadata_as_the_package_writes_it() -> None:
    needs_package("torchao plain")
    from package_words import torchao

    values = values_of("torchao plain")
    metadata = torchao(values)[1]
    document = json.loads(metadata["layer.weight"])
    assert document["_type"] == "Int4Tensor"
    ours = json.loads(torchao_metadata({"layer": values}, "Int4Tensor")["layer.weight"])
    assert ours["_data"].items() <= document["_data"].items()


def gguf_writer(path: Path, tensors: dict[str, tuple[str, np.ndarray]]) -> Path:
    gguf = pytest.importorskip("gguf", reason="GGUF files need the package gguf")
    from gguf import quants

    writer = gguf.GGUFWriter(str(path), "llama")
    for name, (kind, values) in tensors.items():
        if kind == "F32":
            writer.add_tensor(name, values.astype(np.float32))
            continue
        of_type = gguf.GGMLQuantizationType[kind]
        data = quants.quantize(values.astype(np.float32), of_type)
        writer.add_tensor(name, data, raw_dtype=of_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_gguf_file(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    weights = {
        "token_embd.weight": ("Q4_0", random.normal(size=(32, 64))),
        "blk.0.attn_q.weight": ("Q4_0", random.normal(size=(64, 64))),
        "blk.0.attn_q.bias": ("F32", random.normal(size=64)),
        "blk.0.ffn_down.weight": ("Q4_1", random.normal(size=(16, 96))),
        "blk.0.ffn_up.weight": ("Q8_0", random.normal(size=(96, 64))),
        "output_norm.weight": ("F32", random.normal(size=64)),
        "output.weight": ("F32", random.normal(size=(32, 64))),
    }
    path = gguf_writer(tmp_path / "tiny.gguf", weights)
    from gguf import GGMLQuantizationType, quants

    with open_checkpoint(tmp_path) as checkpoint:
        assert [(layer.name, layer.zero, layer.n, layer.k) for layer in checkpoint.layers] == [
            ("blk.0.attn_q", "sym", 64, 64),
            ("blk.0.ffn_down", "float", 16, 96),
        ]
        assert [(refusal.name, "Q8_0" in refusal.reason) for refusal in checkpoint.refused] == [
            ("blk.0.ffn_up", True)
        ]
        assert {other.name for other in checkpoint.others} == {
            "token_embd.weight",
            "output_norm.weight",
            "output.weight",
        }
        for layer in checkpoint.layers:
            kind, values = weights[f"{layer.name}.weight"]
            of_type = GGMLQuantizationType[kind]
            data = quants.quantize(values.astype(np.float32), of_type)
            expected = torch.from_numpy(quants.dequantize(data, of_type))
            assert torch.equal(dequantize_layer(layer.load(), 32), expected)
        first = checkpoint.layers[0]
        bias = torch.from_numpy(weights["blk.0.attn_q.bias"][1].astype(np.float32))
        assert torch.equal(first.load().bias, bias)
        assert "order for rotary positions" in first.notes[0]
        embedding = checkpoint.read("token_embd.weight")
        data = quants.quantize(
            weights["token_embd.weight"][1].astype(np.float32), GGMLQuantizationType.Q4_0
        )
        expected = quants.dequantize(data, GGMLQuantizationType.Q4_0)
        assert torch.equal(embedding, torch.from_numpy(expected))
    assert path.exists()
