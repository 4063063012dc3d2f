"""What an adapter is: a contender's packing and its call, and nothing about timing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from ptxgen.errors import PtxtuneError
from ptxgen.problem import Problem
from ptxgen.weights.quantize import QuantizedWeight

Operand = tuple[Tensor, ...]
"""What one copy of a packed layer consists of; the copies that keep the L2 cold are its clones."""

Call = Callable[[Operand], Tensor]
"""Multiplies with one copy on the current stream, without synchronising; returns y [M, N]."""


class UnsupportedError(PtxtuneError):
    """A contender does not serve this problem or batch; the message says why."""


@dataclass(frozen=True, slots=True)
class BenchLayer:
    """The layer that every contender packs: the same integers, scales and zero points.

    Attributes:
        problem: what is computed.
        weight: q [N, K], scales and zeros [N, groups].
        bias: [N] in the problem's dtype; None where the problem has none.
    """

    problem: Problem
    weight: QuantizedWeight
    bias: Tensor | None


class Adapter(Protocol):
    """A contender. Made once a process, then used for one layer after the other."""

    def unsupported(self, problem: Problem, m: int) -> str:
        """Why this cannot be run; empty where it can."""
        ...

    def variants(self, problem: Problem) -> tuple[str, ...]:
        """Ways to run a layer, of which the fastest one counts; one where the package chooses."""
        ...

    def pack(self, layer: BenchLayer) -> Operand:
        """The layer in the contender's own layout, on the layer's device."""
        ...

    def bind(self, problem: Problem, x: Tensor, options: Mapping[str, Any]) -> Call:
        """The call for activations x [M, K] and a layer packed before.

        Args:
            problem: of the layer.
            x: activations in the problem's dtype.
            options: plain data of the request; our own kernels read their config from it. Its
                "variant" is one of the variants.
        """
        ...


class OneWay:
    """The part of an adapter whose package chooses by itself how it runs a layer."""

    def variants(self, problem: Problem) -> tuple[str, ...]:
        return ("",)


def nan_filled(x: Tensor, n: int) -> Tensor:
    """An output [M, N] for activations x [M, K] in which everything unwritten is seen."""
    return x.new_full((x.shape[0], n), math.nan)


def no_bias(problem: Problem, name: str) -> str:
    """The reason of contenders whose kernel adds no bias; empty where there is none to add."""
    return f"{name} adds no bias in its kernel" if problem.bias else ""
