"""A quantized checkpoint's layers: shapes and quantization from its config.json; no weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ptxgen.errors import ModelError
from ptxgen.problem import Dtype, Zero
from ptxtune.hf_config import load_config
from ptxtune.models import WHOLE_K, Model, model_layers

BITS_FIELDS = ("bits", "w_bit", "num_bits")
GROUP_FIELDS = ("group_size", "q_group_size")
DTYPES: dict[str, Dtype] = {"float16": "fp16", "bfloat16": "bf16"}


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
        ModelError: no readable config.json, or one without a 4-bit quantization.
    """
    file = path / "config.json" if path.is_dir() else path
    config = load_config(file)
    weights = _weights(config, str(file))
    bits = _first(weights, BITS_FIELDS)
    if bits != 4:
        raise ModelError(
            f"{file} describes weights of {bits!r} bits; ptxtune's kernels take 4. Compare its "
            f"shapes alone with --model {path}."
        )
    group = _first(weights, GROUP_FIELDS)
    return Checkpoint(
        model_layers(str(path), tp),
        WHOLE_K if group is None or group == WHOLE_K else _group(group, str(file)),
        "sym" if _symmetric(weights) else "int",
        DTYPES.get(str(config.get("torch_dtype") or config.get("dtype")), "fp16"),
    )


def _weights(config: dict[str, Any], where: str) -> dict[str, Any]:
    """The part of quantization_config that describes the weights."""
    found = config.get("quantization_config")
    if not isinstance(found, dict):
        raise ModelError(
            f"{where} has no quantization_config, so its weights are not quantized; compare its "
            f"shapes with --model, --group and --zero."
        )
    groups = found.get("config_groups")  # compressed-tensors keeps them a level deeper
    if isinstance(groups, dict) and groups:
        first = next(iter(groups.values()))
        inner = first.get("weights") if isinstance(first, dict) else None
        if isinstance(inner, dict):
            return inner
    return found


def _symmetric(weights: dict[str, Any]) -> bool:
    """GPTQ says sym, AWQ zero_point, compressed-tensors symmetric."""
    for name in ("sym", "symmetric"):
        if name in weights:
            return bool(weights[name])
    return not weights.get("zero_point", False)


def _first(weights: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next((weights[name] for name in names if weights.get(name) is not None), None)


def _group(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ModelError(f"{where}: group_size = {value!r} must be an integer, or -1 for whole K.")
    return value
