"""Rows: table rows to plain records and back; no queries."""

from __future__ import annotations

import math
from dataclasses import asdict, fields
from typing import Any

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
from ptxgen.errors import ConfigError
from ptxgen.evidence import Evidence
from ptxgen.families import config_from_dict
from ptxgen.outcome import Outcome, Resources, Status
from ptxgen.problem import Problem
from ptxgen.proof import Proof

TIMED_STATUSES = (Status.OK, Status.PREDICTED)
DEVICE_FIELDS = tuple(item.name for item in fields(DeviceRecord))


def device_record(row: Device) -> DeviceRecord:
    return DeviceRecord(**{name: getattr(row, name) for name in DEVICE_FIELDS})


def toolchain_values(record: ToolchainRecord) -> dict[str, str]:
    """Column values; "commit" is a reserved word in SQL."""
    values = asdict(record)
    values["source_commit"] = values.pop("commit")
    return values


def toolchain_record(row: Toolchain) -> ToolchainRecord:
    return ToolchainRecord(row.driver, row.nvrtc, row.ptxtune, row.torch, row.source_commit)


def problem_record(row: ProblemRow) -> Problem:
    return Problem.from_dict({name: getattr(row, name) for name in Problem.__slots__})


def config_record(row: ConfigRow | None) -> KernelConfig | None:
    """None for a baseline, and for a config that this version's families no longer know."""
    return None if row is None else _known_config(row.data)


def run_record(row: Run) -> RunRecord:
    return RunRecord(
        id=row.id,
        device=device_record(row.device),
        toolchain=toolchain_record(row.toolchain),
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
    return Outcome(
        status=Status(row.status),
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
    return TrialRecord(
        id=row.id,
        run_id=row.run_id,
        problem=problem_record(row.problem),
        m=row.m,
        protocol=Protocol(row.protocol),
        contender=row.contender,
        config=config_record(row.config),
        source_digest=row.source_digest,
        outcome=outcome_record(row),
        started_at=row.started_at,
        ended_at=row.ended_at,
    )


def winner_record(row: Winner) -> WinnerRecord | None:
    """None for a winner whose config this version's families no longer know."""
    trial = row.trial
    config = config_record(trial.config)
    if config is None or trial.time_us is None:
        return None
    return WinnerRecord(
        trial_id=trial.id,
        device=device_record(trial.run.device),
        toolchain=toolchain_record(trial.run.toolchain),
        problem=problem_record(trial.problem),
        m=row.m,
        protocol=Protocol(row.protocol),
        config=config,
        source_digest=trial.source_digest,
        time_us=trial.time_us,
        spread=trial.spread,
        rel_err=trial.rel_err,
        floor_us=trial.floor_us,
        default_us=row.default_us,
        cublas_us=row.cublas_us,
        predicted=row.predicted,
        measured_at=trial.ended_at or trial.started_at,
        ties=tuple(tie for tie in map(_known_config, row.ties) if tie is not None),
        clock_mhz=trial.clock_mhz,
        evidence=_evidence(trial),
        proof=None if row.proof is None else Proof.from_dict(row.proof),
        protocol_version=trial.protocol_version,
        layout_version=trial.layout_version,
        batch_invariant=row.batch_invariant,
        resources=_resources(trial),
        dequantized_us=row.dequantized_us,
    )


def _evidence(row: Trial) -> Evidence | None:
    return None if row.evidence is None else Evidence.from_dict(row.evidence)


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
