"""Export rows: winners and the baselines of their runs as flat rows, one JSON object a line."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from db import query
from db.records import DeviceRecord, Protocol, TrialRecord, WinnerRecord
from db.session import Database
from ptxgen.evidence import Evidence
from ptxgen.outcome import Status
from ptxgen.problem import Problem

Row = dict[str, Any]


def export_rows(
    database: Database,
    *,
    device: DeviceRecord | None = None,
    problem: Problem | None = None,
    protocol: Protocol | None = None,
    predicted: bool = False,
) -> list[Row]:
    """One row a (contender, problem, M, protocol): every winner, then its run's baselines.

    Args:
        database: the database.
        device: only winners of this device model.
        problem: only this problem.
        protocol: only this protocol.
        predicted: predicted winners instead of measured ones.
    """
    found = query.winners(
        database, device=device, problem=problem, protocol=protocol, predicted=predicted
    )
    rows: list[Row] = []
    for winner in found:
        rows.append(_winner_row(winner))
        rows.extend(_baseline_row(winner, trial) for trial in _baselines(database, winner))
    return rows


def to_json_lines(rows: Iterable[Row]) -> str:
    """Rows as JSON lines, keys in the order of the rows; ends with a newline."""
    return "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows)


def _winner_row(winner: WinnerRecord) -> Row:
    return {
        **_common(winner, query.PTXTUNE),
        "time_us": winner.time_us,
        "spread": winner.spread,
        "floor_us": winner.floor_us,
        "rel_err": winner.rel_err,
        "config": winner.config.to_dict(),
        "clock_mhz": winner.clock_mhz,
        **_conditions(winner.evidence),
        "proof": winner.proof.to_dict() if winner.proof else None,
        "ties": [config.to_dict() for config in winner.ties],
        "predicted": winner.predicted,
    }


def _baseline_row(winner: WinnerRecord, trial: TrialRecord) -> Row:
    outcome = trial.outcome
    return {
        **_common(winner, trial.contender),
        "time_us": outcome.time_us,
        "spread": outcome.spread,
        "floor_us": outcome.floor_us,
        "rel_err": outcome.rel_err,
        "config": None,
        "clock_mhz": outcome.clock_mhz,
        **_conditions(outcome.evidence),
        "predicted": False,
    }


def _conditions(evidence: Evidence | None) -> Row:
    """State, throttling and neighbours while it was timed; null where the GPU said nothing."""
    throttle = evidence.throttle if evidence else None
    others = evidence.other_pids if evidence else None
    return {
        "state": evidence.state.value if evidence and evidence.state else None,
        "throttle": None if throttle is None else list(throttle),
        "other_processes": None if others is None else len(others),
    }


def _common(winner: WinnerRecord, contender: str) -> Row:
    problem = winner.problem
    return {
        "contender": contender,
        "device": winner.device.name,
        "driver": winner.toolchain.driver,
        "nvrtc": winner.toolchain.nvrtc,
        "commit": winner.toolchain.commit,
        "date": winner.measured_at.date().isoformat(),
        "protocol": winner.protocol.value,
        "protocol_version": winner.protocol_version,
        "dtype": problem.dtype,
        "zero": problem.zero,
        "bias": problem.bias,
        "group": problem.group_size,
        "n": problem.n,
        "k": problem.k,
        "m": winner.m,
    }


def _baselines(database: Database, winner: WinnerRecord) -> list[TrialRecord]:
    """The newest ok attempt of every baseline in the winner's run: the finals come last."""
    attempts = query.trials(
        database,
        run_id=query.trial(database, winner.trial_id).run_id,
        problem=winner.problem,
        m=winner.m,
        protocol=winner.protocol,
        statuses=(Status.OK,),
    )
    newest = {trial.contender: trial for trial in attempts if trial.contender != query.PTXTUNE}
    return [newest[name] for name in sorted(newest)]
