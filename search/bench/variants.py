"""Variants: of several ways in which a package can run a layer, the fastest right one."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from search.bench.base import Call, Operand
from search.cuda_errors import loses_context
from search.rounds import Timed

SCREEN_SAMPLES = 5


@dataclass(slots=True)
class Running:
    """A contender bound to its copies; `last` is the output of its newest launch."""

    call: Call
    copies: list[Operand]
    last: Tensor | None = None

    def launch(self, copy: int) -> None:
        """Launches on a copy, on the current stream."""
        self.last = self.call(self.copies[copy])


@dataclass(frozen=True, slots=True)
class Prepared:
    """A variant that was run once.

    Attributes:
        found: "rel_err", "wrong" (empty where it is right) and "variant".
        running: its launches.
        timed: the captured launches; None where it is wrong.
    """

    found: dict[str, Any]
    running: Running
    timed: Timed | None


def fastest(names: Sequence[str], prepare: Callable[[str], Prepared]) -> Prepared:
    """The fastest right variant; a wrong one where none is right.

    Args:
        names: of the variants, one at least.
        prepare: checks and captures one.

    Raises:
        RuntimeError: the only variant, or every one of several, was refused by its package; or
            the CUDA context is lost.
    """
    if len(names) == 1:
        return prepare(names[0])
    best: tuple[float, Prepared] | None = None
    refusal: RuntimeError | None = None
    for name in names:
        try:
            item = prepare(name)
        except RuntimeError as error:
            if loses_context(error) or isinstance(error, torch.OutOfMemoryError):
                raise
            refusal = error  # not every schedule serves every shape
            continue
        time_us = _screened(item.timed)
        if best is None or time_us < best[0]:
            best = (time_us, item)
    if best is not None:
        return best[1]
    raise refusal or ValueError("there are no variants to choose from")


def _screened(timed: Timed | None) -> float:
    if timed is None:
        return float("inf")
    return statistics.median(timed.samples_us(SCREEN_SAMPLES, warmups=1))
