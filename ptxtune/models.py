"""From a model's name and a tensor-parallel size to its linear layers, fused as in engines."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

from ptxgen.errors import ModelError
from ptxgen.problem import Dtype, Problem, Zero
from ptxtune.hf_config import read_config
from ptxtune.model_table import MODELS, ModelShape

WHOLE_K = -1
"""Group size on the command line that means one group over the whole of K."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One linear layer of one tensor-parallel rank.

    Attributes:
        name: qkv, o, gate_up (up where the MLP has no gate) or down.
        n: output features of the rank.
        k: input features of the rank.
        bias: whether the layer has a bias.
    """

    name: str
    n: int
    k: int
    bias: bool = False

    def problem(
        self,
        group_size: int = 128,
        dtype: Dtype = "fp16",
        zero: Zero = "sym",
        bias: bool | None = None,
    ) -> Problem:
        """The layer as a problem; group_size -1 is whole K, bias None is the model's own.

        Raises:
            ProblemError: N or K cannot be packed, or a group straddles two ranks.
        """
        group = self.k if group_size == WHOLE_K else group_size
        has_bias = self.bias if bias is None else bias
        return Problem(self.n, self.k, group, dtype, zero, has_bias)


@dataclass(frozen=True, slots=True)
class Model:
    """A model's dense linear layers for one rank, and what is left out of them.

    Attributes:
        name: as it was asked for.
        tp: tensor-parallel size.
        layers: in the order of a decoder layer.
        note: what the layers do not cover; empty where they are complete.
    """

    name: str
    tp: int
    layers: tuple[Layer, ...]
    note: str = ""


def model_layers(name: str, tp: int = 1) -> Model:
    """The linear layers of a model.

    Column-parallel layers (qkv, gate_up) are split along N, row-parallel ones (o, down) along K;
    key/value heads are replicated where there are fewer than ranks.

    Args:
        name: a known model, or a path to a config.json or its folder.
        tp: tensor-parallel size, 1 or more.

    Raises:
        ModelError: unknown name, unreadable config, or a tp that does not divide the model.
    """
    shape = model_shape(name)
    if isinstance(tp, bool) or not isinstance(tp, int) or tp < 1:
        raise ModelError(f"tp = {tp!r} is not a tensor-parallel size; it must be 1 or more.")
    attention = _attention(shape, tp, name)
    if shape.moe:
        note = (
            f"{name} is a mixture of experts: only its dense layers (qkv, o) are listed; its "
            f"expert layers need a grouped kernel."
        )
        return Model(name, tp, attention, note)
    return Model(name, tp, attention + _mlp(shape, tp, name))


def model_shape(name: str) -> ModelShape:
    """The shape of a known model or of a config.json. Raises ModelError with the closest names."""
    known = MODELS.get(name.lower().removesuffix("-instruct"))
    if known is not None:
        return known
    path = Path(name).expanduser()
    if name.endswith(".json") or path.is_dir() or "/" in name:
        return read_config(path)
    close = difflib.get_close_matches(name.lower(), MODELS, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(close)}? " if close else ""
    raise ModelError(
        f"model {name!r} is not known; {hint}Known models are {', '.join(MODELS)}; or give a path "
        f"to its config.json."
    )


def _attention(shape: ModelShape, tp: int, name: str) -> tuple[Layer, ...]:
    _divides(name, "attention heads", shape.heads, tp)
    if shape.kv_heads >= tp:
        _divides(name, "key/value heads", shape.kv_heads, tp)
    elif tp % shape.kv_heads:
        raise ModelError(
            f"tp = {tp} cannot replicate the {shape.kv_heads} key/value heads of {name}: it must "
            f"be a multiple of {shape.kv_heads} where it is larger; choose another --tp."
        )
    heads, kv_heads = shape.heads // tp, max(1, shape.kv_heads // tp)
    qkv = Layer("qkv", (heads + 2 * kv_heads) * shape.head_dim, shape.hidden, shape.qkv_bias)
    return qkv, Layer("o", shape.hidden, heads * shape.head_dim, shape.o_bias)


def _mlp(shape: ModelShape, tp: int, name: str) -> tuple[Layer, ...]:
    _divides(name, "MLP features", shape.intermediate, tp)
    width = shape.intermediate // tp
    up = ("gate_up", 2 * width) if shape.gated else ("up", width)
    down = Layer("down", shape.hidden, width, shape.mlp_bias)
    return Layer(*up, shape.hidden, shape.mlp_bias), down


def _divides(name: str, what: str, count: int, tp: int) -> None:
    if count % tp:
        divisors = [str(size) for size in range(1, 65) if count % size == 0]
        raise ModelError(
            f"tp = {tp} does not divide the {count} {what} of {name}; choose --tp from "
            f"{', '.join(divisors)}."
        )
