"""open_checkpoint: the quantized linear layers of a folder or a GGUF file, values not yet read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import get_args

from torch import Tensor

from ptxgen.checkpoint import gguf_file
from ptxgen.checkpoint.config import QuantizationConfig, read_quantization
from ptxgen.checkpoint.gguf_file import GgufFile
from ptxgen.checkpoint.gptq_zeros import ZeroReading
from ptxgen.checkpoint.layer import LinearLayer
from ptxgen.checkpoint.methods import MARKERS, Importer, check_markers, importer_of
from ptxgen.checkpoint.stored import StoredLayer, layer_names
from ptxgen.checkpoint.tensors import TensorFiles
from ptxgen.errors import CheckpointError, UnsupportedFormatError


@dataclass(frozen=True, slots=True)
class Refusal:
    """A quantized layer that is not read, and why.

    Attributes:
        name: of the module.
        reason: one paragraph.
        parts: names of its tensors.
        stored_bytes: of these.
    """

    name: str
    reason: str
    parts: tuple[str, ...]
    stored_bytes: int


@dataclass(frozen=True, slots=True)
class OtherTensor:
    """A tensor of no quantized layer: norms, embeddings, routers, unquantized layers."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A quantized checkpoint, open for reading; a context manager.

    Attributes:
        path: folder or GGUF file.
        config: its quantization settings; None for GGUF.
        layers: quantized linear layers that were understood, in the order of their names and
            numbers; whether kernels can compute one says its `missing()`.
        refused: quantized layers that were not understood, or contradict the config.
        others: all other tensors.
    """

    path: Path
    config: QuantizationConfig | None
    layers: tuple[LinearLayer, ...]
    refused: tuple[Refusal, ...]
    others: tuple[OtherTensor, ...]
    reader: Callable[[str], Tensor] = field(repr=False)
    closer: Callable[[], None] = field(repr=False)

    def read(self, name: str) -> Tensor:
        """Any tensor as stored, on the CPU; of GGUF, dequantized to FP32 where it is quantized.

        Raises:
            CheckpointError: no such tensor, or a damaged file.
        """
        return self.reader(name)

    def close(self) -> None:
        """Unmaps the files; layers cannot be loaded any more."""
        self.closer()

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def open_checkpoint(path: Path | str, gptq_zeros: ZeroReading = "auto") -> Checkpoint:
    """Lists the layers of a checkpoint from its headers and small index tensors.

    Args:
        path: a folder with safetensors and config.json, a GGUF file, or a folder with one.
        gptq_zeros: how zero points of GPTQ version 1 are read: "word", "nibble", or "auto", see
            ptxgen.checkpoint.gptq_zeros.

    Raises:
        CheckpointError: missing or damaged files, or a config that the tensors do not bear out.
        UnsupportedFormatError: a quantization method that is not read.
        ToolError: a GGUF file without the package gguf.
    """
    if gptq_zeros not in get_args(ZeroReading):
        raise CheckpointError(
            f"gptq_zeros = {gptq_zeros!r} is no reading of zero points; choose "
            f"{', '.join(get_args(ZeroReading))}."
        )
    location = Path(path).expanduser()
    file = _gguf_in(location)
    if file is not None:
        return _open_gguf(GgufFile(file))
    files = TensorFiles(location)
    try:
        config = read_quantization(location)
        importer = importer_of(config, gptq_zeros)
        return _open_folder(files, config, importer)
    except BaseException:
        files.close()
        raise


def _open_folder(files: TensorFiles, config: QuantizationConfig, importer: Importer) -> Checkpoint:
    found = {marker: layer_names(files, marker) for marker in MARKERS}
    counts = {marker: len(names) for marker, names in found.items()}
    check_markers(counts, importer, config.source)
    layers: list[LinearLayer] = []
    refused: list[Refusal] = []
    for name in sorted(found[importer.marker], key=_natural):
        stored = StoredLayer.gather(files, name, importer.suffixes)
        try:
            layers.append(importer.describe(stored, config))
        except (CheckpointError, UnsupportedFormatError) as error:
            refused.append(Refusal(name, str(error), stored.names, stored.num_bytes))
    for marker, names in found.items():
        if marker != importer.marker:
            refused.extend(_foreign(files, name, marker, config) for name in names)
    taken = {part for layer in layers for part in layer.parts}
    taken.update(part for refusal in refused for part in refusal.parts)
    others = tuple(
        OtherTensor(info.name, info.dtype, info.shape, info.num_bytes)
        for info in files.values()
        if info.name not in taken
    )
    return Checkpoint(
        files.folder, config, tuple(layers), tuple(refused), others, files.read, files.close
    )


def _natural(name: str) -> list[tuple[int, int, str]]:
    """Sorts layers.10 after layers.9."""
    return [(0, int(p), "") if p.isdigit() else (1, 0, p) for p in name.split(".")]


def _foreign(files: TensorFiles, name: str, marker: str, config: QuantizationConfig) -> Refusal:
    info = files[f"{name}.{marker}"]
    reason = (
        f"layer {name} has the tensors of {MARKERS[marker]}, and {config.source} says "
        f"{config.method}; a checkpoint of two formats is not read."
    )
    return Refusal(name, reason, (info.name,), info.num_bytes)


def _gguf_in(location: Path) -> Path | None:
    """The GGUF file that a path means; None where it means a folder of safetensors."""
    if location.suffix == ".gguf" and location.is_file():
        return location
    if not location.is_dir() or any(location.glob("*.safetensors")):
        return None
    found = sorted(location.glob("*.gguf"))
    if len(found) > 1:
        raise CheckpointError(
            f"{location} holds {len(found)} GGUF files ({', '.join(p.name for p in found[:3])}); "
            f"name one of them."
        )
    return found[0] if found else None


def _open_gguf(file: GgufFile) -> Checkpoint:
    layers: list[LinearLayer] = []
    refused: list[Refusal] = []
    for name in file.linear_names():
        try:
            layers.append(gguf_file.describe(file, name))
        except UnsupportedFormatError as error:
            tensor = file.tensors[f"{name}.weight"]
            if tensor.kind not in ("F32", "F16", "BF16"):
                refused.append(Refusal(name, str(error), (tensor.name,), tensor.num_bytes))
    taken = {part for layer in layers for part in layer.parts}
    taken.update(part for refusal in refused for part in refusal.parts)
    others: Iterable[OtherTensor] = (
        OtherTensor(tensor.name, tensor.kind, tensor.shape, tensor.num_bytes)
        for tensor in file.tensors.values()
        if tensor.name not in taken
    )
    return Checkpoint(
        file.path, None, tuple(layers), tuple(refused), tuple(others), file.read, lambda: None
    )
