"""What to run after a tuning run: commands that answer for what was tuned, and run as printed."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from ptxgen.problem import Problem
from ptxtune.options import protocols_of
from ptxtune.selection import Selection

DEFAULTS: Mapping[str, object] = {"tp": 1, "group": 128, "dtype": "fp16", "zero": "sym"}
"""Options of a layer that need not be said, with the values that they then have."""


def next_steps(
    selection: Selection,
    batches: Sequence[int],
    *,
    layer: Mapping[str, Any],
    protocol: str,
    batch_invariant: bool,
    gpu: str | None,
    db: str | None,
) -> str:
    """Lines with best, export and report for what ptxtune tune was asked.

    Args:
        selection: the problems that were tuned.
        batches: the M.
        layer: --n, --k, --model and what goes with them, by name, as they were given.
        protocol: plain, chained or both.
        batch_invariant: whether it was limited to batch-invariant kernels.
        gpu: to be named again; None where the same one is found by itself.
        db: database; None for the user's.
    """
    place = [*_said("gpu", gpu), *_said("db", db)]
    kind = ["--batch-invariant"] if batch_invariant else []
    sizes = ["--m", ",".join(map(str, batches))]
    lines = []
    for word in protocols_of(protocol):
        launches = _said("protocol", word if word != "plain" else None)
        rest = [*sizes, *launches, *kind, *place]
        suffix = f"-{word}" if len(protocols_of(protocol)) > 1 else ""
        first = selection.problems[0]
        lines += [
            ["best", *_layer(layer), *rest],
            ["export", *_problem(first), *rest, "--out", f"bundle{suffix}"],
        ]
    if not batch_invariant:  # which a report of ordinary winners does not show
        lines.append(["report", *place, "--html", "report.html"])
    told = [shlex.join(("ptxtune", *words)) for words in lines]
    return "\nNext: " + "\n      ".join(told)


def _layer(layer: Mapping[str, Any]) -> list[str]:
    """What was asked for, as it was given."""
    words: list[str] = []
    for name in ("n", "k", "model", "tp", "group", "dtype", "zero"):
        value = layer.get(name)
        words += _said(name, None if value == DEFAULTS.get(name) else value)
    bias = layer.get("bias")
    return words if bias is None else [*words, "--bias" if bias else "--no-bias"]


def _problem(problem: Problem) -> list[str]:
    """One problem, whatever it came from: a bundle holds one."""
    group = -1 if problem.whole_k else problem.group_size
    given = {**problem.to_dict(), "group": group, "bias": problem.bias or None}
    return _layer(given)


def _said(name: str, value: object) -> list[str]:
    return [] if value is None else [f"--{name}", str(value)]
