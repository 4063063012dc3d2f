"""Collects a report's data from the database."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime

from db import query
from db.devices import device_key
from db.imported import IMPORTED
from db.records import DeviceRecord, Protocol, WinnerRecord
from db.session import Database
from ptxgen import env
from ptxgen.errors import StoreError
from ptxgen.problem import Problem
from reports.data import ReportData


def collect(
    database: Database,
    *,
    device: DeviceRecord | None = None,
    sizes: Collection[tuple[int, int]] = (),
    layer_names: Mapping[tuple[int, int], str] | None = None,
) -> ReportData:
    """Everything stored, or what concerns one device model or some layers.

    Where a winner was measured, the predicted one of the same problem, M and protocol is left out.

    Args:
        database: the database.
        device: only this device model.
        sizes: only layers of these (n, k); empty for all.
        layer_names: (n, k) to layer names.

    Raises:
        StoreError: nothing is stored that a report could show.
    """
    winners = [
        winner
        for winner in query.winners(database, device=device, batch_invariant=None)
        if not sizes or (winner.problem.n, winner.problem.k) in sizes
    ]
    trials = [
        trial
        for trial in query.trials(database, device=device)
        if not sizes or (trial.problem.n, trial.problem.k) in sizes
    ]
    if not winners and not any(trial.contender == IMPORTED for trial in trials):
        raise StoreError(
            f"database {database.label} holds no winners to report"
            f"{' for this selection' if device or sizes else ''}; run ptxtune tune first, or "
            f"name another database with --db."
        )
    run_ids = {trial.run_id for trial in trials}
    runs = [run for run in query.runs(database) if run.id in run_ids]
    return ReportData(
        winners=_without_shadowed(winners),
        trials=tuple(trials),
        runs=tuple(runs),
        generated_at=datetime.now(UTC),
        layer_names=layer_names or {},
        pinned=env.pinned_config(),
    )


def _without_shadowed(winners: list[WinnerRecord]) -> tuple[WinnerRecord, ...]:
    measured = {_slot(winner) for winner in winners if not winner.predicted}
    return tuple(w for w in winners if not w.predicted or _slot(w) not in measured)


def _slot(winner: WinnerRecord) -> tuple[str, Problem, int, Protocol, bool]:
    key = device_key(winner.device)
    return key, winner.problem, winner.m, winner.protocol, winner.batch_invariant
