"""The layers of a comparison: one, a list, a model's or a checkpoint's."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

import click

from ptxgen.errors import ProblemError
from ptxgen.problem import Zero
from ptxtune.checkpoint import read_checkpoint
from ptxtune.models import Layer
from ptxtune.selection import (
    Quantities,
    Selection,
    layer_names,
    problems_of,
    quantities_of,
    select_problems,
)

LAYER = re.compile(r"\s*(\d+)\s*[xX]\s*(\d+)\s*")


@dataclass(frozen=True, slots=True)
class LayerOptions:
    """The options that name layers, as they stand on the command line; None where left out."""

    n: int | None = None
    k: int | None = None
    layers: tuple[Layer, ...] = ()
    model: str | None = None
    checkpoint: Path | None = None
    tp: int = 1
    group: int | None = None
    dtype: str | None = None
    zero: Zero | None = None
    bias: bool | None = None


def parse_layers(
    _context: click.Context, _option: click.Parameter, text: str | None
) -> tuple[Layer, ...]:
    """Layers from 4096x4096,6144x4096: N x K each.

    Raises:
        click.BadParameter: a word is no layer.
    """
    if text is None:
        return ()
    found = []
    for word in text.split(","):
        match = LAYER.fullmatch(word)
        if match is None:
            raise click.BadParameter(
                f"{word!r} is no layer; write output features x input features, such as "
                f"4096x14336, and a comma between layers."
            )
        found.append(Layer("", int(match[1]), int(match[2])))
    return tuple(found)


def select_layers(options: LayerOptions) -> Selection:
    """The problems that the options name.

    Raises:
        ProblemError: none or several of --n/--k, --layers, --model and --checkpoint, or a layer
            that cannot be packed.
        ModelError: an unknown model, or a checkpoint that is not a 4-bit one.
    """
    sources = {
        "--n/--k": options.n is not None or options.k is not None,
        "--layers": bool(options.layers),
        "--model": options.model is not None,
        "--checkpoint": options.checkpoint is not None,
    }
    given = [name for name, present in sources.items() if present]
    if len(given) > 1:
        raise ProblemError(f"{' and '.join(given)} exclude each other; name the layers once.")
    if not given:
        raise ProblemError(
            "no layers are named; give some with --layers 4096x4096,6144x4096, or --model "
            "llama-3.1-8b, or --checkpoint FOLDER."
        )
    if options.checkpoint is not None:
        return _of_checkpoint(options, options.checkpoint)
    if not options.layers:
        return select_problems(
            n=options.n,
            k=options.k,
            model=options.model,
            tp=options.tp,
            group=options.group,
            dtype=options.dtype,
            zero=options.zero,
            bias=options.bias,
        )
    if options.tp != 1:
        raise ProblemError(f"--tp {options.tp} splits a --model; give one rank's --layers.")
    quantities = quantities_of(options.group, options.dtype, options.zero)
    return _selection(options.layers, quantities, options.bias)


def _of_checkpoint(options: LayerOptions, path: Path) -> Selection:
    if options.group is not None or options.zero is not None:
        raise ProblemError(
            f"--group and --zero follow from --checkpoint {path}; leave them out, or name its "
            f"shapes with --model."
        )
    found = read_checkpoint(path, options.tp)
    quantities = quantities_of(found.group, options.dtype or found.dtype, found.zero)
    selection = _selection(found.model.layers, quantities, options.bias)
    return replace(selection, note=found.model.note)


def _selection(layers: tuple[Layer, ...], quantities: Quantities, bias: bool | None) -> Selection:
    return Selection(problems_of(layers, quantities, bias), layer_names(layers))
