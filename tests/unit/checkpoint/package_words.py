"""Layers packed by the formats' own packages. Run as a program, it records them as test data.

    PYTHONPATH=tests/unit/checkpoint:tests/helpers python -m package_words

needs autoawq, gptqmodel, compressed-tensors, hqq, torchao and gguf.
"""

from __future__ import annotations

import base64
import contextlib
import importlib
import json
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from format_makers import Values, golden, random_values
from torch import Tensor, nn

RECORDED = Path(__file__).parents[2] / "data" / "checkpoint-words.json"
DTYPES = {
    str(dtype): dtype
    for dtype in (
        *(torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8),
        *(torch.float16, torch.bfloat16, torch.float32),
    )
}


def values_of(maker: str) -> Values:
    """What each maker packs; the float formats take q and scales of it."""
    if maker.startswith("awq"):  # whose packing takes N and K of whole 32
        return random_values(32, 128, 32, seed=20)
    if maker.endswith("act-order"):
        return random_values(24, 128, 32, seed=21, act_order=True)
    if maker == "compressed-tensors channel":
        return random_values(20, 72, 72, seed=22, dtype=torch.bfloat16)
    return golden()


def float_zeros(values: Values) -> Tensor:
    generator = torch.Generator().manual_seed(23)
    return (torch.rand(values.scales.shape, generator=generator) * 15).to(values.scales.dtype)


def linear_of(values: Values) -> nn.Linear:
    linear = nn.Linear(values.k, values.n, bias=False)
    linear.weight = nn.Parameter(values.weight(), requires_grad=False)
    return linear


@contextlib.contextmanager
def without_init(*names: str) -> Iterator[None]:
    """Packages as empty shells: their modules can be imported, their __init__ does not run."""
    before = dict(sys.modules)
    root = find_spec(names[0])
    assert root is not None
    for name in names:
        shell = ModuleType(name)
        parts = name.split(".")[1:]
        shell.__path__ = [str(Path(place, *parts)) for place in root.submodule_search_locations]
        sys.modules[name] = shell
    try:
        yield
    finally:
        for name in set(sys.modules) - set(before):
            del sys.modules[name]
        sys.modules.update(before)


def awq(kind: str, values: Values) -> dict[str, Tensor]:
    with without_init("awq", "awq.modules", "awq.modules.linear", "awq.utils"):
        if kind == "gemm":
            sys.modules["awq.utils.utils"] = SimpleNamespace(  # type: ignore[assignment]
                get_best_device=lambda: "cpu"
            )
        module = importlib.import_module(f"awq.modules.linear.{kind}")
        name = {"gemm": "GEMM", "gemv": "GEMV", "gemv_fast": "GEMVFast"}[kind]
        scales, zeros = values.scales, torch.from_numpy(values.z).float()
        if kind != "gemm":  # which takes [groups, N], the others [N, groups]
            scales, zeros = scales.t().contiguous(), zeros.t().contiguous()
        layer = getattr(module, f"WQLinear_{name}").from_linear(
            linear_of(values), 4, values.group, scales=scales, zeros=zeros
        )
    return {key: getattr(layer, key) for key in ("qweight", "qzeros", "scales")}


def gptqmodel(format_version: int, values: Values) -> dict[str, Tensor]:
    module = importlib.import_module("gptqmodel.nn_modules.qlinear")
    convert = importlib.import_module("gptqmodel.utils.model")
    layer = importlib.import_module("gptqmodel.nn_modules.qlinear.torch").TorchLinear(
        bits=4,
        group_size=values.group,
        sym=False,
        desc_act=values.g_idx is not None,
        in_features=values.k,
        out_features=values.n,
        bias=False,
        pack_dtype=torch.int32,
        register_buffers=True,
    )
    assert isinstance(layer, module.PackableQuantLinear)
    layer.pack_original(
        linear_of(values),
        values.scales.t().contiguous(),
        torch.from_numpy(values.z).float().t().contiguous(),
        torch.from_numpy(values.group_of()).to(torch.int32),
    )
    if format_version == 1:
        convert.convert_gptq_v2_to_v1_format_module(
            layer, SimpleNamespace(bits=4, pack_dtype=torch.int32)
        )
    return {key: getattr(layer, key) for key in ("qweight", "qzeros", "scales", "g_idx")}


def compressed_tensors(strategy: str, values: Values) -> dict[str, Tensor]:
    package = importlib.import_module("compressed_tensors.compressors.pack_quantized")
    quantization = importlib.import_module("compressed_tensors.quantization")
    scheme = quantization.QuantizationScheme(
        targets=["Linear"],
        weights=quantization.QuantizationArgs(
            num_bits=4,
            type="int",
            symmetric=False,
            strategy=strategy,
            group_size=values.group if strategy == "group" else None,
        ),
    )
    dtype = values.scales.dtype
    state = {
        "weight": values.weight().to(torch.float32),
        "weight_scale": values.scales.t().contiguous().float(),
        "weight_zero_point": torch.from_numpy(values.z.T - 8).to(torch.int8),
    }
    made = package.PackedQuantizationCompressor.compress(state, scheme)
    return {**made, "weight_scale": made["weight_scale"].to(dtype)}


def hqq(values: Values) -> dict[str, Tensor]:
    package = importlib.import_module("hqq.core.quantize")
    utils = importlib.import_module("hqq.core.utils")
    rows = torch.from_numpy(values.q.T.reshape(-1, values.group).copy()).to(torch.uint8)
    meta = {
        "nbits": 4,
        "group_size": values.group,
        "shape": torch.Size((values.n, values.k)),
        "axis": 1,
        "packing": package.Quantizer.bit_to_packing[4],
        "view_as_float": False,
        "compute_dtype": torch.float16,
        "scale": values.scales.t().reshape(-1, 1).contiguous(),
        "zero": float_zeros(values).t().reshape(-1, 1).contiguous(),
    }
    encoded = {key: utils.encode_safetensor_type(value) for key, value in meta.items()}
    return {"W_q": package.Quantizer.pack["4bit_u8"](rows), **encoded}


def torchao(values: Values) -> tuple[dict[str, Tensor], dict[str, str]]:
    tensors = importlib.import_module("torchao.quantization")
    support = importlib.import_module("torchao.prototype.safetensors.safetensors_support")
    signed = torch.from_numpy(values.q.T.copy() - 8).to(torch.int8)
    weight = tensors.Int4Tensor(
        # mslk's pack_int4
        qdata=(signed[:, 1::2] << 4) | (signed[:, ::2] & 15),
        scale=values.scales.clone(),
        zero_point=float_zeros(values),
        block_size=[1, values.group],
        shape=torch.Size((values.n, values.k)),
    )
    made, metadata = support.flatten_tensor_state_dict({"layer.weight": weight})
    return {key.removeprefix("layer."): tensor for key, tensor in made.items()}, metadata


def gguf(kind: str, values: Values) -> dict[str, Tensor]:
    package = importlib.import_module("gguf")
    quants = importlib.import_module("gguf.quants")
    weight = values.weight().numpy().astype(np.float32)
    data = quants.quantize(weight, package.GGMLQuantizationType[kind])
    return {"data": torch.from_numpy(np.ascontiguousarray(data))}


def reference(maker: str, tensors: dict[str, Tensor], values: Values) -> Tensor:
    """The FP32 weight [N, K] by the package's own formula, where it has one without a GPU."""
    if maker.startswith("compressed-tensors"):
        package = importlib.import_module("compressed_tensors.compressors.pack_quantized")
        quantization = importlib.import_module("compressed_tensors.quantization")
        strategy = "channel" if maker.endswith("channel") else "group"
        scheme = quantization.QuantizationScheme(
            targets=["Linear"],
            weights=quantization.QuantizationArgs(
                num_bits=4,
                symmetric=False,
                strategy=strategy,
                group_size=values.group if strategy == "group" else None,
            ),
        )
        state = {**tensors, "weight_scale": tensors["weight_scale"].float()}
        weight: Tensor = package.PackedQuantizationCompressor.decompress(state, scheme)["weight"]
        return weight.float()
    if maker == "hqq":
        package = importlib.import_module("hqq.core.quantize")
        meta = {
            "packing": "4bit_u8",
            "view_as_float": False,
            "compute_dtype": torch.float32,
            "nbits": 4,
            "zero": tensors["zero"].float(),
            "scale": tensors["scale"].float(),
            "shape": torch.Size((values.n, values.k)),
        }
        result: Tensor = package.Quantizer.dequantize(tensors["W_q"], meta)
        return result
    if maker.startswith("awq gemm"):
        with without_init("awq", "awq.utils"):
            package = importlib.import_module("awq.utils.packing_utils")
            dequantized: Tensor = package.dequantize_gemm(
                tensors["qweight"], tensors["qzeros"], tensors["scales"].float(), 4, values.group
            )
        return dequantized.t().contiguous()
    if maker.startswith("gguf"):
        package = importlib.import_module("gguf")
        quants = importlib.import_module("gguf.quants")
        kind = package.GGMLQuantizationType[maker.split()[1]]
        return torch.from_numpy(quants.dequantize(tensors["data"].numpy(), kind))
    raise KeyError(maker)


MAKERS: dict[str, tuple[str, Callable[[Values], dict[str, Tensor]]]] = {
    "awq gemm": ("autoawq", lambda values: awq("gemm", values)),
    "awq gemv": ("autoawq", lambda values: awq("gemv", values)),
    "awq gemv_fast": ("autoawq", lambda values: awq("gemv_fast", values)),
    "gptq v1": ("gptqmodel", lambda values: gptqmodel(1, values)),
    "gptq v2": ("gptqmodel", lambda values: gptqmodel(2, values)),
    "gptq v2 act-order": ("gptqmodel", lambda values: gptqmodel(2, values)),
    "compressed-tensors group": (
        "compressed-tensors",
        lambda values: compressed_tensors("group", values),
    ),
    "compressed-tensors channel": (
        "compressed-tensors",
        lambda values: compressed_tensors("channel", values),
    ),
    "hqq": ("hqq", hqq),
    "torchao plain": ("torchao", lambda values: torchao(values)[0]),
    "gguf Q4_0": ("gguf", lambda values: gguf("Q4_0", values)),
    "gguf Q4_1": ("gguf", lambda values: gguf("Q4_1", values)),
}


def encoded(tensor: Tensor) -> dict[str, Any]:
    data = tensor.detach().contiguous()
    raw = data.flatten().view(torch.uint8).numpy().tobytes() if data.numel() else b""
    return {
        "dtype": str(tensor.dtype),
        "shape": list(tensor.shape),
        "bytes": base64.b64encode(raw).decode(),
    }


def decoded(entry: dict[str, Any]) -> Tensor:
    raw = torch.frombuffer(bytearray(base64.b64decode(entry["bytes"])), dtype=torch.uint8)
    return raw.view(DTYPES[entry["dtype"]]).view(entry["shape"])


def recorded(maker: str) -> dict[str, Tensor]:
    """What the maker's package made when it was recorded."""
    document = json.loads(RECORDED.read_text())[maker]
    return {name: decoded(entry) for name, entry in document["tensors"].items()}


def main() -> None:
    document = {}
    for maker, (package, make) in MAKERS.items():
        tensors = make(values_of(maker))
        document[maker] = {
            "package": f"{package} {version(package)}",
            "tensors": {name: encoded(tensor) for name, tensor in sorted(tensors.items())},
        }
    RECORDED.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
