"""History: which trials of earlier runs still hold, so that they are not measured again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from db import query
from db.records import TrialRecord
from ptxgen.config import KernelConfig
from ptxgen.outcome import Outcome, Status
from ptxgen.source import KernelSource
from search.context import MAX_KILLS, RunContext, emit_source
from search.events import Note, Task
from search.space import Space

DEADLY = frozenset({Status.CRASH, Status.HANG})
TRIED_AGAIN = DEADLY | {Status.NOISY}


@dataclass(frozen=True, slots=True)
class Earlier:
    """A finished trial of an earlier run that still holds."""

    config: KernelConfig
    source_digest: str
    outcome: Outcome
    trial_id: int


def earlier_trials(context: RunContext, task: Task, space: Space) -> Iterator[Earlier]:
    """A finished trial of each legal config under this device, toolchain and source: see _telling.

    Left out, to be tried again: what killed a worker only once, because that may have been another
    candidate's fault, and what was noisy or interrupted; but not where the same source had an
    outcome before, as when a run was killed in its finals.
    """
    records = query.finished(
        context.store.database,
        task.problem,
        context.device,
        task.m,
        task.protocol,
        toolchain=context.toolchain,
    )
    deadly = {item.source_digest for item in records if item.outcome.status in DEADLY}
    for key, item in _telling(records).items():
        config = space.get(key)
        if config is None or not _is_current(context, task, config, item):
            continue
        kills = context.kills(item.source_digest) if item.source_digest in deadly else 0
        if kills >= MAX_KILLS:
            context.on_event(Note(f"quarantined after {kills} kills: {key}"))
            outcome = Outcome(Status.CRASH, f"quarantined after {kills} kills")
            yield Earlier(config, item.source_digest, outcome, item.id)
        elif item.outcome.status in TRIED_AGAIN:
            continue
        else:
            yield Earlier(config, item.source_digest, item.outcome, item.id)


def _telling(records: Iterable[TrialRecord]) -> dict[str, TrialRecord]:
    """Config key -> its last trial, or the one before if that says more of the same source.

    Of several times of the same source the shortest counts: finals run at the clock that sustained
    work leaves, and a profiler slows what it looks at, while the other candidates have the time of
    their screening. Beside those a finalist of an earlier run came out up to 20 % slower.
    """
    telling: dict[str, TrialRecord] = {}
    for item in records:
        if not item.config:
            continue
        known = telling.get(item.config.key())
        if known is None or known.source_digest != item.source_digest or _says_more(item, known):
            telling[item.config.key()] = item
    return telling


def _says_more(later: TrialRecord, earlier: TrialRecord) -> bool:
    """Whether the later one of two trials of the same source is the one to keep."""
    if later.outcome.status in TRIED_AGAIN:
        return False
    before_us, after_us = earlier.outcome.time_us, later.outcome.time_us
    return before_us is None or after_us is None or after_us < before_us


def _is_current(context: RunContext, task: Task, config: KernelConfig, record: TrialRecord) -> bool:
    """Whether the emitter still writes the very source that was tried."""
    source = emit_source(task, config, context.arch, context.families)
    return isinstance(source, KernelSource) and source.digest() == record.source_digest
