"""The JSON form of what crosses a worker's pipe: requests, candidates, outcomes, devices.

JSON and not pickle: a reply of a broken worker is data to be checked, never code to be run.
"""

from __future__ import annotations

import math
from dataclasses import asdict, fields
from typing import Any

from db.records import DeviceRecord, Protocol
from ptxgen.evidence import Evidence
from ptxgen.families import config_from_dict
from ptxgen.outcome import Outcome, Resources, Status
from ptxgen.problem import Problem
from ptxgen.source import LaunchPlan
from search.evaluator import (
    Candidate,
    Contender,
    Dequantizer,
    Effort,
    EvaluateRequest,
    FinalsRequest,
    config_of,
)


class MessageError(ValueError):
    """A message that is not what the protocol says."""


def candidate_to_dict(candidate: Contender) -> dict[str, Any] | None:
    """JSON form of a contender: a dequantizer's config is null, and null is the cuBLAS baseline."""
    if candidate is None:
        return None
    config = config_of(candidate)
    return {
        "config": None if config is None else config.to_dict(),
        "plan": candidate.plan.to_dict(),
        "entry": candidate.entry,
        "cubin_path": candidate.cubin_path,
        "resources": asdict(candidate.resources),
        "source_digest": candidate.source_digest,
    }


def candidate_from_dict(data: dict[str, Any] | None) -> Contender:
    """Inverse of candidate_to_dict."""
    if data is None:
        return None
    kernel = Dequantizer(
        plan=LaunchPlan.from_dict(data["plan"]),
        entry=data["entry"],
        cubin_path=data["cubin_path"],
        resources=Resources(**data["resources"]),
        source_digest=data["source_digest"],
    )
    if data["config"] is None:
        return kernel
    return Candidate(
        config=config_from_dict(data["config"]),
        plan=kernel.plan,
        entry=kernel.entry,
        cubin_path=kernel.cubin_path,
        resources=kernel.resources,
        source_digest=kernel.source_digest,
    )


def request_to_dict(request: EvaluateRequest | FinalsRequest) -> dict[str, Any]:
    """JSON form of a request; its key "kind" says which one it is."""
    common = {
        "problem": request.problem.to_dict(),
        "m": request.m,
        "protocol": request.protocol.value,
    }
    if isinstance(request, FinalsRequest):
        return {
            "kind": "finals",
            **common,
            "candidates": [candidate_to_dict(item) for item in request.candidates],
            "rounds": request.rounds,
        }
    return {
        "kind": "evaluate",
        **common,
        "candidate": candidate_to_dict(request.candidate),
        "effort": request.effort.value,
        "stop_above_us": request.stop_above_us,
    }


def request_from_dict(data: dict[str, Any]) -> EvaluateRequest | FinalsRequest:
    """Inverse of request_to_dict. Raises MessageError for an unknown kind."""
    problem, protocol = Problem.from_dict(data["problem"]), Protocol(data["protocol"])
    if data["kind"] == "finals":
        candidates = tuple(candidate_from_dict(item) for item in data["candidates"])
        return FinalsRequest(problem, data["m"], protocol, candidates, data["rounds"])
    if data["kind"] == "evaluate":
        return EvaluateRequest(
            problem,
            data["m"],
            protocol,
            candidate_from_dict(data["candidate"]),
            Effort(data["effort"]),
            data["stop_above_us"],
        )
    raise MessageError(f"request kind {data['kind']!r} is not known")


def outcome_to_dict(outcome: Outcome) -> dict[str, Any]:
    """JSON form of an outcome. Raises MessageError where it is not an Outcome at all."""
    if not isinstance(outcome, Outcome):
        raise MessageError(f"the evaluator returned {type(outcome).__name__}, not an Outcome")
    return asdict(outcome)


def outcome_from_dict(data: Any, timed: bool = True) -> Outcome:
    """Inverse of outcome_to_dict, checked: the sender may be broken.

    Args:
        data: what came.
        timed: an OK must have a sane time; False where nothing was to be timed.

    Raises:
        MessageError: the data is no outcome.
    """
    known = {item.name for item in fields(Outcome)}
    if not isinstance(data, dict) or not data.keys() <= known or "status" not in data:
        raise MessageError(f"not an outcome: {str(data)[:200]}")
    try:
        values = dict(data)
        values["status"] = Status(values["status"])
        values["samples_us"] = tuple(float(item) for item in values.get("samples_us", ()))
        resources = values.get("resources")
        values["resources"] = Resources(**resources) if resources is not None else None
        evidence = values.get("evidence")
        values["evidence"] = None if evidence is None else Evidence.from_dict(evidence)
        for name in ("time_us", "spread", "rel_err", "floor_us"):
            if values.get(name) is not None:
                values[name] = float(values[name])
        outcome = Outcome(**values)
        return _with_sane_time(outcome) if timed else outcome
    except (TypeError, ValueError, KeyError) as error:
        raise MessageError(f"not an outcome: {error}") from error


def _with_sane_time(outcome: Outcome) -> Outcome:
    """An OK without a positive finite time is not OK: it must never become a winner."""
    time_us = outcome.time_us
    if outcome.status is not Status.OK or (
        time_us is not None and math.isfinite(time_us) and time_us > 0
    ):
        return outcome
    return Outcome(
        Status.NOISY,
        f"the measured time was {time_us}, which is not a positive number",
        rel_err=outcome.rel_err,
        resources=outcome.resources,
        floor_us=outcome.floor_us,
        evidence=outcome.evidence,
    )


def device_from_dict(data: Any) -> DeviceRecord:
    """A device record from asdict(record). Raises MessageError on anything else."""
    try:
        return DeviceRecord(**data)
    except TypeError as error:
        raise MessageError(f"not a device record: {error}") from error
