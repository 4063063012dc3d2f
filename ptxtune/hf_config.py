"""Reads a Hugging Face config.json into a ModelShape, or says which field is missing or wrong."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ptxgen.arguments import as_int, shown
from ptxgen.errors import ModelError
from ptxgen.json_text import parse_json
from ptxtune import hf_modules
from ptxtune.hf_rules import DECODERS, RULES, Bias, Rule
from ptxtune.model_table import ModelShape

MAX_CONFIG_BYTES = 4 << 20
"""A config.json is a few kilobytes; far more is another file, such as the weights."""

EXPERT_FIELDS = ("num_local_experts", "num_experts", "n_routed_experts")
LATENT_FIELD = "kv_lora_rank"
SHARED_COUNT = "n_shared_experts"
TEXT_FIELDS = ("text_config", "llm_config", "language_config")
"""Where a multimodal model keeps its decoder."""

ONE_BY_ONE = "tune its layers one by one with --n and --k"


@dataclass(frozen=True, slots=True)
class Described:
    """What a config.json says of its decoder.

    Attributes:
        shape: what the linear layers follow from.
        note: numbers that the file leaves out, and what stands for them; empty where it has all.
    """

    shape: ModelShape
    note: str = ""


def config_file(path: Path) -> Path:
    """The config.json that a path means: itself, or the one in the folder."""
    try:
        return path / "config.json" if path.is_dir() else path
    except OSError:  # no right to look, or a name that is too long: reading says so
        return path


def load_config(file: Path) -> dict[str, Any]:
    """A config.json as it stands. Raises ModelError where it cannot be read or is no object."""
    try:
        size = file.stat().st_size
        if size > MAX_CONFIG_BYTES:
            raise ModelError(
                f"{file} has {size} bytes, more than the {MAX_CONFIG_BYTES} a config.json can "
                f"need; name the model's config.json."
            )
        text = file.read_bytes()
    except OSError as error:
        raise ModelError(
            f"model config {str(file)!r} cannot be read ({error.strerror}); name an existing "
            f"config.json or its folder."
        ) from error
    hint = "name the config.json of a Hugging Face model."
    data = parse_json(text, str(file), hint, error=ModelError)
    if not isinstance(data, dict):
        raise ModelError(f"{file} holds a JSON {type(data).__name__}, not an object; {hint}")
    return data


def describe(config: dict[str, Any], where: str) -> Described:
    """The decoder of a parsed config.json; `where` names the file in errors.

    Raises:
        ModelError: a model type that is not known, a field that is missing or wrong, or layers
            that are not the fused ones of a dense or mixture decoder.
    """
    text, model_type = _decoder(config, where)
    if text.get(LATENT_FIELD):
        raise ModelError(
            f"{where} describes latent attention ({LATENT_FIELD} = {text[LATENT_FIELD]!r}), "
            f"whose projections are not the fused qkv that --model derives; {ONE_BY_ONE}."
        )
    rule = RULES.get(model_type)
    if rule is None:
        return Described(hf_modules.read_shape(text, model_type, where, tuple(RULES)))
    reader = _Reader(text, rule, where)
    shape = _shape(reader, model_type)
    return Described(shape, reader.note(model_type))


def _decoder(config: dict[str, Any], where: str) -> tuple[dict[str, Any], str]:
    """The part of a config.json that describes the decoder, and its model type."""
    outer = config.get("model_type")
    inner = next((config[name] for name in TEXT_FIELDS if isinstance(config.get(name), dict)), None)
    text = config if inner is None else inner
    model_type = text.get("model_type") or DECODERS.get(str(outer))
    if inner is None and outer in DECODERS:
        model_type = DECODERS[str(outer)]
    if not isinstance(model_type, str) or not model_type:
        raise ModelError(
            f"{where} lacks 'model_type', which says what its layers are; name the config.json of "
            f"a Hugging Face model, or {ONE_BY_ONE}."
        )
    return text, model_type


def _shape(reader: _Reader, model_type: str) -> ModelShape:
    rule = reader.rule
    hidden = reader.number("hidden_size", rule.hidden)
    heads = reader.number("num_attention_heads", rule.heads)
    experts = reader.experts()
    width, default = rule.expert_width or ("intermediate_size", rule.intermediate)
    return ModelShape(
        hidden=hidden,
        intermediate=reader.number(width, default, 4 * hidden),
        heads=heads,
        kv_heads=_kv_heads(reader, model_type, heads),
        head_dim=_head_dim(reader, hidden, heads),
        num_layers=reader.number("num_hidden_layers", rule.layers),
        qkv_bias=reader.bias(rule.qkv_bias),
        o_bias=reader.bias(rule.o_bias),
        mlp_bias=reader.bias(rule.mlp_bias),
        gated=rule.gated,
        moe=experts,
        shared=_shared(reader) if experts else 0,
        dense=_dense(reader) if experts else 0,
    )


def _kv_heads(reader: _Reader, model_type: str, heads: int) -> int:
    if model_type in ("falcon", "gpt_bigcode"):
        newer = model_type == "falcon" and reader.switch("new_decoder_architecture", False)
        if not newer:  # one head of keys and values serves all queries, or each has its own
            return 1 if reader.switch("multi_query", True) else heads
    return reader.number("num_key_value_heads", reader.rule.kv_heads, heads)


def _head_dim(reader: _Reader, hidden: int, heads: int) -> int:
    if reader.rule.head_dim is None and reader.config.get("head_dim") is None and hidden % heads:
        raise ModelError(
            f"{reader.where}: hidden_size = {hidden} is no multiple of num_attention_heads = "
            f"{heads} and there is no head_dim; correct the file, or {ONE_BY_ONE}."
        )
    return reader.number("head_dim", reader.rule.head_dim, hidden // heads)


def _shared(reader: _Reader) -> int:
    if reader.rule.shared is None:
        return 0
    name, default = reader.rule.shared
    found = reader.count(name, default)
    if name == SHARED_COUNT and reader.rule.expert_width is not None:
        return found * reader.number(*reader.rule.expert_width)  # side by side as one wide one
    return found


def _dense(reader: _Reader) -> int:
    """Width of the MLP in layers without experts; 0 where every layer has them."""
    if reader.rule.dense is None:
        return 0
    only = reader.config.get("mlp_only_layers")
    has_dense = (
        reader.count("interleave_moe_layer_step", 1) > 1
        or reader.count("decoder_sparse_step", 1) > 1
        or (isinstance(only, list) and bool(only))
        or (
            reader.rule.shared == (SHARED_COUNT, 1) and reader.count("first_k_dense_replace", 1) > 0
        )
    )
    name, default = reader.rule.dense
    return reader.number(name, default) if has_dense else 0


class _Reader:
    """Fields of a config.json by their common names, checked, and which were left out."""

    def __init__(self, config: dict[str, Any], rule: Rule, where: str) -> None:
        self.config, self.rule, self.where = config, rule, where
        self._left_out: dict[str, int] = {}

    def number(self, name: str, default: int | None, derived: int | None = None) -> int:
        """A positive integer. Left out: the type's default, else what is derived; null: derived."""
        own = self.rule.names.get(name, name)
        found = next((each for each in (own, name) if each in self.config), None)
        if found is None and default is not None:
            self._left_out[own] = default
            return default
        value = None if found is None else self.config[found]
        if value is None and derived is not None:
            return derived
        if value is None:
            raise ModelError(
                f"{self.where} lacks {own!r}, which the linear layers follow from; {ONE_BY_ONE}."
            )
        number = as_int(value)
        if number is None or number <= 0:
            raise ModelError(f"{self.where}: {found} = {shown(value)} must be a positive integer.")
        return number

    def count(self, name: str, default: int) -> int:
        """An integer from 0 on; the default where it is left out or null."""
        value = self.config.get(name)
        if value is None:
            return default
        number = as_int(value)
        if number is None or number < 0:
            raise ModelError(
                f"{self.where}: {name} = {shown(value)} must be an integer of at least 0."
            )
        return number

    def switch(self, name: str, default: bool) -> bool:
        """true or false; the default where it is left out or null."""
        value = self.config.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise ModelError(f"{self.where}: {name} = {shown(value)} must be true or false.")
        return value

    def bias(self, bias: Bias) -> bool:
        """Whether a projection has a bias."""
        return bias if isinstance(bias, bool) else self.switch(bias.name, bias.default)

    def experts(self) -> bool:
        """Whether the MLP is a mixture of experts."""
        counts = [self.count(name, 0) for name in EXPERT_FIELDS if name in self.config]
        if not counts and self.rule.experts is not None:
            return True
        return any(count > (0 if self.rule.experts else 1) for count in counts)

    def note(self, model_type: str) -> str:
        """Which numbers of the type's own stand for those that the file leaves out."""
        told = {
            name: value
            for name, value in self._left_out.items()
            if name not in ("num_hidden_layers", "n_layer")  # no layer's shape depends on it
        }
        if not told:
            return ""
        listed = ", ".join(f"{name} = {value}" for name, value in told.items())
        return f"{self.where} leaves out {listed}: those are the defaults of {model_type} models."
