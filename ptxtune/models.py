"""From a model's name and a tensor-parallel size to its linear layers, fused as in engines."""

from __future__ import annotations

import re
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from ptxgen.arguments import integer, path
from ptxgen.errors import ModelError, ProblemError
from ptxgen.problem import Dtype, Problem, Zero
from ptxgen.suggestion import did_you_mean
from ptxtune.hf_config import Described, config_file, describe, load_config
from ptxtune.model_table import HUB_NAMES, MODELS, ModelShape

WHOLE_K = -1
"""Group size on the command line that means one group over the whole of K."""

VARIANT = re.compile(r"instruct|chat|it|base|pt|hf|v\d+(\.\d+)*|2[3-9](0[1-9]|1[0-2])|\d+k")
"""Words of hub names that change no shape: training, version, month, length of the context."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One linear layer of one tensor-parallel rank.

    Attributes:
        name: qkv, o, gate_up (up where the MLP has no gate) or down; shared_ before the latter two
            for the expert that every token goes through.
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
        try:
            return Problem(self.n, self.k, group, dtype, zero, has_bias)
        except ProblemError as error:
            if not self.name:
                raise
            raise ProblemError(f"layer {self.name} ({self.n} x {self.k}): {error}") from None


@dataclass(frozen=True, slots=True)
class Model:
    """A model's dense linear layers for one rank, and what is left out of them.

    Attributes:
        name: as it was asked for.
        tp: tensor-parallel size.
        layers: in the order of a decoder layer.
        note: what the layers do not cover or was left out; empty where they are complete.
        source: the config.json they come from; None for a model of the table.
    """

    name: str
    tp: int
    layers: tuple[Layer, ...]
    note: str = ""
    source: Path | None = None


def model_layers(name: str | PathLike[str], tp: int = 1) -> Model:
    """The linear layers of a model.

    Column-parallel layers (qkv, gate_up) are split along N, row-parallel ones (o, down) along K;
    key/value heads are replicated where there are fewer than ranks.

    Args:
        name: a known model, with or without its organisation (meta-llama/Llama-3.1-8B-Instruct),
            or a path to a config.json or its folder; a Path is always one.
        tp: tensor-parallel size, 1 or more.

    Raises:
        ModelError: unknown name, unreadable config, or a tp that does not divide the model.
    """
    ranks = integer(tp, "tp", error=ModelError)
    if ranks < 1:
        raise ModelError(f"tp = {ranks} is not a tensor-parallel size; it must be 1 or more.")
    title = str(name)
    source = _source(name)
    if source is None:
        described = Described(MODELS[_known(title) or _unknown(title)])
    else:
        described = describe(load_config(source), str(source))
    shape = described.shape
    layers = _attention(shape, ranks, title)
    notes = [described.note]
    if not shape.moe:
        layers += _mlp(shape.intermediate, shape, ranks, title)
    else:
        layers += _mlp(shape.shared, shape, ranks, title, "shared_")
        layers += _mlp(shape.dense, shape, ranks, title)
        notes.append(
            f"{title} is a mixture of experts: only its dense layers "
            f"({', '.join(layer.name for layer in layers)}) are listed; its expert layers need a "
            f"grouped kernel."
        )
    return Model(title, ranks, layers, "\n".join(filter(None, notes)), source)


def _source(name: str | PathLike[str]) -> Path | None:
    """The config.json that the name means; None where it is a model of the table."""
    if not isinstance(name, str):
        return config_file(path(name, "model", error=ModelError))
    if not name or "\0" in name:
        raise ModelError(f"model {name!r} is no name and no path; give one, such as llama-3.1-8b.")
    looks_like_path = "/" in name or name.endswith(".json") or name.startswith("~")
    if not looks_like_path:
        file = Path(name)
        is_known = _known(name) is not None  # a known name goes before a folder that has it
        return config_file(file) if not is_known and _is_folder(file) else None
    file = path(name, "model", error=ModelError)
    looks_like_hub = name.count("/") == 1 and name[0] not in "/.~" and not name.endswith(".json")
    if looks_like_hub and not _exists(file):
        return None
    return config_file(file)


def _is_folder(file: Path) -> bool:
    try:
        return file.is_dir()
    except OSError:
        return False


def _exists(file: Path) -> bool:
    try:
        return file.exists()
    except OSError:  # it may be there: reading it tells
        return True


def _known(name: str) -> str | None:
    """The table's name of a model, named as in the table or as hubs do; None where it has none."""
    parts = name.split("/")
    if len(parts) > 2 or not all(parts):
        return None
    plain = parts[-1].lower()
    if plain in MODELS:
        return plain
    words = [word for word in plain.split("-") if not VARIANT.fullmatch(word)]
    if len(words) > 1 and words[0] == "meta":
        words = words[1:]
    short = "-".join(words)
    short = HUB_NAMES.get(short, short)
    return short if short in MODELS else None


def _unknown(name: str) -> str:
    hint = did_you_mean(name.rpartition("/")[2], MODELS)
    raise ModelError(
        f"model {name!r} is not known; {hint}Known models are "
        f"{', '.join(MODELS)}; or give a path to its config.json."
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


def _mlp(width: int, shape: ModelShape, tp: int, name: str, prefix: str = "") -> tuple[Layer, ...]:
    """Both projections of an MLP; none where its width is 0."""
    if not width:
        return ()
    _divides(name, "MLP features", width, tp)
    rank = width // tp
    up = (f"{prefix}gate_up", 2 * rank) if shape.gated else (f"{prefix}up", rank)
    down = Layer(f"{prefix}down", shape.hidden, rank, shape.mlp_bias)
    return Layer(*up, shape.hidden, shape.mlp_bias), down


def _divides(name: str, what: str, count: int, tp: int) -> None:
    if count % tp:
        divisors = [str(size) for size in range(1, 65) if count % size == 0]
        raise ModelError(
            f"tp = {tp} does not divide the {count} {what} of {name}; choose --tp from "
            f"{', '.join(divisors)}."
        )
