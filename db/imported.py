"""Imported: takes trials of another machine into the database, in one transaction.

They are stored under the contender "imported", with a run of their own that names their origin. So
no query for our own trials or winners finds them: they are seeds until they are measured here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from db.devices import device_key
from db.models import ConfigRow, Device, ProblemRow, Run, Trial
from db.naturals import ensure_config, ensure_device, ensure_problem, ensure_toolchain
from db.owner import current_owner
from db.records import DeviceRecord
from db.rows import outcome_values
from db.session import Database
from db.trial_file import Environment, TrialFile
from db.trial_rows import SharedTrial
from ptxgen.outcome import Outcome, Status

IMPORTED = "imported"
"""Contender of imported trials."""

BEST = 8
"""Of each environment, problem, M and protocol this many of the fastest are taken in."""

UUID_PREFIX = "imported:"
"""Marks the card of an imported device, so that its ceilings never pass for a card's of ours."""


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import did.

    Attributes:
        added: seeds stored.
        known: of those chosen, how many an earlier import had stored already.
        left_out: trials of the file that are no seeds: failed, or not among the fastest.
    """

    added: int
    known: int
    left_out: int


def import_trials(database: Database, content: TrialFile, origin: str) -> Imported:
    """Stores the fastest trials of a file as seeds; all of them, or on any error none.

    Args:
        database: where to.
        content: a checked file.
        origin: where it comes from, such as the file's name; stored with the runs.

    Raises:
        StoreError: the database cannot be written.
    """
    chosen = _fastest(content.trials)
    added = 0
    with database.writing() as session:
        for index, environment in enumerate(content.environments):
            mine = [item for item in chosen if item.environment == index]
            fresh = [item for item in mine if not _is_known(session, environment, item)]
            if fresh:
                run = _run(session, environment, content, origin)
                for item in fresh:
                    session.add(_trial(session, run, environment, item))
                session.flush()
            added += len(fresh)
    return Imported(added, len(chosen) - added, len(content.trials) - len(chosen))


def _fastest(trials: Iterable[SharedTrial]) -> list[SharedTrial]:
    """Of each environment, problem, M and protocol: its winner, then the fastest configs."""
    groups: dict[tuple[Any, ...], dict[str, SharedTrial]] = {}
    for item in sorted(trials, key=lambda item: (not item.won, item.time_us or 0.0)):
        if item.status is Status.OK:
            key = (item.environment, item.problem, item.m, item.protocol)
            groups.setdefault(key, {}).setdefault(item.config.key(), item)
    return [item for group in groups.values() for item in list(group.values())[:BEST]]


def _device(environment: Environment) -> DeviceRecord:
    device = environment.device
    return replace(device, uuid=f"{UUID_PREFIX}{device.uuid}"[:64])


def _is_known(session: Session, environment: Environment, item: SharedTrial) -> bool:
    query = (
        select(Trial.id)
        .join(Run, Run.id == Trial.run_id)
        .join(Device, Device.id == Run.device_id)
        .join(ProblemRow, ProblemRow.id == Trial.problem_id)
        .join(ConfigRow, ConfigRow.id == Trial.config_id)
        .where(
            Trial.contender == IMPORTED,
            Device.device_key == device_key(_device(environment)),
            Device.uuid == _device(environment).uuid,
            ProblemRow.key == item.problem.key(),
            Trial.m == item.m,
            Trial.protocol == item.protocol.value,
            ConfigRow.key == item.config.key(),
            Trial.time_us == item.time_us,
        )
    )
    return session.scalars(query.limit(1)).first() is not None


def _run(session: Session, environment: Environment, content: TrialFile, origin: str) -> Run:
    """A run that says where the trials come from; it began and ended with the import."""
    now = datetime.now(UTC)
    source = {"origin": origin, "written": content.written, "note": content.note}
    device = ensure_device(session, _device(environment))
    toolchain = ensure_toolchain(session, environment.toolchain)
    session.flush()
    run = Run(
        device_id=device.id,
        toolchain_id=toolchain.id,
        settings={"imported": source},
        owner=current_owner().encode(),
        started_at=now,
        ended_at=now,
    )
    session.add(run)
    session.flush()
    return run


def _trial(session: Session, run: Run, environment: Environment, item: SharedTrial) -> Trial:
    problem = ensure_problem(session, item.problem)
    config = ensure_config(session, item.config)
    session.flush()
    outcome = Outcome(
        Status.OK,
        time_us=item.time_us,
        spread=item.spread,
        rel_err=item.rel_err,
        floor_us=item.floor_us,
    )
    owner = current_owner()
    return Trial(
        run_id=run.id,
        problem_id=problem.id,
        config_id=config.id,
        m=item.m,
        protocol=item.protocol.value,
        protocol_version=environment.protocol_version,
        layout_version=environment.layout_version,
        contender=IMPORTED,
        source_digest=item.source_digest,
        pid=owner.pid,
        owner=owner.encode(),
        started_at=run.started_at,
        ended_at=run.started_at,
        **outcome_values(outcome),
    )
