"""What a quantized checkpoint holds: layers, their problems, memory, and what is unsupported."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ptxgen.checkpoint.fuse import NotFused, fuse_layers
from ptxgen.checkpoint.gptq_zeros import ZeroReading
from ptxgen.checkpoint.layer import LinearLayer
from ptxgen.checkpoint.open import Checkpoint, Refusal, open_checkpoint
from ptxgen.checkpoint.shares import shares_of
from ptxgen.problem import Dtype, Problem
from ptxgen.weights.layout import packed_layout
from reports.table import Column, Table
from reports.words import variant_text

MB = 1e6
COLUMNS = (
    Column("layer", numeric=False),
    Column("count"),
    Column("N x K", numeric=False),
    Column("variant", numeric=False),
    Column("stored", "MB"),
    Column("packed", "MB"),
    Column("FP16", "MB"),
)


@dataclass(frozen=True, slots=True)
class LayerGroup:
    """Layers of one name (but for its numbers) and one problem.

    Attributes:
        name: such as model.layers.*.mlp.gate_up_proj.
        layers: them.
        problem: that computes each; None where no kernel can.
        missing: why not, in words; empty where one can.
    """

    name: str
    layers: tuple[LinearLayer, ...]
    problem: Problem | None
    missing: tuple[str, ...]

    @property
    def stored_bytes(self) -> int:
        return sum(layer.stored_bytes for layer in self.layers)

    @property
    def packed_bytes(self) -> int:
        """As the kernels read them; 0 where no kernel can."""
        each = packed_layout(self.problem).total_bytes if self.problem else 0
        return each * len(self.layers)

    @property
    def fp16_bytes(self) -> int:
        return sum(2 * layer.n * layer.k for layer in self.layers)


@dataclass(frozen=True, slots=True)
class Inspection:
    """What a checkpoint holds.

    Attributes:
        path: folder or GGUF file.
        formats: of its layers, in words.
        tp: tensor-parallel size; layers are those of one rank.
        groups: its quantized linear layers as engines fuse them.
        not_fused: layers that an engine would fuse and that cannot be, with the reason.
        refused: quantized layers that were not understood, with the reason.
        other_tensors: how many tensors are left.
        other_bytes: of these.
        notes: what is worth knowing, in words.
    """

    path: str
    formats: tuple[str, ...]
    tp: int
    groups: tuple[LayerGroup, ...]
    not_fused: tuple[NotFused, ...]
    refused: tuple[Refusal, ...]
    other_tensors: int
    other_bytes: int
    notes: tuple[str, ...]

    def problems(self) -> tuple[Problem, ...]:
        """The different problems of the checkpoint: what tuning it means."""
        found = (group.problem for group in self.groups)
        return tuple(dict.fromkeys(problem for problem in found if problem is not None))


def inspect_checkpoint(
    path: Path | str,
    tp: int = 1,
    dtype: Dtype | None = None,
    gptq_zeros: ZeroReading = "auto",
) -> Inspection:
    """Reads the headers of a checkpoint and maps its layers to problems; no weights are read.

    Args:
        path: a folder with safetensors, a GGUF file, or a folder with one.
        tp: tensor-parallel size; the layers are then those of rank 0.
        dtype: of the activations; None is each layer's own.
        gptq_zeros: see ptxgen.checkpoint.open.open_checkpoint.

    Raises:
        CheckpointError: missing, damaged or contradictory files.
        UnsupportedFormatError: a quantization method that is not read.
        ProblemError: a layer that tp ranks cannot share.
    """
    with open_checkpoint(path, gptq_zeros) as checkpoint:
        shares = shares_of(checkpoint.layers, 0, tp, _kv_heads(checkpoint))
        layers, apart = fuse_layers(shares)
        return Inspection(
            path=str(checkpoint.path),
            formats=tuple(dict.fromkeys(layer.format for layer in checkpoint.layers)),
            tp=tp,
            groups=_grouped(layers, dtype),
            not_fused=apart,
            refused=checkpoint.refused,
            other_tensors=len(checkpoint.others),
            other_bytes=sum(other.num_bytes for other in checkpoint.others),
            notes=_notes(checkpoint, layers, dtype),
        )


def inspection_document(found: Inspection) -> dict[str, Any]:
    """An inspection as the JSON that --json shows."""
    return {
        "checkpoint": found.path,
        "formats": list(found.formats),
        "tp": found.tp,
        "layers": [_group_document(group) for group in found.groups],
        "not_fused": [{"layers": list(a.names), "reason": a.reason} for a in found.not_fused],
        "refused": [{"layer": r.name, "reason": r.reason} for r in found.refused],
        "bytes": _bytes(found),
        "other_tensors": found.other_tensors,
        "notes": list(found.notes),
    }


def inspection_text(found: Inspection) -> str:
    """An inspection for people: a table of layers, memory, and what is unsupported."""
    counted = sum(len(group.layers) for group in found.groups)
    formats = ", ".join(found.formats) or "no layer that was understood"
    rank = f", one rank of {found.tp}" if found.tp > 1 else ""
    parts = [f"{found.path}: {formats}; {counted} linear layers as engines fuse them{rank}"]
    if found.groups:
        parts.append(Table(COLUMNS, tuple(_row(group) for group in found.groups)).to_text())
    parts.append(_memory_text(found))
    parts += _unsupported_lines(found.groups)
    parts += _refusal_lines(found.refused)
    parts += [f"not fused: {apart.reason}" for apart in found.not_fused[:3]]
    if len(found.not_fused) > 3:
        parts.append(f"not fused: {len(found.not_fused) - 3} more families, see --json")
    parts += [f"note: {note}" for note in found.notes]
    return "\n\n".join(parts)


def pattern_of(name: str) -> str:
    """A module's name with * for its numbers: model.layers.*.mlp.down_proj."""
    return re.sub(r"(?<![^.])\d+(?![^.])", "*", name)


def _grouped(layers: Iterable[LinearLayer], dtype: Dtype | None) -> tuple[LayerGroup, ...]:
    groups: dict[tuple[Any, ...], list[LinearLayer]] = {}
    for layer in layers:
        reasons = layer.missing()
        problem = None if reasons else layer.problem(dtype)
        key = (pattern_of(layer.name), layer.n, layer.k, layer.group_size, problem, reasons)
        groups.setdefault(key, []).append(layer)
    return tuple(
        LayerGroup(name=key[0], layers=tuple(found), problem=key[4], missing=key[5])
        for key, found in groups.items()
    )


def _kv_heads(checkpoint: Checkpoint) -> int | None:
    model = checkpoint.config.model if checkpoint.config else {}
    text = model.get("text_config")
    heads = (text if isinstance(text, dict) else model).get("num_key_value_heads")
    return heads if isinstance(heads, int) and heads > 0 else None


def _notes(
    checkpoint: Checkpoint, layers: Iterable[LinearLayer], dtype: Dtype | None
) -> tuple[str, ...]:
    notes = dict.fromkeys(note for layer in layers for note in layer.notes)
    said = checkpoint.config.dtype if checkpoint.config else None
    if dtype is None and said and any(layer.dtype != said for layer in layers):
        notes[
            f"config.json names {said} activations, and the scales are not {said}; layers are "
            f"mapped to the dtype of their scales, {said} (--dtype {said}) would round them"
        ] = None
    return tuple(notes)


def _bytes(found: Inspection) -> dict[str, int]:
    able = [group for group in found.groups if group.problem is not None]
    return {
        "stored": sum(group.stored_bytes for group in found.groups),
        "stored_supported": sum(group.stored_bytes for group in able),
        "packed": sum(group.packed_bytes for group in able),
        "fp16": sum(group.fp16_bytes for group in found.groups),
        "refused": sum(refusal.stored_bytes for refusal in found.refused),
        "others": found.other_bytes,
    }


def _group_document(group: LayerGroup) -> dict[str, Any]:
    first = group.layers[0]
    return {
        "name": group.name,
        "layers": [layer.name for layer in group.layers],
        "format": first.format,
        "n": first.n,
        "k": first.k,
        "group_size": first.group_size,
        "zero": first.zero,
        "scale_dtype": first.scale_dtype,
        "act_order": first.act_order,
        "bias": first.bias,
        "problem": group.problem.to_dict() if group.problem else None,
        "missing": list(group.missing),
        "stored_bytes": group.stored_bytes,
        "packed_bytes": group.packed_bytes,
        "fp16_bytes": group.fp16_bytes,
    }


def _row(group: LayerGroup) -> tuple[str, ...]:
    first = group.layers[0]
    return (
        group.name,
        str(len(group.layers)),
        f"{first.n} x {first.k}",
        variant_text(group.problem) if group.problem else "unsupported, see below",
        _mb(group.stored_bytes),
        _mb(group.packed_bytes) if group.problem else "-",
        _mb(group.fp16_bytes),
    )


def _memory_text(found: Inspection) -> str:
    sizes = _bytes(found)
    others = f"{found.other_tensors} other tensors, {_mb(sizes['others'])} MB, stay as they are"
    if not sizes["packed"]:
        return f"memory: no layer can be packed; {others}"
    saved = sum(group.fp16_bytes for group in found.groups if group.problem) / sizes["packed"]
    return (
        f"memory of the layers that kernels can compute: {_mb(sizes['stored_supported'])} MB as "
        f"stored, {_mb(sizes['packed'])} MB packed, {saved:.2f} times smaller than FP16; {others}"
    )


def _unsupported_lines(groups: tuple[LayerGroup, ...]) -> list[str]:
    """One line for each thing that is missing, with the layers that need it."""
    needing: dict[str, list[str]] = {}
    for group in groups:
        for reason in group.missing:
            needing.setdefault(reason, []).append(f"{group.name} ({len(group.layers)})")
    return [f"unsupported: {', '.join(names)}: {reason}" for reason, names in needing.items()]


def _refusal_lines(refused: tuple[Refusal, ...]) -> list[str]:
    """One line for reasons that differ in the layer's name alone."""
    alike: dict[str, list[str]] = {}
    for refusal in refused:
        key = refusal.reason.replace(refusal.name, "")
        alike.setdefault(key, []).append(refusal.reason)
    return [
        f"refused: {reasons[0]}"
        + (f" ({len(reasons) - 1} more layers alike)" if len(reasons) > 1 else "")
        for reasons in alike.values()
    ]


def _mb(size: int) -> str:
    return f"{size / MB:,.1f}"
