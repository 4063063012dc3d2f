"""Checkpoint layers read onto a GPU, and torch's own int4 packing, which needs one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from format_makers import (
    AWQ_CONFIG,
    GPTQ_CONFIG,
    HQQ_CONFIG,
    MARLIN_CONFIG,
    Values,
    awq_fast,
    awq_gemm,
    awq_gemv,
    compressed,
    compressed_config,
    gptq,
    hqq,
    marlin,
    named,
    random_values,
    torchao_tiles,
    write_checkpoint,
)
from torch import Tensor

from ptxgen.checkpoint.convert import convert_checkpoint
from ptxgen.checkpoint.layer import dequantize_layer
from ptxgen.checkpoint.open import open_checkpoint
from ptxgen.checkpoint.packed import PackedCheckpoint
from ptxgen.checkpoint.torchao import unpack_tiles
from ptxgen.weights.pack import unpack
from ptxgen.weights.quantize import dequantize

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device"),
]

NAME = "model.layers.0.mlp.down_proj"
FORMATS: dict[str, tuple[Callable[[Values], dict[str, Tensor]], dict[str, Any]]] = {
    "AWQ gemm": (awq_gemm, {**AWQ_CONFIG, "version": "gemm"}),
    "AWQ gemv": (awq_gemv, {**AWQ_CONFIG, "version": "gemv"}),
    "AWQ gemv_fast": (awq_fast, {**AWQ_CONFIG, "version": "gemv_fast"}),
    "GPTQ": (gptq, GPTQ_CONFIG),
    "GPTQ act-order": (gptq, {**GPTQ_CONFIG, "desc_act": True}),
    "Marlin": (marlin, MARLIN_CONFIG),
    "compressed-tensors": (compressed, compressed_config()),
    "HQQ": (lambda values: hqq(values, values.scales * 300), HQQ_CONFIG),
}


@pytest.mark.parametrize("form", FORMATS)
def test_a_gpu_reads_what_the_cpu_reads(tmp_path: Path, form: str) -> None:
    make, config = FORMATS[form]
    values = random_values(64, 128, 32, bias=True, act_order=form.endswith("act-order"))
    write_checkpoint(tmp_path, named({NAME: make(values)}), config)
    with open_checkpoint(tmp_path) as checkpoint:
        (layer,) = checkpoint.layers
        on_cpu, on_gpu = layer.load(), layer.load("cuda")
    assert on_gpu.q.is_cuda
    assert torch.equal(on_gpu.q.cpu(), on_cpu.q)
    assert torch.equal(on_gpu.bias.cpu(), on_cpu.bias)
    weight = dequantize_layer(on_cpu, layer.group_size)
    assert torch.equal(dequantize_layer(on_gpu, layer.group_size).cpu(), weight)


@pytest.mark.parametrize("inner", [2, 4, 8])
@pytest.mark.parametrize(("n", "k"), [(64, 128), (24, 384)])
def test_torchs_own_int4_packing(n: int, k: int, inner: int) -> None:
    values = random_values(n, k, 32, dtype=torch.bfloat16)
    q = torch.from_numpy(values.q.T.copy()).to(torch.uint8).cuda()
    packed = torch.ops.aten._convert_weight_to_int4pack(
        ((q[:, ::2] << 4) | q[:, 1::2]).contiguous(), inner
    )
    expected = torchao_tiles(values, values.scales, inner)["_weight_qdata"]
    assert torch.equal(packed.cpu(), expected)
    assert torch.equal(unpack_tiles(packed, n, k), q)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_convert_and_load_on_a_gpu(tmp_path: Path, device: str) -> None:
    values = random_values(128, 256, 32, bias=True)
    write_checkpoint(
        tmp_path / "source", named({NAME: awq_gemm(values)}), {**AWQ_CONFIG, "version": "gemm"}
    )
    convert_checkpoint(tmp_path / "source", tmp_path / "out", device=device)
    with PackedCheckpoint(tmp_path / "out") as checkpoint:
        packed, bias = checkpoint.load(NAME, "cuda", verify=True)
        problem = checkpoint.manifest.layers[NAME].problem
    assert packed.is_cuda
    assert torch.equal(dequantize(unpack(packed, problem), problem).cpu(), values.weight())
    assert torch.equal(bias.cpu(), values.bias)
