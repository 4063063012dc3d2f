"""Sharing: stored trials as the content of a trial file; reads only."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from db import query
from db.imported import IMPORTED
from db.records import PROTOCOL_VERSION, RunRecord, TrialRecord, WinnerRecord
from db.session import Database
from db.trial_file import Environment, TrialFile, environment_index
from db.trial_rows import SharedTrial
from ptxgen.outcome import Status
from ptxgen.weights.layout import LAYOUT_VERSION

UNSHARED = frozenset({Status.STARTED, Status.PREDICTED})
"""Statuses of trials that say nothing to another machine: not ended, or never run."""


def unshared(database: Database) -> dict[str, int]:
    """What an export leaves out, by kind: what no GPU here has run."""
    predicted = query.trials(database, statuses=(Status.PREDICTED,))
    return {
        "predicted winners": len(query.winners(database, predicted=True, batch_invariant=None)),
        "predicted trials": len(predicted),
        "imported seeds": len(query.trials(database, contender=IMPORTED)),
    }


def shared_winners(database: Database, note: str = "") -> TrialFile:
    """Every measured winner, each with its own environment; batch-invariant ones as good trials."""
    stored = query.winners(database, predicted=False, batch_invariant=None)
    found = list({item.trial_id: item for item in sorted(stored, key=_ordinary_last)}.values())
    made = [
        Environment(item.device, item.toolchain, item.protocol_version, item.layout_version)
        for item in found
    ]
    index = environment_index(made)
    trials = tuple(
        SharedTrial(
            item.problem,
            item.m,
            item.protocol,
            item.config,
            Status.OK,
            time_us=item.time_us,
            spread=item.spread,
            rel_err=item.rel_err,
            floor_us=item.floor_us,
            source_digest=item.source_digest,
            measured_at=item.measured_at.isoformat(),
            won=not item.batch_invariant,
            environment=index[environment],
        )
        for item, environment in zip(found, made, strict=True)
    )
    return TrialFile(tuple(index), trials, _now(), note)


def shared_trials(database: Database, *, run_id: int | None = None, note: str = "") -> TrialFile:
    """Every ended trial of ours that was tried on a GPU or failed before; of one run, or of all.

    The environment names the protocol and layout version of this ptxtune; trials of older ones stay
    behind.
    """
    runs = {item.id: item for item in query.runs(database)}
    winning = {item.trial_id for item in query.winners(database, predicted=False)}
    found = [
        item
        for item in query.trials(database, run_id=run_id, contender=query.PTXTUNE)
        if item.config is not None and item.outcome.status not in UNSHARED
    ]
    index = environment_index([_environment(runs[item.run_id]) for item in found])
    trials = _rows(found, runs, index, winning)
    return TrialFile(tuple(index), tuple(trials), _now(), note)


def _ordinary_last(winner: WinnerRecord) -> bool:
    return not winner.batch_invariant


def _rows(
    found: Iterable[TrialRecord],
    runs: dict[int, RunRecord],
    index: dict[Environment, int],
    winning: set[int],
) -> Iterable[SharedTrial]:
    for item in found:
        if item.config is None:
            continue
        outcome = item.outcome
        yield SharedTrial(
            item.problem,
            item.m,
            item.protocol,
            item.config,
            outcome.status,
            time_us=outcome.time_us if outcome.status is Status.OK else None,
            spread=outcome.spread,
            rel_err=outcome.rel_err,
            floor_us=outcome.floor_us,
            source_digest=item.source_digest,
            measured_at=(item.ended_at or item.started_at).isoformat(),
            won=item.id in winning,
            environment=index[_environment(runs[item.run_id])],
        )


def _environment(run: RunRecord) -> Environment:
    return Environment(run.device, run.toolchain, PROTOCOL_VERSION, LAYOUT_VERSION)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
