"""Rows: table rows to plain records and back; no queries.

Every reading function raises DamagedRowError, which names table and row, for a row that no ptxtune
wrote so.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import asdict, fields
from typing import Any, TypeVar

from db.damage import checked, damaged, is_number, shown
from db.models import ConfigRow, Device, ProblemRow, Run, Toolchain, Trial, Winner
from db.records import (
    DeviceRecord,
    Protocol,
    RunRecord,
    ToolchainRecord,
    TrialRecord,
    WinnerRecord,
)
from ptxgen.config import KernelConfig
from ptxgen.errors import ConfigError, PtxtuneError
from ptxgen.evidence import Evidence
from ptxgen.families import config_from_dict
from ptxgen.outcome import Outcome, Resources, Status
from ptxgen.problem import Problem, check_m
from ptxgen.proof import Proof

TIMED_STATUSES = (Status.OK, Status.PREDICTED)
DEVICE_FIELDS = tuple(item.name for item in fields(DeviceRecord))


T = TypeVar("T")
_CAPABILITY = re.compile(r"[1-9][0-9]?\.[0-9]", re.ASCII)


def device_record(row: Device) -> DeviceRecord:
    checked(row)
    if not _CAPABILITY.fullmatch(row.capability):
        raise damaged(row, f"capability is {shown(row.capability)}")
    return DeviceRecord(**{name: getattr(row, name) for name in DEVICE_FIELDS})


def toolchain_values(record: ToolchainRecord) -> dict[str, str]:
    """Column values; "commit" is a reserved word in SQL."""
    values = asdict(record)
    values["source_commit"] = values.pop("commit")
    return values


def toolchain_record(row: Toolchain) -> ToolchainRecord:
    checked(row)
    return ToolchainRecord(row.driver, row.nvrtc, row.ptxtune, row.torch, row.source_commit)


def problem_record(row: ProblemRow) -> Problem:
    checked(row)
    values = {name: getattr(row, name) for name in Problem.__slots__}
    problem = _read(row, "it is no problem", lambda: Problem.from_dict(values))
    if problem.key() != row.key:
        raise damaged(row, f"key is {shown(row.key)}, and its values are those of {problem.key()}")
    return problem


def config_record(row: ConfigRow | None) -> KernelConfig | None:
    """None for a baseline, and for a config that this version's families no longer know."""
    if row is None:
        return None
    checked(row)
    if not isinstance(row.data, dict):
        raise damaged(row, f"data is {shown(row.data)}")
    return _known_config(row.data)


def run_record(row: Run) -> RunRecord:
    checked(row)
    if not isinstance(row.settings, dict):
        raise damaged(row, f"settings is {shown(row.settings)}")
    return RunRecord(
        id=row.id,
        device=device_record(_linked(row, "device")),
        toolchain=toolchain_record(_linked(row, "toolchain")),
        started_at=row.started_at,
        ended_at=row.ended_at,
        settings=dict(row.settings),
    )


def outcome_fault(outcome: Outcome) -> str:
    """Why an outcome cannot be stored as a trial's end; empty where it can."""
    if outcome.status is Status.STARTED:
        return "status started is not an end"
    if outcome.status not in TIMED_STATUSES:
        return ""
    time_us = outcome.time_us
    if time_us is None or not math.isfinite(time_us) or time_us <= 0:
        return f"status {outcome.status.value} needs a positive time, not {time_us}"
    numbers = (outcome.spread, outcome.rel_err, outcome.floor_us, *outcome.samples_us)
    if not all(math.isfinite(number) for number in numbers if number is not None):
        return "its samples, spread, error or floor are not all finite"
    return ""


def outcome_values(outcome: Outcome) -> dict[str, Any]:
    """Column values of an outcome; only ok and predicted trials have a time.

    A failed trial may carry NaN or infinity (the error of a wrong result): stored as NULL.
    """
    resources = outcome.resources
    return {
        "status": outcome.status.value,
        "message": outcome.message,
        "time_us": outcome.time_us if outcome.status in TIMED_STATUSES else None,
        "spread": _finite(outcome.spread),
        "samples_us": [sample for sample in outcome.samples_us if math.isfinite(sample)],
        "rel_err": _finite(outcome.rel_err),
        "floor_us": _finite(outcome.floor_us),
        "clock_mhz": outcome.clock_mhz,
        "evidence": outcome.evidence.to_dict() if outcome.evidence else None,
        "registers": resources.registers if resources else None,
        "spill_bytes": resources.spill_bytes if resources else None,
        "smem_bytes": resources.smem_bytes if resources else None,
        "compile_ms": resources.compile_ms if resources else None,
    }


def outcome_record(row: Trial) -> Outcome:
    status = _read(row, "status", lambda: Status(row.status))
    if status in TIMED_STATUSES and not (row.time_us is not None and row.time_us > 0):
        raise damaged(row, f"status is {status.value} and time_us is {shown(row.time_us)}")
    if not isinstance(row.samples_us, list) or not all(map(is_number, row.samples_us)):
        raise damaged(row, f"samples_us is {shown(row.samples_us)}")
    return Outcome(
        status=status,
        message=row.message,
        time_us=row.time_us,
        spread=row.spread,
        samples_us=tuple(row.samples_us),
        rel_err=row.rel_err,
        resources=_resources(row),
        floor_us=row.floor_us,
        clock_mhz=row.clock_mhz,
        evidence=_evidence(row),
    )


def trial_record(row: Trial) -> TrialRecord:
    checked(row)
    return TrialRecord(
        id=row.id,
        run_id=row.run_id,
        problem=problem_record(_linked(row, "problem")),
        m=_read(row, "m", lambda: check_m(row.m)),
        protocol=_read(row, "protocol", lambda: Protocol(row.protocol)),
        contender=row.contender,
        config=config_record(row.config if row.config_id is None else _linked(row, "config")),
        source_digest=row.source_digest,
        outcome=outcome_record(row),
        started_at=row.started_at,
        ended_at=row.ended_at,
    )


def winner_record(row: Winner) -> WinnerRecord | None:
    """None for a winner whose config this version's families no longer know."""
    checked(row)
    trial = _linked(row, "trial")
    attempt = trial_record(trial)
    config, outcome = attempt.config, attempt.outcome
    if config is None:
        return None
    if outcome.time_us is None:
        raise damaged(row, f"its trial {trial.id} has no time ({outcome.status.value})")
    if not isinstance(row.ties, list) or not all(isinstance(tie, dict) for tie in row.ties):
        raise damaged(row, f"ties is {shown(row.ties)}")
    run = _linked(trial, "run")
    return WinnerRecord(
        trial_id=trial.id,
        device=device_record(_linked(run, "device")),
        toolchain=toolchain_record(_linked(run, "toolchain")),
        problem=attempt.problem,
        m=_read(row, "m", lambda: check_m(row.m)),
        protocol=_read(row, "protocol", lambda: Protocol(row.protocol)),
        config=config,
        source_digest=trial.source_digest,
        time_us=outcome.time_us,
        spread=outcome.spread,
        rel_err=outcome.rel_err,
        floor_us=outcome.floor_us,
        default_us=row.default_us,
        cublas_us=row.cublas_us,
        predicted=row.predicted,
        measured_at=trial.ended_at or trial.started_at,
        ties=tuple(tie for tie in map(_known_config, row.ties) if tie is not None),
        clock_mhz=outcome.clock_mhz,
        evidence=outcome.evidence,
        proof=_proof(row),
        protocol_version=trial.protocol_version,
        layout_version=trial.layout_version,
        batch_invariant=row.batch_invariant,
        resources=outcome.resources,
        dequantized_us=row.dequantized_us,
    )


def _evidence(row: Trial) -> Evidence | None:
    data = row.evidence
    return None if data is None else _read(row, "evidence", lambda: Evidence.from_dict(data))


def _proof(row: Winner) -> Proof | None:
    data = row.proof
    return None if data is None else _read(row, "proof", lambda: Proof.from_dict(data))


def _linked(row: Any, name: str) -> Any:
    """The row that another one refers to."""
    found = getattr(row, name)
    if found is None:
        raise damaged(row, f"its {name} {getattr(row, f'{name}_id')} is missing")
    return found


def _read(row: Any, what: str, convert: Callable[[], T]) -> T:
    """A value made of a row's; whatever the conversion says is the row's damage."""
    try:
        return convert()
    except (PtxtuneError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise damaged(row, f"{what}: {error}") from error


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _known_config(data: dict[str, Any]) -> KernelConfig | None:
    try:
        return config_from_dict(data)
    except ConfigError:
        return None


def _resources(row: Trial) -> Resources | None:
    if row.registers is None or row.spill_bytes is None or row.smem_bytes is None:
        return None
    return Resources(row.registers, row.spill_bytes, row.smem_bytes, row.compile_ms or 0.0)
