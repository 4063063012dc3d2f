"""Layers written in every format, value by value, from the formats' own descriptions.

Nothing here uses ptxgen: words are made of Python integers, one nibble at a time.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

AWQ_FEATURES = (0, 2, 4, 6, 1, 3, 5, 7)  # of the nibbles of a word


@dataclass(frozen=True)
class Values:
    """q [K, N] and z [G, N] as integers, scales [G, N], bias [N] or None, g_idx of each input."""

    q: np.ndarray
    z: np.ndarray
    scales: Tensor
    group: int
    bias: Tensor | None = None
    g_idx: np.ndarray | None = None

    @property
    def k(self) -> int:
        return int(self.q.shape[0])

    @property
    def n(self) -> int:
        return int(self.q.shape[1])

    @property
    def groups(self) -> int:
        return int(self.z.shape[0])

    def group_of(self) -> np.ndarray:
        return np.arange(self.k) // self.group if self.g_idx is None else self.g_idx

    def weight(self, sym: bool = False) -> Tensor:
        """(q - z) * s in FP32, [N, K], element by element of the definition."""
        rows = torch.from_numpy(self.group_of())
        z = torch.full(self.z.shape, 8.0) if sym else torch.from_numpy(self.z).float()
        difference = torch.from_numpy(self.q).float() - z[rows]
        return (difference * self.scales.float()[rows]).t().contiguous()


def golden(dtype: torch.dtype = torch.float16) -> Values:
    """The matrix of which the golden words are known: K = 64, N = 16, groups of 32."""
    k, n = np.indices((64, 16))
    group, feature = np.indices((2, 16))
    return Values(
        (3 * k + 5 * n + k // 7) % 16,
        (group + 7 * feature) % 16,
        scales_of((2, 16), dtype),
        32,
    )


def random_values(
    n: int,
    k: int,
    group: int,
    *,
    seed: int = 0,
    dtype: torch.dtype = torch.float16,
    bias: bool = False,
    act_order: bool = False,
) -> Values:
    """Random values with zero points of 0 and 15 and nibbles of 8..15 in every place of a word."""
    random = np.random.default_rng(seed)
    groups = -(-k // group)
    q = random.integers(0, 16, (k, n))
    z = random.integers(0, 16, (groups, n))
    z[0, 0], z[-1, -1] = 0, 15
    g_idx = random.permutation(np.arange(k) // group) if act_order else None
    vector = scales_of((n,), dtype) if bias else None
    return Values(q, z, scales_of((groups, n), dtype, seed), group, vector, g_idx)


def scales_of(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.rand(shape, generator=generator) * 0.02 + 1e-3).to(dtype)


def word(nibbles: list[int], bits: int = 32) -> int:
    """A signed integer of so many bits, first nibble lowest."""
    value = sum(int(nibble) << 4 * i for i, nibble in enumerate(nibbles))
    return value - (1 << bits) if value >> (bits - 1) else value


def padded(values: np.ndarray, axis: int, multiple: int) -> np.ndarray:
    lacking = -values.shape[axis] % multiple
    widths = [(0, lacking if at == axis else 0) for at in range(values.ndim)]
    return np.pad(values, widths)


def rows_packed(values: np.ndarray, per_word: int = 8) -> np.ndarray:
    """[R, C] to [ceil(R / per_word), C] words, signed as a file has them."""
    full = padded(values, 0, per_word).astype(np.uint64)
    words = sum(full[i::per_word] << np.uint64(4 * i) for i in range(per_word))
    width = {2: np.uint8, 4: np.uint16, 8: np.uint32, 16: np.uint64}[per_word]
    narrow = words.astype(width)
    return narrow.view(np.dtype(f"i{narrow.dtype.itemsize}")).astype(object)


def columns_packed(values: np.ndarray, per_word: int = 8) -> np.ndarray:
    return rows_packed(values.T, per_word).T


def int32(values: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values).astype(np.int32))


def awq_words(values: np.ndarray) -> Tensor:
    order = [8 * block + i for block in range(values.shape[1] // 8) for i in AWQ_FEATURES]
    return int32(columns_packed(values[:, order]))


def with_bias(tensors: dict[str, Tensor], values: Values) -> dict[str, Tensor]:
    return tensors if values.bias is None else {**tensors, "bias": values.bias}


def awq_gemm(values: Values) -> dict[str, Tensor]:
    tensors = {
        "qweight": awq_words(values.q),
        "qzeros": awq_words(values.z),
        "scales": values.scales,
    }
    return with_bias(tensors, values)


def gemv_width(values: Values) -> int:
    multiple = {32: 4, 64: 2}.get(values.group, 1)
    words = -(-values.groups // 8)
    return -(-words // multiple) * multiple


def awq_gemv(values: Values) -> dict[str, Tensor]:
    width = gemv_width(values)
    zeros = np.zeros((values.n, 8 * width), np.int64)
    zeros[:, : values.groups] = values.z.T
    scales = torch.zeros(values.n, 8 * width, dtype=values.scales.dtype)
    scales[:, : values.groups] = values.scales.t()
    tensors = {
        "qweight": int32(columns_packed(values.q.T)),
        "qzeros": int32(columns_packed(zeros)),
        "scales": scales,
    }
    return with_bias(tensors, values)


def awq_fast(values: Values) -> dict[str, Tensor]:
    width = gemv_width(values)
    words = np.zeros((values.n // 4, values.k), np.int16)
    for n in range(values.n):
        for chunk in range(values.k // 64):
            for u in range(16):
                first = 64 * chunk + 32 * (u // 8) + u % 8
                nibbles = [int(values.q[first + 8 * i, n]) for i in range(4)]
                words[n // 4, 64 * chunk + 16 * (n % 4) + u] = word(nibbles, 16)
    scales = torch.zeros(8 * width, values.n, dtype=values.scales.dtype)
    scales[: values.groups] = values.scales
    zeros = torch.zeros_like(scales)
    products = values.scales.float() * torch.from_numpy(values.z).float()
    zeros[: values.groups] = -products.to(scales.dtype)
    tensors = {"qweight": torch.from_numpy(words), "qzeros": zeros, "scales": scales}
    return with_bias(tensors, values)


def gptq(values: Values, version: int = 1, per_word: int = 8) -> dict[str, Tensor]:
    zeros = columns_packed(values.z, per_word)
    bits = 4 * per_word
    if version == 1:
        ones = int("1" * per_word, 16)
        wrapped = [[(int(w) - ones) % (1 << bits) for w in row] for row in zeros]
        zeros = np.array([[w - (1 << bits) if w >> (bits - 1) else w for w in r] for r in wrapped])
    dtype = {2: np.int8, 4: np.int16, 8: np.int32, 16: np.int64}[per_word]
    tensors = {
        "qweight": torch.from_numpy(rows_packed(values.q, per_word).astype(dtype)),
        "qzeros": torch.from_numpy(np.ascontiguousarray(zeros).astype(dtype)),
        "scales": values.scales,
        "g_idx": torch.from_numpy(values.group_of().astype(np.int32)),
    }
    return with_bias(tensors, values)


def marlin(values: Values) -> dict[str, Tensor]:
    words = np.zeros((values.k // 16, 2 * values.n), np.int64)
    exchanged = [0, 2, 4, 6, 1, 3, 5, 7]
    for row in range(values.k // 16):
        for at in range(2 * values.n):
            slab, rest = divmod(at, 128)
            lane, tile = divmod(rest, 4)
            nibbles = []
            for b in range(8):
                e = exchanged[b]
                k = 16 * row + 2 * (lane % 4) + (e & 1) + 8 * ((e % 4) >> 1)
                n = 64 * slab + 16 * tile + lane // 4 + 8 * (e // 4)
                nibbles.append(int(values.q[k, n]))
            words[row, at] = word(nibbles)
    grouped = [i + 8 * j for i in range(8) for j in range(8)]
    channel = [2 * i + j for i in range(4) for j in (0, 1, 8, 9, 16, 17, 24, 25)]
    order = grouped if values.groups > 1 else channel
    runs = values.scales.reshape(-1, len(order))
    tensors = {"B": int32(words), "s": runs[:, order].reshape(values.scales.shape).contiguous()}
    return with_bias(tensors, values)


def compressed(values: Values, zeros: str = "packed") -> dict[str, Tensor]:
    tensors = {
        "weight_packed": int32(columns_packed(values.q.T)),
        "weight_scale": values.scales.t().contiguous(),
        "weight_shape": torch.tensor([values.n, values.k]),
    }
    if zeros == "packed":
        tensors["weight_zero_point"] = int32(rows_packed(values.z.T))
    elif zeros == "plain":
        tensors["weight_zero_point"] = torch.from_numpy((values.z.T - 8).astype(np.int8)).clone()
    if values.g_idx is not None:
        tensors["weight_g_idx"] = torch.from_numpy(values.g_idx.astype(np.int32))
    return with_bias(tensors, values)


def text(value: str) -> Tensor:
    return torch.tensor([ord(letter) for letter in value], dtype=torch.uint8)


def hqq(values: Values, zeros: Tensor, viewed: bool = False, axis: int = 1) -> dict[str, Tensor]:
    """zeros: floating point [G, N]."""
    rows = values.q.T.reshape(-1, values.group)
    half = rows.shape[0] // 2
    packed = np.array(
        [
            [(int(rows[r, c]) << 4) | int(rows[r + half, c]) for c in range(values.group)]
            for r in range(half)
        ],
        np.uint8,
    )
    data = torch.from_numpy(packed)
    tensors = {
        "W_q": data.view(values.scales.dtype) if viewed else data,
        "scale": values.scales.t().reshape(-1, 1).contiguous(),
        "zero": zeros.t().reshape(-1, 1).contiguous(),
        "nbits": torch.tensor(4, dtype=torch.int32),
        "group_size": torch.tensor(values.group, dtype=torch.int32),
        "axis": torch.tensor(axis, dtype=torch.int32),
        "shape": torch.tensor([values.n, values.k]),
        "packing": text("4bit_u8"),
        "view_as_float": torch.tensor(int(viewed), dtype=torch.uint8),
        "compute_dtype": text("torch.float16"),
        "encoded_state_dict": torch.tensor(1, dtype=torch.uint8),
    }
    return with_bias(tensors, values)


def torchao_plain(values: Values, zeros: Tensor) -> dict[str, Tensor]:
    """zeros: floating point [G, N]; w = (q - 8) s + zero."""
    signed = values.q.T - 8
    packed = [
        [word([int(a) & 15, int(b) & 15], 8) for a, b in row.reshape(-1, 2)] for row in signed
    ]
    tensors = {
        "_weight_qdata": torch.tensor(packed, dtype=torch.int8),
        "_weight_scale": values.scales,
        "_weight_zero_point": zeros,
    }
    return with_bias(tensors, values)


def torchao_tiles(values: Values, zeros: Tensor, inner: int = 8) -> dict[str, Tensor]:
    """As _convert_weight_to_int4pack: B fragments of m16n8k16, two k-tiles in a word."""
    span = 16 * inner
    blocks = -(-values.k // span)
    q = padded(padded(values.q, 0, span), 1, 8)
    tiles = q.shape[1] // 8
    words = np.zeros((tiles, blocks, 32, inner // 2), np.int64)
    for tile in range(tiles):
        for block in range(blocks):
            for lane in range(32):
                for pair in range(inner // 2):
                    v = []
                    for k_tile in (2 * pair, 2 * pair + 1):
                        first = block * span + 16 * k_tile + 2 * (lane % 4)
                        v += [int(q[first + at, 8 * tile + lane // 4]) for at in (0, 1, 8, 9)]
                    nibbles = [v[i] for i in (0, 2, 4, 6, 1, 3, 5, 7)]
                    words[tile, block, lane, pair] = word(nibbles)
    groups = blocks * span // values.group
    both = torch.zeros(groups, 8 * tiles, 2, dtype=values.scales.dtype)
    both[: values.groups, : values.n, 0] = values.scales
    both[: values.groups, : values.n, 1] = zeros
    tensors = {"_weight_qdata": int32(words), "_weight_scale_and_zero": both}
    return with_bias(tensors, values)


def torchao_metadata(layers: dict[str, Values], kind: str) -> dict[str, str]:
    entries = {
        f"{name}.weight": json.dumps(
            {
                "_type": kind,
                "_data": {"block_size": [1, values.group], "shape": [values.n, values.k]},
                "_tensor_data_names": ["qdata"],
            }
        )
        for name, values in layers.items()
    }
    return {**entries, "tensor_names": json.dumps(list(entries))}


def named(layers: dict[str, dict[str, Tensor]]) -> dict[str, Tensor]:
    """Tensors of several layers under their full names."""
    return {
        f"{name}.{key}": tensor for name, part in layers.items() for key, tensor in part.items()
    }


def write_checkpoint(
    folder: Path,
    tensors: dict[str, Tensor],
    quantization: dict[str, Any] | None,
    *,
    config: dict[str, Any] | None = None,
    metadata: dict[str, str] | None = None,
    shards: int = 1,
) -> Path:
    """A checkpoint folder; with more than one shard also its index."""
    folder.mkdir(parents=True, exist_ok=True)
    document = {"model_type": "llama", "torch_dtype": "float16", **(config or {})}
    if quantization is not None:
        document["quantization_config"] = quantization
    (folder / "config.json").write_text(json.dumps(document))
    names = sorted(tensors)
    if shards == 1:
        save_file(contiguous(tensors, names), folder / "model.safetensors", metadata)
        return folder
    files = [f"model-{at + 1:05}-of-{shards:05}.safetensors" for at in range(shards)]
    places = {name: files[at % shards] for at, name in enumerate(names)}
    for file in files:
        save_file(
            contiguous(tensors, [name for name in names if places[name] == file]),
            folder / file,
            metadata,
        )
    index = {"metadata": {}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def contiguous(tensors: dict[str, Tensor], names: list[str]) -> dict[str, Tensor]:
    return {name: tensors[name].clone().contiguous() for name in names}


AWQ_CONFIG = {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True}
GPTQ_CONFIG = {
    "quant_method": "gptq",
    "bits": 4,
    "group_size": 32,
    "desc_act": False,
    "sym": False,
    "checkpoint_format": "gptq",
}
MARLIN_CONFIG = {**GPTQ_CONFIG, "sym": True, "checkpoint_format": "marlin"}
HQQ_CONFIG = {
    "quant_method": "hqq",
    "quant_config": {"weight_quant_params": {"nbits": 4, "group_size": 32, "axis": 1}},
}
TORCHAO_CONFIG = {"quant_method": "torchao", "quant_type": {"default": {}}}


def compressed_config(**weights: Any) -> dict[str, Any]:
    settings = {
        "num_bits": 4,
        "type": "int",
        "symmetric": False,
        "strategy": "group",
        "group_size": 32,
        **weights,
    }
    return {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "config_groups": {
            "group_0": {"targets": ["Linear"], "weights": settings, "input_activations": None}
        },
        "ignore": ["lm_head"],
    }


def with_group(config: dict[str, Any], group: int) -> dict[str, Any]:
    """A copy of a flat config with another group size."""
    return {**config, "group_size": group}
