"""convert_checkpoint: a quantized checkpoint packed once for the kernels, layer by layer."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from ptxgen.checkpoint.config import CONFIG_NAME, LEGACY_FILES
from ptxgen.checkpoint.fuse import fuse_layers
from ptxgen.checkpoint.gptq_zeros import ZeroReading
from ptxgen.checkpoint.layer import LinearLayer
from ptxgen.checkpoint.manifest import (
    BIAS_SUFFIX,
    MANIFEST_NAME,
    PACKED_SUFFIX,
    ConvertedManifest,
    PackedLayer,
    quantization_config,
)
from ptxgen.checkpoint.open import Checkpoint, open_checkpoint
from ptxgen.checkpoint.packed import digest_of
from ptxgen.checkpoint.publish import staged_folder
from ptxgen.checkpoint.tensors import INDEX_NAME
from ptxgen.errors import CheckpointError, UnsupportedFormatError
from ptxgen.problem import Dtype
from ptxgen.weights.layout import packed_layout
from ptxgen.weights.pack import pack
from ptxgen.weights.quantize import TORCH_DTYPES

SHARD_BYTES = 1 << 30
"""Of one output file, more only where one tensor is larger: what conversion keeps in memory."""

WEIGHT_FILES = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf", ".h5", ".msgpack", ".onnx")
NOT_COPIED = frozenset({CONFIG_NAME, INDEX_NAME, MANIFEST_NAME, *LEGACY_FILES})
GGML_FLOATS = ("F32", "F16", "BF16")


@dataclass(frozen=True, slots=True)
class Conversion:
    """What a conversion wrote.

    Attributes:
        folder: the new checkpoint.
        manifest: as written.
        copied_files: names of files that are no weights.
        copied_tensors: how many tensors were copied as they are.
        notes: what a user should know, in words.
    """

    folder: Path
    manifest: ConvertedManifest
    copied_files: tuple[str, ...]
    copied_tensors: int
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Item:
    """One tensor to be written: its name, its size, and how to make it."""

    name: str
    num_bytes: int
    make: Callable[[], Tensor]


def convert_checkpoint(
    source: Path | str,
    out: Path | str,
    *,
    dtype: Dtype | None = None,
    fused: bool = False,
    keep_unsupported: bool = False,
    gptq_zeros: ZeroReading = "auto",
    device: str = "cpu",
    force: bool = False,
    shard_bytes: int = SHARD_BYTES,
    progress: Callable[[str], None] = lambda name: None,
) -> Conversion:
    """Packs every quantized linear layer and copies all else into a new folder.

    Memory holds one output file and one layer at a time. The folder appears whole or not at all.

    Args:
        source: a folder with safetensors, a GGUF file, or a folder with one.
        out: the new folder.
        dtype: of the activations; None is each layer's own, which rounds no 16-bit scale.
        fused: write q, k, v as qkv and gate, up as gate_up.
        keep_unsupported: copy layers that no kernel can compute in their own format, instead of
            refusing the checkpoint.
        gptq_zeros: see ptxgen.checkpoint.open.open_checkpoint.
        device: where layers are unpacked and packed, such as cuda.
        force: replace an older converted checkpoint.
        shard_bytes: of one output file.
        progress: is told the name of each layer before it is converted.

    Raises:
        CheckpointError: the source is damaged, or out cannot be written.
        UnsupportedFormatError: layers that no kernel can compute, without keep_unsupported.
    """
    with open_checkpoint(source, gptq_zeros) as checkpoint:
        layers = fuse_layers(checkpoint.layers)[0] if fused else checkpoint.layers
        able = [layer for layer in layers if not layer.missing()]
        unconverted = {layer.name: layer.missing()[0] for layer in layers if layer.missing()}
        unconverted |= {refusal.name: refusal.reason for refusal in checkpoint.refused}
        _check_supported(checkpoint.path, unconverted, bool(able), keep_unsupported)
        writer = _Writer(checkpoint, dtype, device, progress)
        items = [item for layer in able for item in writer.layer_items(layer)]
        copied = _copied(checkpoint, able)
        items += copied
        with staged_folder(
            Path(out), MANIFEST_NAME, sum(item.num_bytes for item in items), force
        ) as folder:
            _write_shards(folder, items, shard_bytes)
            settings = checkpoint.config.settings if checkpoint.config else None
            manifest = ConvertedManifest(writer.done, unconverted, settings)
            files = _write_documents(folder, checkpoint, manifest)
        return Conversion(
            Path(out).expanduser().absolute(),
            manifest,
            files,
            len(copied),
            _notes(checkpoint, unconverted, writer.roundings),
        )


class _Writer:
    """Makes the tensors of layers, and remembers what they became."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        dtype: Dtype | None,
        device: str,
        progress: Callable[[str], None],
    ) -> None:
        self.checkpoint = checkpoint
        self.dtype = dtype
        self.device = device
        self.progress = progress
        self.done: dict[str, PackedLayer] = {}
        self.roundings: list[str] = []
        self._bias: dict[str, Tensor] = {}

    def layer_items(self, layer: LinearLayer) -> Iterator[_Item]:
        """The packed weight, then the bias, which its load brings along."""
        problem = layer.problem(self.dtype)
        size = packed_layout(problem).total_bytes
        yield _Item(f"{layer.name}.{PACKED_SUFFIX}", size, lambda: self._pack(layer))
        if layer.bias:
            yield _Item(
                f"{layer.name}.{BIAS_SUFFIX}", 2 * layer.n, lambda: self._bias.pop(layer.name)
            )

    def _pack(self, layer: LinearLayer) -> Tensor:
        self.progress(layer.name)
        weights = layer.load(self.device)
        weight, problem, rounding = layer.quantized_from(weights, self.dtype)
        packed = pack(weight, problem).cpu()
        notes = weights.notes
        if rounding.changed:
            notes += (rounding.words(),)
            self.roundings.append(f"{layer.name}: {rounding.words()}")
        if weights.bias is not None:
            self._bias[layer.name] = weights.bias.to(TORCH_DTYPES[problem.dtype]).cpu()
        self.done[layer.name] = PackedLayer(
            layer.name,
            problem,
            layer.members,
            digest_of(packed),
            layer.format,
            notes,
        )
        return packed


def _check_supported(path: Path, unconverted: dict[str, str], any_able: bool, keep: bool) -> None:
    if unconverted and not (keep and any_able):
        name, reason = next(iter(unconverted.items()))
        more = f", and {len(unconverted) - 1} layers more" if len(unconverted) > 1 else ""
        out = (
            "Convert what can be converted, with these layers kept in their own format "
            "(--keep-unsupported)"
            if any_able
            else "No layer of it can be converted; keep it in another engine, or requantize it"
        )
        raise UnsupportedFormatError(
            f"{path} has layers that cannot be converted: {name}{more}: "
            f"{reason.rstrip('.')}. {out}."
        )
    if not any_able:
        raise CheckpointError(f"{path} holds no quantized linear layer to convert.")


def _copied(checkpoint: Checkpoint, able: list[LinearLayer]) -> list[_Item]:
    """Every tensor of no converted layer."""
    taken = {part for layer in able for part in layer.parts}
    kept = [
        (part, layer.stored_bytes // max(1, len(layer.parts)))
        for layer in checkpoint.layers
        for part in layer.parts
        if part not in taken
    ]
    kept += [
        (part, refusal.stored_bytes // max(1, len(refusal.parts)))
        for refusal in checkpoint.refused
        for part in refusal.parts
    ]
    items = [_Item(name, size, _reader(checkpoint, name, "")) for name, size in kept]
    items += [
        _Item(other.name, other.num_bytes, _reader(checkpoint, other.name, other.dtype))
        for other in checkpoint.others
    ]
    return items


def _reader(checkpoint: Checkpoint, name: str, dtype: str) -> Callable[[], Tensor]:
    """Reads a tensor; what was dequantized out of a GGUF file is written as FP16."""

    def read() -> Tensor:
        tensor = checkpoint.read(name)
        quantized = checkpoint.config is None and dtype not in GGML_FLOATS
        return tensor.to(torch.float16) if quantized else tensor

    return read


def _write_shards(folder: Path, items: list[_Item], shard_bytes: int) -> None:
    """Writes the files one after the other; only one is in memory."""
    shards: list[list[_Item]] = [[]]
    filled = 0
    for item in items:
        if shards[-1] and filled + item.num_bytes > shard_bytes:
            shards.append([])
            filled = 0
        shards[-1].append(item)
        filled += item.num_bytes
    places: dict[str, str] = {}
    total = 0
    for at, shard in enumerate(shards, 1):
        file = f"model-{at:05}-of-{len(shards):05}.safetensors"
        tensors = {item.name: item.make().contiguous() for item in shard}
        save_file(tensors, folder / file, {"format": "pt"})
        places.update(dict.fromkeys(tensors, file))
        total += sum(tensor.nbytes for tensor in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": places}
    (folder / INDEX_NAME).write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")


def _write_documents(
    folder: Path, checkpoint: Checkpoint, manifest: ConvertedManifest
) -> tuple[str, ...]:
    """Manifest, config.json and every other file of the source that holds no weights."""
    (folder / MANIFEST_NAME).write_text(manifest.to_text(), encoding="utf-8")
    config: dict[str, Any] = dict(checkpoint.config.model) if checkpoint.config else {}
    config.pop("compression_config", None)
    config["quantization_config"] = quantization_config(manifest)
    (folder / CONFIG_NAME).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    if checkpoint.path.is_file():
        return ()
    copied = []
    for path in sorted(checkpoint.path.iterdir()):
        index = path.name.endswith(".index.json")
        if path.is_file() and path.suffix not in WEIGHT_FILES and path.name not in NOT_COPIED:
            if index or path.name.startswith("."):
                continue
            shutil.copyfile(path, folder / path.name)  # the content, also of a link
            copied.append(path.name)
    return tuple(copied)


def _notes(
    checkpoint: Checkpoint, unconverted: dict[str, str], roundings: list[str]
) -> tuple[str, ...]:
    notes = []
    if unconverted:
        notes.append(f"{len(unconverted)} quantized layers were copied in their own format")
    if roundings:
        notes.append(f"scales of {len(roundings)} layers were rounded; {roundings[0]}")
    if checkpoint.config is None:
        turned = sum(other.dtype not in GGML_FLOATS for other in checkpoint.others)
        notes.append(
            f"{turned} other quantized tensors of the GGUF file were written as FP16; it has no "
            f"config.json and no tokenizer files to copy"
        )
    return tuple(notes)
