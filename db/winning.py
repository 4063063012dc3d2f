"""Winning: which trials may win, and whether a stored winner stays against a new one."""

from __future__ import annotations

from db.damage import DamagedRowError
from db.models import Trial, Winner
from db.rows import toolchain_record, winner_record
from db.staleness import hard_reasons
from ptxgen.outcome import Status

WINNING = {Status.OK: False, Status.PREDICTED: True}
"""Status of a trial that may win -> whether it is a predicted one."""


def keeps(stored: Winner, trial: Trial) -> bool:
    """Whether a stored winner is faster than a new trial, comparable with it, and still served."""
    try:
        record = winner_record(stored)
    except DamagedRowError:  # nobody can be served it any more
        return False
    if record is None or trial.time_us is None or trial.time_us < record.time_us:
        return False
    if record.protocol_version != trial.protocol_version:
        return False
    return not hard_reasons(record, toolchain_record(trial.run.toolchain), record.device.arch)
