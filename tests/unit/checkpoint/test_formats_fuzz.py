"""Configs and tensors that nobody wrote on purpose: refused in words or read, no traceback."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
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
    awq_fast,
    awq_gemm,
    compressed,
    compressed_config,
    gptq,
    hqq,
    marlin,
    named,
    random_values,
    torchao_metadata,
    torchao_plain,
    torchao_tiles,
    write_checkpoint,
)
from torch import Tensor

from ptxgen.checkpoint.open import open_checkpoint
from ptxgen.errors import PtxtuneError

NAME = "model.layers.0.mlp.up_proj"
VALUES = random_values(64, 64, 32)
FORMATS: dict[str, tuple[dict[str, Tensor], dict[str, Any], dict[str, str] | None]] = {
    "awq": (awq_gemm(VALUES), {**AWQ_CONFIG, "version": "gemm"}, None),
    "awq fast": (awq_fast(VALUES), {**AWQ_CONFIG, "version": "gemv_fast"}, None),
    "gptq": (gptq(VALUES), {**GPTQ_CONFIG, "dynamic": {"x": {"bits": 8}}}, None),
    "marlin": (marlin(VALUES), MARLIN_CONFIG, None),
    "compressed": (compressed(VALUES), compressed_config(), None),
    "hqq": (hqq(VALUES, VALUES.scales), HQQ_CONFIG, None),
    "torchao": (
        torchao_plain(VALUES, VALUES.scales),
        TORCHAO_CONFIG,
        torchao_metadata({NAME: VALUES}, "Int4Tensor"),
    ),
    "torchao tiles": (
        torchao_tiles(VALUES, VALUES.scales),
        TORCHAO_CONFIG,
        torchao_metadata({NAME: VALUES}, "Int4TilePackedTo4dTensor"),
    ),
}
ODD: tuple[Any, ...] = (None, True, -7, 3.5, "x", [1], {"a": 1}, 10**30)


def places(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place of a JSON document that holds a value."""
    items = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in items:
        yield (*path, key)
        if isinstance(value, (dict, list)):
            yield from places(value, (*path, key))


def changed(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    result = copy.deepcopy(document)
    at = result
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return result


def read_all(folder: Path) -> None:
    """Reads whatever can be read; a refusal is as good."""
    try:
        with open_checkpoint(folder) as checkpoint:
            for layer in checkpoint.layers:
                layer.missing()
                layer.load()
    except PtxtuneError as error:
        assert len(str(error)) > 20  # noqa: PT017  # any of our errors, with words


@pytest.mark.parametrize("form", FORMATS)
def test_every_setting_of_another_type(tmp_path: Path, form: str) -> None:
    tensors, config, metadata = FORMATS[form]
    write_checkpoint(tmp_path, named({NAME: tensors}), config, metadata=metadata)
    for path in places(config):
        for value in ODD:
            odd = {"quantization_config": changed(config, path, value)}
            (tmp_path / "config.json").write_text(json.dumps(odd))
            read_all(tmp_path)


@pytest.mark.parametrize("form", [name for name in FORMATS if name.startswith("torchao")])
def test_every_entry_of_torchao_metadata_of_another_type(tmp_path: Path, form: str) -> None:
    tensors, config, metadata = FORMATS[form]
    document = json.loads(metadata[f"{NAME}.weight"])
    for path in places(document):
        for value in ODD:
            entry = {f"{NAME}.weight": json.dumps(changed(document, path, value))}
            write_checkpoint(tmp_path, named({NAME: tensors}), config, metadata=entry)
            read_all(tmp_path)


CHANGES: dict[str, Callable[[Tensor], Tensor]] = {
    "empty": lambda tensor: tensor.new_zeros(0),
    "scalar": lambda tensor: tensor.flatten()[0].clone(),
    "flat": lambda tensor: tensor.flatten(),
    "stacked": lambda tensor: tensor.unsqueeze(0),
    "longer": lambda tensor: torch.cat([tensor.flatten(), tensor.flatten()]),
    "transposed": lambda tensor: tensor.t().contiguous() if tensor.dim() == 2 else tensor,
    "float": lambda tensor: tensor.float(),
    "int64": lambda tensor: tensor.long(),
    "negative": lambda tensor: torch.full_like(tensor, -3) if tensor.dtype.is_signed else tensor,
    "zeros": torch.zeros_like,
}


@pytest.mark.parametrize("form", FORMATS)
def test_every_tensor_missing_or_of_another_shape_or_dtype(tmp_path: Path, form: str) -> None:
    tensors, config, metadata = FORMATS[form]
    for name in tensors:
        without = {other: part for other, part in tensors.items() if other != name}
        for odd in (without, *({**tensors, name: f(tensors[name])} for f in CHANGES.values())):
            write_checkpoint(tmp_path, named({NAME: odd}), config, metadata=metadata)
            read_all(tmp_path)


def test_files_cut_anywhere(tmp_path: Path) -> None:
    tensors, config, _ = FORMATS["gptq"]
    write_checkpoint(tmp_path, named({NAME: tensors}), config)
    file = tmp_path / "model.safetensors"
    data = file.read_bytes()
    for length in np.linspace(0, len(data) - 1, 20).astype(int):
        file.write_bytes(data[:length])
        read_all(tmp_path)
