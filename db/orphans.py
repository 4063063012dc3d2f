"""Orphans: started trials whose process is gone; the store turns them into crashes."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from db.models import Trial
from db.owner import Owner
from ptxgen.outcome import Status

ORPHAN_AGE_S = 3600.0
"""A started trial of a process that cannot be looked up (another host) counts as dead after this;
the longest trial is cut off after a minute or two."""

ORPHAN_MESSAGE = "the process died before the trial ended"


def dead_trials(session: Session, oldest: datetime) -> list[int]:
    """Ids of the started trials whose process is dead, or unknown and the trial older than that.

    One whose date cannot be read counts as old.
    """
    query = select(Trial.id, Trial.owner, Trial.started_at)
    started = session.execute(query.where(Trial.status == Status.STARTED.value)).all()
    alive = {owner: Owner.decode(owner).is_alive() for owner in {row.owner for row in started}}
    return [
        row.id
        for row in started
        if alive[row.owner] is False or (alive[row.owner] is None and _is_old(row, oldest))
    ]


def _is_old(row: Any, oldest: datetime) -> bool:
    started: object = row.started_at
    return not isinstance(started, datetime) or started < oldest
