"""Reads a Hugging Face config.json into a ModelShape, or says which field is missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ptxgen.errors import ModelError
from ptxtune.model_table import ModelShape

MAX_CONFIG_BYTES = 4 << 20
"""A config.json is a few kilobytes; far more is another file, such as the weights."""

UNGATED_TYPES = frozenset(
    {"phi", "gpt_neox", "falcon", "starcoder2", "nemotron", "gptj", "codegen"}
)
"""Model types whose MLP is up, activation, down, without a gate."""

QKV_BIAS_TYPES = frozenset({"qwen2", "qwen2_vl", "qwen2_5_vl", "qwen2_moe"})
"""Model types whose qkv projection has a bias although config.json does not say so."""

EXPERT_FIELDS = ("num_local_experts", "num_experts", "n_routed_experts")
LATENT_FIELD = "kv_lora_rank"


def read_config(path: Path) -> ModelShape:
    """The shape that a config.json describes.

    Args:
        path: the file, or the folder that holds it.

    Raises:
        ModelError: the file is missing, unreadable, no JSON object, or lacks a field.
    """
    file = path / "config.json" if path.is_dir() else path
    config = load_config(file)
    text = config.get("text_config")
    if isinstance(text, dict):  # a multimodal model keeps its decoder there
        config = text
    return shape_of(config, str(file))


def shape_of(config: dict[str, Any], where: str) -> ModelShape:
    """The shape of a parsed config.json; `where` names it in errors."""
    if config.get(LATENT_FIELD):
        raise ModelError(
            f"{where} describes latent attention ({LATENT_FIELD} = {config[LATENT_FIELD]!r}), "
            f"whose projections are not the fused qkv that --model derives; tune its layers "
            f"one by one with --n and --k."
        )
    hidden = _positive(config, "hidden_size", where)
    heads = _positive(config, "num_attention_heads", where)
    model_type = str(config.get("model_type", ""))
    attention_bias = bool(config.get("attention_bias", False))
    experts = next((config[name] for name in EXPERT_FIELDS if config.get(name)), 0)
    return ModelShape(
        hidden=hidden,
        intermediate=_positive(config, "intermediate_size", where),
        heads=heads,
        kv_heads=_positive(config, "num_key_value_heads", where, heads),
        head_dim=_positive(config, "head_dim", where, hidden // heads),
        num_layers=_positive(config, "num_hidden_layers", where, 0),
        qkv_bias=attention_bias or model_type in QKV_BIAS_TYPES,
        o_bias=attention_bias,
        mlp_bias=bool(config.get("mlp_bias", False)),
        gated=model_type not in UNGATED_TYPES,
        moe=isinstance(experts, int) and experts > 1,
    )


def load_config(file: Path) -> dict[str, Any]:
    """A config.json as it stands. Raises ModelError where it cannot be read or is no object."""
    try:
        size = file.stat().st_size
        if size > MAX_CONFIG_BYTES:
            raise ModelError(
                f"{file} has {size} bytes, more than the {MAX_CONFIG_BYTES} a config.json can "
                f"need; name the model's config.json."
            )
        data = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(
            f"model config {str(file)!r} cannot be read ({error.strerror}); name an existing "
            f"config.json or its folder."
        ) from error
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ModelError(
            f"{file} is not JSON ({error}); name the config.json of a Hugging Face model."
        ) from error
    if not isinstance(data, dict):
        raise ModelError(
            f"{file} holds a JSON {type(data).__name__}, not an object; name the config.json of a "
            f"Hugging Face model."
        )
    return data


def _positive(config: dict[str, Any], name: str, where: str, default: int | None = None) -> int:
    value = config.get(name)
    if value is None and default is not None:
        return default
    if value is None:
        raise ModelError(
            f"{where} lacks {name!r}, which the linear layers follow from; tune the layers one by "
            f"one with --n and --k instead."
        )
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise ModelError(f"{where}: {name} = {value!r} must be a positive integer.")
    return value
