"""GGUF: the linear layers of types Q4_0 and Q4_1, through the optional package `gguf`."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ptxgen.checkpoint.layer import LayerWeights, LinearLayer
from ptxgen.errors import CheckpointError, ToolError, UnsupportedFormatError

BLOCK = 32
Q4_0_BYTES, Q4_1_BYTES = 18, 20
EMBEDDINGS = ("token_embd", "position_embd", "token_types", "per_layer_token_embd")
"""Matrices that are looked up, not multiplied."""
ROTATED = ("llama", "llama4", "mistral3", "minicpm", "granite", "arcee", "smollm3")
"""Architectures whose converter reorders the rows of attn_q and attn_k for llama.cpp's rotation."""


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """A tensor of a GGUF file, values not read.

    Attributes:
        name: such as blk.0.attn_q.weight.
        kind: ggml's type, such as Q4_0 or F32.
        shape: sizes, outermost first.
        num_bytes: as stored.
        data: mapped bytes or values.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    num_bytes: int
    data: Any


class GgufFile:
    """The tensors of a GGUF file, mapped.

    Attributes:
        path: the file.
        architecture: of the model, such as llama; empty where it is not named.
    """

    def __init__(self, path: Path) -> None:
        """Raises ToolError without the package, CheckpointError where the file is not whole."""
        self.path = path
        package = _package()
        try:
            reader = package.GGUFReader(str(path), "r")
            field = reader.get_field("general.architecture")
            self.architecture = str(field.contents()) if field is not None else ""
            self.tensors = {tensor.name: _tensor(tensor) for tensor in reader.tensors}
        except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
            raise CheckpointError(
                f"{path} is no whole GGUF file ({error}); copy or download it again."
            ) from error

    def linear_names(self) -> Iterator[str]:
        """Names of the matrices that a linear layer multiplies by, of any type, without .weight."""
        for name, tensor in self.tensors.items():
            layer = name.removesuffix(".weight")
            if len(tensor.shape) >= 2 and layer != name and not layer.startswith(EMBEDDINGS):
                yield layer

    def read(self, name: str) -> Tensor:
        """A tensor as floating point: its own 16 or 32 bits, quantized types dequantized to FP32.

        Raises:
            CheckpointError: no such tensor, or a type that the package cannot dequantize.
        """
        tensor = self.tensors.get(name)
        if tensor is None:
            raise CheckpointError(f"{self.path} holds no tensor {name!r}.")
        raw = np.array(tensor.data)  # a copy: the mapping is read-only
        if tensor.kind in ("F32", "F16"):
            return torch.from_numpy(raw).view(tensor.shape)
        if tensor.kind == "BF16":
            return torch.from_numpy(raw.view(np.uint8)).view(torch.bfloat16).view(tensor.shape)
        package = _package()
        try:
            kind = package.GGMLQuantizationType[tensor.kind]
            values = importlib.import_module("gguf.quants").dequantize(raw, kind)
        except (KeyError, NotImplementedError, ValueError) as error:
            raise CheckpointError(
                f"tensor {name!r} of {self.path} has the type {tensor.kind}, which cannot be "
                f"dequantized ({error})."
            ) from error
        return torch.from_numpy(values.astype(np.float32)).view(tensor.shape)


def describe(file: GgufFile, name: str) -> LinearLayer:
    """One layer of a GGUF file.

    Raises:
        UnsupportedFormatError: a type other than Q4_0 and Q4_1, or stacked experts.
    """
    tensor = file.tensors[f"{name}.weight"]
    if tensor.kind not in ("Q4_0", "Q4_1"):
        raise UnsupportedFormatError(
            f"layer {name} has the GGUF type {tensor.kind}; Q4_0 and Q4_1 are read."
        )
    if len(tensor.shape) != 2:
        raise UnsupportedFormatError(
            f"layer {name} has the shape {list(tensor.shape)}; stacked layers (experts of one "
            f"tensor) are not read."
        )
    n, k = tensor.shape
    bias = file.tensors.get(f"{name}.bias")
    block_bytes = Q4_0_BYTES if tensor.kind == "Q4_0" else Q4_1_BYTES
    if k % BLOCK or tensor.num_bytes != n * k // BLOCK * block_bytes:
        raise CheckpointError(
            f"layer {name} of {file.path}: {n} x {k} values of {tensor.kind} take "
            f"{n * k // BLOCK * block_bytes} bytes, and the file has {tensor.num_bytes}."
        )
    parts = (tensor, bias) if bias else (tensor,)
    notes: tuple[str, ...] = ()
    if name.endswith(("attn_q", "attn_k")) and file.architecture in ROTATED:
        notes = (
            f"rows are in llama.cpp's order for rotary positions ({file.architecture}); a model "
            f"in another framework needs them reordered",
        )
    return LinearLayer(
        name=name,
        n=n,
        k=k,
        group_size=BLOCK,
        dtype="fp16",
        scale_dtype="fp16",
        zero="sym" if tensor.kind == "Q4_0" else "float",
        bias=bias is not None,
        format=f"GGUF {tensor.kind}",
        parts=tuple(part.name for part in parts),
        stored_bytes=sum(part.num_bytes for part in parts),
        loader=lambda device: _load(file, tensor, bias, device),
        notes=notes,
    )


def _load(file: GgufFile, tensor: GgufTensor, bias: GgufTensor | None, device: str) -> LayerWeights:
    n, k = tensor.shape
    blocks = torch.from_numpy(np.array(tensor.data).view(np.uint8)).to(device)
    blocks = blocks.view(n, k // BLOCK, -1)
    values = blocks[..., -BLOCK // 2 :]
    # Low nibbles are the first 16 values of a block, high nibbles the others.
    q = torch.cat((values & 15, values >> 4), dim=-1).view(n, k)
    scales = blocks[..., :2].contiguous().view(torch.float16).squeeze(-1)
    offsets = None
    if tensor.kind == "Q4_1":
        offsets = blocks[..., 2:4].contiguous().view(torch.float16).squeeze(-1)
    stored_bias = file.read(bias.name).to(device) if bias else None
    return LayerWeights(q=q, scales=scales, offsets=offsets, bias=stored_bias)


def _tensor(tensor: Any) -> GgufTensor:
    shape = tuple(int(size) for size in reversed(tensor.shape.tolist()))
    return GgufTensor(tensor.name, tensor.tensor_type.name, shape, int(tensor.n_bytes), tensor.data)


def _package() -> Any:
    try:
        return importlib.import_module("gguf")
    except ImportError as error:
        raise ToolError(
            "reading GGUF needs the package gguf, which is not installed: "
            "pip install 'ptxtune[gguf]'."
        ) from error
