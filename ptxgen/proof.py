"""Proof: why a winner is the winner, as it is stored beside it and exported with it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import Any

from ptxgen.bootstrap import Interval


@dataclass(frozen=True, slots=True)
class Proof:
    """What the finals showed of a winner.

    Ratios are of the same round, other time over the winner's: above 1 the winner is faster.

    Attributes:
        rounds: rounds in which all finalists took turns; 0 where they were timed one by one.
        time_us: the winner's median of round medians, with its interval.
        default_us: of the built-in default in the same window.
        cublas_us: of cuBLAS in the same window.
        previous_us: of the winner stored before, in the same window; None where there was none.
        over_default: default over winner, paired, with its interval.
        over_cublas: cuBLAS over winner, paired, with its interval.
        over_previous: earlier winner over winner, paired, with its interval.
        dequantized_us: of dequantize + matmul in the same window; None where it took no part.
        over_dequantized: dequantize + matmul over winner, paired, with its interval.
    """

    rounds: int
    time_us: Interval
    default_us: float | None = None
    cublas_us: float | None = None
    previous_us: float | None = None
    over_default: Interval | None = None
    over_cublas: Interval | None = None
    over_previous: Interval | None = None
    dequantized_us: float | None = None
    over_dequantized: Interval | None = None

    def to_dict(self) -> dict[str, Any]:
        """JSON-friendly."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Any) -> Proof:
        """Inverse of to_dict. Raises TypeError, KeyError or ValueError on anything else.

        The parts about dequantize + matmul may be missing, as in proofs of database schema 0002.
        """
        values = {"dequantized_us": None, "over_dequantized": None, **dict(data)}
        values["time_us"] = _interval(values["time_us"])
        for name in ("over_default", "over_cublas", "over_previous", "over_dequantized"):
            values[name] = None if values[name] is None else _interval(values[name])
        for name in ("default_us", "cublas_us", "previous_us", "dequantized_us"):
            values[name] = None if values[name] is None else _finite(name, values[name])
        if type(values["rounds"]) is not int or values["rounds"] < 0:
            raise ValueError(f"rounds = {values['rounds']!r:.60} is not a count")
        return cls(**values)


def _interval(data: Any) -> Interval:
    values = {item.name: data[item.name] for item in fields(Interval)}
    if len(data) != len(values):
        raise ValueError(f"{data!r:.100} is not an interval")
    numbers = {name: _finite(name, values[name]) for name in ("median", "low", "high")}
    return Interval(**numbers, count=int(values["count"]))


def _finite(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"{name} = {value!r:.60} is not a finite number")
    return float(value)
