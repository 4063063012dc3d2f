"""From command-line words to problems: one layer, or all layers of a model, in each dtype."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from ptxgen.errors import ProblemError
from ptxgen.problem import Dtype, Problem, Zero
from ptxtune.models import Layer, model_layers

BOTH = "both"


@dataclass(frozen=True, slots=True)
class Selection:
    """The problems of a command.

    Attributes:
        problems: without repetition, in the order of the layers.
        layer_names: (n, k) to the layer's names, such as "qkv"; empty where no model was named.
        note: what a model's layers do not cover.
    """

    problems: tuple[Problem, ...]
    layer_names: dict[tuple[int, int], str]
    note: str = ""


def select_problems(
    *,
    n: int | None,
    k: int | None,
    model: str | None = None,
    tp: int = 1,
    group: int = 128,
    dtype: str = "fp16",
    zero: Zero = "sym",
    bias: bool | None = None,
) -> Selection:
    """The problems of --n and --k, or of --model.

    Raises:
        ProblemError: neither or both were given, or a layer cannot be packed.
        ModelError: the model is unknown or cannot be split.
    """
    note = ""
    if model is not None:
        if n is not None or k is not None:
            raise ProblemError(
                "--model and --n/--k exclude each other; give the model's name or one layer."
            )
        found = model_layers(model, tp)
        layers, note = found.layers, found.note
    elif n is None or k is None:
        raise ProblemError(
            f"a problem needs --n and --k (got --n {n}, --k {k}), or --model; for example "
            f"--n 4096 --k 4096, or --model llama-3.1-8b."
        )
    elif tp != 1:
        raise ProblemError(f"--tp {tp} splits a --model; with --n and --k give one rank's share.")
    else:
        layers = (Layer("", n, k),)
    problems = tuple(
        layer.problem(group, kind, zero, bias) for kind in dtypes_of(dtype) for layer in layers
    )
    return Selection(tuple(dict.fromkeys(problems)), layer_names(layers), note)


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
