"""Trial rows: one shared trial as a JSON object and back, checked field by field."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

from db.records import Protocol
from ptxgen.config import KernelConfig
from ptxgen.families import config_from_dict
from ptxgen.outcome import Status
from ptxgen.problem import Problem, check_m


@dataclass(frozen=True, slots=True)
class SharedTrial:
    """One ended trial of a kernel of ours.

    Attributes:
        environment: index into the file's environments.
        won: whether it was the winner of its problem, M and protocol when it was written.
        measured_at: date and time, ISO 8601; empty where it is not known.

    The other attributes are those of the trial and its outcome.
    """

    problem: Problem
    m: int
    protocol: Protocol
    config: KernelConfig
    status: Status
    time_us: float | None = None
    spread: float | None = None
    rel_err: float | None = None
    floor_us: float | None = None
    source_digest: str = ""
    measured_at: str = ""
    won: bool = False
    environment: int = 0

    def __post_init__(self) -> None:
        check_m(self.m)
        if (self.status is Status.OK) != (self.time_us is not None):
            raise ValueError(f"status {self.status.value} with time_us {self.time_us}")
        for name in ("time_us", "spread", "rel_err", "floor_us"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} = {value} is not a number >= 0")
        if self.time_us == 0:
            raise ValueError("time_us = 0 is no time")


_TEXT = ("source_digest", "measured_at")
_NUMBERS = ("time_us", "spread", "rel_err", "floor_us")


def trial_to_row(trial: SharedTrial) -> dict[str, Any]:
    """JSON form; what is not known is left out."""
    row: dict[str, Any] = {
        "problem": trial.problem.to_dict(),
        "m": trial.m,
        "protocol": trial.protocol.value,
        "config": trial.config.to_dict(),
        "status": trial.status.value,
    }
    for item in fields(SharedTrial):
        value = getattr(trial, item.name)
        if item.name not in row and value != item.default:
            row[item.name] = value
    return row


def trial_from_row(row: dict[str, Any]) -> SharedTrial:
    """Inverse of trial_to_row.

    Raises:
        KeyError, TypeError, ValueError, PtxtuneError: the row is no trial; the text says why.
    """
    values = dict(row)
    unknown = values.keys() - {item.name for item in fields(SharedTrial)}
    if unknown:
        raise ValueError(f"unknown keys {', '.join(sorted(unknown))}")
    for name in _TEXT:
        if not isinstance(values.get(name, ""), str):
            raise TypeError(f"{name} is no text")
    for name in _NUMBERS:
        value = values.get(name)
        if value is not None:
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise TypeError(f"{name} is no number")
            values[name] = float(value)
    if not isinstance(values.get("won", False), bool):
        raise TypeError("won is neither true nor false")
    if not isinstance(values.get("environment", 0), int):
        raise TypeError("environment is no index")
    if not isinstance(values["problem"], dict):
        raise TypeError("problem is no object")
    values["problem"] = Problem.from_dict(values["problem"])
    values["protocol"] = Protocol(values["protocol"])
    values["config"] = config_from_dict(values["config"])
    values["status"] = Status(values["status"])
    return SharedTrial(**values)
