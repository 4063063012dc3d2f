"""From command-line words to problems: one layer, or all layers of a model, in each dtype."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from os import PathLike
from typing import Any, cast, get_args

from db.records import Protocol
from ptxgen.arguments import choice, flag, integer
from ptxgen.errors import ProblemError
from ptxgen.problem import Dtype, Problem, Zero
from ptxtune.checkpoint import dtype_of, quantization_of
from ptxtune.hf_config import load_config
from ptxtune.models import Layer, Model, model_layers

BOTH = "both"
PROTOCOLS = tuple(protocol.value for protocol in Protocol)
GROUP = 128
DTYPE: Dtype = "fp16"
ZERO: Zero = "sym"
"""What a layer is where neither the caller nor the model's config.json says it."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The problems of a command.

    Attributes:
        problems: without repetition, in the order of the layers.
        layer_names: (n, k) to the layer's names, such as "qkv"; empty where no model was named.
        note: what a model's layers do not cover, and where options replace what it says.
    """

    problems: tuple[Problem, ...]
    layer_names: dict[tuple[int, int], str]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Quantities:
    """Group size, dtype (or both) and zero points of a command's layers."""

    group: int
    dtype: str
    zero: Zero


def select_problems(
    *,
    n: int | None,
    k: int | None,
    model: str | PathLike[str] | None = None,
    tp: int = 1,
    group: int | None = None,
    dtype: str | None = None,
    zero: str | None = None,
    bias: bool | None = None,
) -> Selection:
    """The problems of n and k, or of a model. This is where words and numbers from outside end.

    Args:
        n: output features of one layer.
        k: input features of one layer.
        model: a known name, or the path of a config.json or its folder.
        tp: tensor-parallel size of the model.
        group: inputs that share a scale, -1 for the whole of K; None: as the model's config.json
            says, else 128.
        dtype: fp16, bf16 or both; None: as the config.json says, else fp16.
        zero: sym or int; None: as the config.json says, else sym.
        bias: None: as the model has them.

    Raises:
        ProblemError: neither or both were given, or a layer cannot be packed.
        ModelError: the model is unknown, cannot be split, or is quantized as no kernel serves it.
        ArgumentError: a value of another type.
    """
    note = ""
    if model is not None:
        if n is not None or k is not None:
            raise ProblemError(
                "--model and --n/--k exclude each other; give the model's name or one layer."
            )
        found = model_layers(model, tp)
        quantities, said = _of_model(found, group, dtype, zero)
        layers, note = found.layers, "\n".join(filter(None, (found.note, said)))
    elif n is None or k is None:
        raise ProblemError(
            f"a problem needs --n and --k (got --n {n}, --k {k}), or --model; for example "
            f"--n 4096 --k 4096, or --model llama-3.1-8b."
        )
    elif integer(tp, "tp") != 1:
        raise ProblemError(f"--tp {tp} splits a --model; with --n and --k give one rank's share.")
    else:
        layers, quantities = (Layer("", n, k),), quantities_of(group, dtype, zero)
    return Selection(problems_of(layers, quantities, bias), layer_names(layers), note)


def quantities_of(group: Any, dtype: Any, zero: Any) -> Quantities:
    """Checked, with the defaults in place of None. Raises ArgumentError or ProblemError."""
    return Quantities(
        GROUP if group is None else integer(group, "group", error=ProblemError),
        DTYPE if dtype is None else choice(dtype, "dtype", (*get_args(Dtype), BOTH)),
        ZERO if zero is None else cast(Zero, choice(zero, "zero", get_args(Zero))),
    )


def problems_of(
    layers: Iterable[Layer], quantities: Quantities, bias: Any = None
) -> tuple[Problem, ...]:
    """The problems of layers in each dtype, without repetition. Raises ProblemError."""
    has_bias = None if bias is None else flag(bias, "bias", error=ProblemError)
    found = (
        layer.problem(quantities.group, kind, quantities.zero, has_bias)
        for kind in dtypes_of(quantities.dtype)
        for layer in layers
    )
    return tuple(dict.fromkeys(found))


def dtypes_of(word: str) -> tuple[Dtype, ...]:
    """fp16, bf16, or both of them."""
    found: tuple[Dtype, ...] = get_args(Dtype)
    return found if word == BOTH else tuple(kind for kind in found if kind == word)


def layer_names(layers: tuple[Layer, ...]) -> dict[tuple[int, int], str]:
    """(n, k) to name; layers of one size share it, such as "qkv/o"."""
    names: dict[tuple[int, int], str] = {}
    for layer in layers:
        if layer.name:
            known = names.get((layer.n, layer.k))
            names[layer.n, layer.k] = f"{known}/{layer.name}" if known else layer.name
    return names


def _of_model(model: Model, group: Any, dtype: Any, zero: Any) -> tuple[Quantities, str]:
    """What the options say, else the model's config.json, else the defaults; and a note."""
    asked = quantities_of(group, dtype, zero)
    if model.source is None:
        return asked, ""
    config, where = load_config(model.source), str(model.source)
    both_asked = group is not None and zero is not None
    stored = None if both_asked else quantization_of(config, where)
    found = Quantities(
        stored.group if stored and group is None else asked.group,
        (dtype_of(config, where) or DTYPE) if dtype is None else asked.dtype,
        stored.zero if stored and zero is None else asked.zero,
    )
    if stored is None or (found.group, found.zero) == (stored.group, stored.zero):
        return found, ""
    return found, (
        f"{where} stores groups of {stored.group} and zero points {stored.zero}; the options "
        f"replace them by {found.group} and {found.zero}."
    )
