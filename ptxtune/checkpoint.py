"""What a config.json says of a model's weights and activations: dtype, bits, group, zero points."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ptxgen.arguments import as_int, shown
from ptxgen.errors import ModelError
from ptxgen.problem import Dtype, Zero
from ptxtune.hf_config import TEXT_FIELDS, config_file, load_config
from ptxtune.models import WHOLE_K, Model, model_layers

BITS_FIELDS = ("bits", "w_bit", "num_bits")
GROUP_FIELDS = ("group_size", "q_group_size")
DTYPES: dict[str, Dtype] = {
    "float16": "fp16",
    "half": "fp16",
    "bfloat16": "bf16",
    "float32": "fp16",  # engines run such models in FP16
    "float": "fp16",
    "auto": "fp16",
}
METHODS = ("gptq", "awq", "compressed-tensors", "auto-round", "autoround", "gptqmodel")
GROUP_OF_METHOD = {"gptq": 128, "gptqmodel": 128, "awq": 128}
"""The group size of files that name none, as transformers reads them; others mean whole rows."""

ALONE = "Give both --group and --zero to take the model's shapes alone, or name a 4-bit checkpoint."


@dataclass(frozen=True, slots=True)
class Quantization:
    """How a checkpoint's weights are stored.

    Attributes:
        group: group size; -1 is the whole of K.
        zero: zero points.
    """

    group: int
    zero: Zero


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a checkpoint says of its layers.

    Attributes:
        model: its dense layers for one rank.
        group: group size; -1 is the whole of K.
        zero: zero points.
        dtype: of activations; fp16 where the checkpoint names none.
    """

    model: Model
    group: int
    zero: Zero
    dtype: Dtype


def read_checkpoint(path: Path, tp: int = 1) -> Checkpoint:
    """The layers of a 4-bit checkpoint in the GPTQ, AWQ or compressed-tensors format.

    Args:
        path: its folder, or its config.json.
        tp: tensor-parallel size.

    Raises:
        ModelError: no readable config.json, or one without a 4-bit quantization that kernels serve.
    """
    file = config_file(path)
    config = load_config(file)
    found = quantization_of(config, str(file))
    if found is None:
        raise ModelError(
            f"{file} has no quantization_config, so its weights are not quantized; compare its "
            f"shapes with --model, --group and --zero."
        )
    dtype = dtype_of(config, str(file)) or "fp16"
    return Checkpoint(model_layers(path, tp), found.group, found.zero, dtype)


def dtype_of(config: dict[str, Any], where: str) -> Dtype | None:
    """The dtype of the activations; None where the file names none.

    Raises:
        ModelError: one that no kernel takes.
    """
    parts = [config, *(config.get(name) for name in TEXT_FIELDS)]
    fields = ("dtype", "torch_dtype")
    named = (part[name] for part in parts if isinstance(part, dict) for name in fields
             if part.get(name) is not None)  # fmt: skip
    value = next(named, None)
    if value is None:
        return None
    found = DTYPES.get(value.removeprefix("torch.")) if isinstance(value, str) else None
    if found is None:
        raise ModelError(
            f"{where}: dtype {shown(value)} is none that the kernels take (float16, bfloat16); say "
            f"which one to use with --dtype."
        )
    return found


def quantization_of(config: dict[str, Any], where: str) -> Quantization | None:
    """How the weights are stored; None where they are not quantized.

    Raises:
        ModelError: not 4-bit integers, a column order of its own, or a field of another type.
    """
    found = config.get("quantization_config")
    if found is None:
        found = next(
            (part["quantization_config"] for part in map(config.get, TEXT_FIELDS)
             if isinstance(part, dict) and part.get("quantization_config") is not None),
            None,
        )  # fmt: skip
    if found is None:
        return None
    if not isinstance(found, dict):
        raise ModelError(f"{where}: quantization_config = {shown(found)} must be an object.")
    method = str(found.get("quant_method", "")).lower()
    schemes = [_checked(scheme, method, where) for scheme in _schemes(found, where)]
    if len(set(schemes)) > 1:
        told = " and ".join(f"group {each.group}, zero {each.zero}" for each in set(schemes))
        raise ModelError(f"{where} quantizes its layers in several ways ({told}). {ALONE}")
    return schemes[0]


def _schemes(found: dict[str, Any], where: str) -> list[dict[str, Any]]:
    """The parts that describe weights; compressed-tensors keeps them a level deeper."""
    groups = found.get("config_groups")
    if groups is None:
        return [found]
    parts = list(groups.values()) if isinstance(groups, dict) else []
    inner = [part.get("weights") if isinstance(part, dict) else None for part in parts]
    weights = [each for each in inner if isinstance(each, dict)]
    if not weights or len(weights) < len(parts):
        raise ModelError(
            f"{where}: config_groups of quantization_config must hold objects with weights."
        )
    if any(isinstance(part.get("input_activations"), dict) for part in parts):
        raise ModelError(
            f"{where} quantizes activations too; the kernels take FP16 or BF16. {ALONE}"
        )
    return weights


def _checked(weights: dict[str, Any], method: str, where: str) -> Quantization:
    bits = _first(weights, BITS_FIELDS)
    if bits is None and method in ("awq", ""):
        bits = 4 if method else None  # what AWQ means where it says nothing
    if isinstance(bits, bool) or bits != 4:
        raise ModelError(
            f"{where} describes weights of {_bits_text(bits, method)}; ptxtune's kernels take "
            f"4-bit integers. {ALONE}"
        )
    if weights.get("type", "int") != "int" or (method and method not in METHODS):
        kind = weights.get("type", method)
        raise ModelError(
            f"{where} describes 4-bit weights of kind {kind!r}, which are not integers with a "
            f"scale a group. {ALONE}"
        )
    group = _group(weights, method, where)
    _check_order(weights, group, where)
    return Quantization(group, "sym" if _symmetric(weights, method, where) else "int")


def _bits_text(bits: Any, method: str) -> str:
    return (
        f"{shown(bits)} bits" if bits is not None else f"the method {method!r}, which names no bits"
    )


def _group(weights: dict[str, Any], method: str, where: str) -> int:
    value = _first(weights, GROUP_FIELDS)
    if value is None:
        return GROUP_OF_METHOD.get(method, WHOLE_K)
    group = as_int(value)
    if group is None or (group < 1 and group != WHOLE_K):
        raise ModelError(
            f"{where}: group_size = {shown(value)} must be an integer, or -1 for whole K."
        )
    return group


def _check_order(weights: dict[str, Any], group: int, where: str) -> None:
    """GPTQ's desc_act and compressed-tensors' actorder sort the inputs; a group is then spread."""
    sorts = _flag(weights, "desc_act", False, where) or weights.get("actorder") in (
        True, "group", "dynamic",
    )  # fmt: skip
    if sorts and group != WHOLE_K:
        raise ModelError(
            f"{where} quantizes inputs in the order of their activations (desc_act or actorder), "
            f"so that a group is no run of neighbouring inputs, as kernels need; use a checkpoint "
            f"with desc_act false or static order. {ALONE}"
        )


def _symmetric(weights: dict[str, Any], method: str, where: str) -> bool:
    """GPTQ says sym, AWQ zero_point, compressed-tensors symmetric."""
    for name in ("sym", "symmetric"):
        if name in weights:
            return _flag(weights, name, True, where)
    return not _flag(weights, "zero_point", method == "awq", where)


def _flag(weights: dict[str, Any], name: str, default: bool, where: str) -> bool:
    value = weights.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise ModelError(f"{where}: {name} = {shown(value)} must be true or false.")
    return value


def _first(weights: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next((weights[name] for name in names if weights.get(name) is not None), None)
