"""Model types outside our own rules: their layers as transformers builds them, if it is installed.

transformers is an extra (`pip install 'ptxtune[transformers]'`). Its AutoConfig fills in what a
config.json leaves out, and the modules are made without memory (torch's meta device).
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ptxgen.errors import ModelError
from ptxgen.suggestion import did_you_mean
from ptxtune.model_table import ModelShape

EXTRA = "ptxtune[transformers]"

ROLES = {
    "q_proj": "q_proj", "k_proj": "k_proj", "v_proj": "v_proj", "o_proj": "o_proj",
    "qkv_proj": "qkv_proj", "query_key_value": "qkv_proj", "Wqkv": "qkv_proj",
    "out_proj": "o_proj", "dense": "o_proj",
    "gate_proj": "gate_proj", "up_proj": "up_proj", "down_proj": "down_proj",
    "gate_up_proj": "gate_up_proj",
    "fc1": "up_proj", "fc_in": "up_proj", "dense_h_to_4h": "up_proj",
    "fc2": "down_proj", "fc_out": "down_proj", "dense_4h_to_h": "down_proj",
}  # fmt: skip
"""What the linear layers of a decoder layer are called, and which one that is."""

ROUTERS = ("gate", "router", "shared_expert_gate")
"""Linear layers that choose experts: far too small for a kernel."""


@dataclass(frozen=True, slots=True)
class Linear:
    """One linear layer of a decoder layer.

    Attributes:
        role: such as q_proj, with "shared." or "expert." before it.
        n: output features.
        k: input features.
        bias: whether it has a bias.
    """

    role: str
    n: int
    k: int
    bias: bool


def read_shape(
    config: dict[str, Any], model_type: str, where: str, known: Sequence[str]
) -> ModelShape:
    """The shape of a decoder of a type that our rules do not know.

    Args:
        config: of the decoder.
        model_type: its type.
        where: names the file in errors.
        known: the types that our own rules know.

    Raises:
        ModelError: transformers is not installed, does not know the type either, or its layers are
            not those of an ordinary decoder.
    """
    try:
        library = importlib.import_module("transformers")
    except ImportError:
        raise ModelError(
            f"{where} is of model type {model_type!r}, whose layers ptxtune does not know; "
            f"{did_you_mean(model_type, known)}Install transformers (pip install '{EXTRA}'), which "
            f"knows more of them, or tune the layers one by one with --n and --k."
        ) from None
    fields = {name: value for name, value in config.items() if name != "model_type"}
    try:
        filled = library.AutoConfig.for_model(model_type, **fields)
        with torch.device("meta"):
            model = library.AutoModelForCausalLM.from_config(filled)
    except Exception as error:  # whatever a library of hundreds of models raises
        raise ModelError(
            f"{where} is of model type {model_type!r}, which transformers "
            f"{library.__version__} cannot build ({_short(error)}); update transformers, or tune "
            f"the layers one by one with --n and --k."
        ) from error
    return shape_of(list(linears(model)), filled, where)


def linears(model: Any) -> Iterator[Linear]:
    """The distinct linear layers of a model's decoder layers, routers left out."""
    seen: dict[Linear, None] = {}
    for name, module in model.named_modules():
        parts = name.split(".")
        if not any(part.isdecimal() for part in parts) or parts[-1] in ROUTERS:
            continue
        if isinstance(module, torch.nn.Linear):
            found = Linear(
                _role(parts), module.out_features, module.in_features, module.bias is not None
            )
            seen[found] = None
    yield from seen


def shape_of(found: Sequence[Linear], config: Any, where: str) -> ModelShape:
    """The shape that linear layers follow from.

    Raises:
        ModelError: layers of unknown roles, of several sizes, or without a part of a decoder.
    """
    by_role = {layer.role: layer for layer in found}
    strange = [layer for layer in found if layer.role.startswith("?")]
    experts = any(layer.role.startswith("expert.") for layer in found) or _counts_experts(config)
    up = by_role.get("up_proj") or by_role.get("gate_up_proj")
    needed = {"attention": _attention(by_role), "o_proj": "o_proj" in by_role}
    if not experts:
        needed["MLP"] = up is not None and "down_proj" in by_role
    if strange or len(by_role) != len(found) or not all(needed.values()):
        listed = ", ".join(f"{layer.role.lstrip('?')} {layer.n} x {layer.k}" for layer in found)
        raise ModelError(
            f"{where} has linear layers that are not those of one kind of decoder layer "
            f"({listed}); tune them one by one with --n and --k."
        )
    return _shape(by_role, up, config, moe=experts)


def _shape(by_role: dict[str, Linear], up: Linear | None, config: Any, *, moe: bool) -> ModelShape:
    o = by_role["o_proj"]
    heads = int(config.num_attention_heads)
    head_dim = o.k // heads
    qkv = by_role.get("qkv_proj")
    kv_heads = (qkv.n // head_dim - heads) // 2 if qkv else by_role["k_proj"].n // head_dim
    gated = "gate_proj" in by_role or "gate_up_proj" in by_role
    width = by_role["down_proj"].k if "down_proj" in by_role else 0
    shared = by_role.get("shared.down_proj")
    return ModelShape(
        hidden=o.n,
        intermediate=width,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        num_layers=int(getattr(config, "num_hidden_layers", 0) or 0),
        qkv_bias=(qkv or by_role["q_proj"]).bias,
        o_bias=o.bias,
        mlp_bias=bool(up and up.bias),
        gated=gated or moe,
        moe=moe,
        shared=shared.k if shared else 0,
        dense=width if moe else 0,
    )


def _role(parts: list[str]) -> str:
    leaf = parts[-1]
    role = ROLES.get(leaf, f"?{leaf}")
    inside = [part for part in parts[:-1] if not part.isdecimal()]
    if any("shared" in part for part in inside):
        return f"shared.{role}"
    if any(part == "experts" for part in inside):
        return f"expert.{role}"
    return role


def _attention(roles: Iterable[str]) -> bool:
    return "qkv_proj" in roles or {"q_proj", "k_proj", "v_proj"} <= set(roles)


def _counts_experts(config: Any) -> bool:
    names = ("num_local_experts", "num_experts", "n_routed_experts")
    return any(isinstance(count := getattr(config, name, None), int) and count > 1
               for name in names)  # fmt: skip


def _short(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else text[:197] + "..."
