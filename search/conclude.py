"""The end of one search: finals, winner, and what it is compared with; all of it stored."""

from __future__ import annotations

from collections.abc import Sequence

from db import query
from db.records import WinnerRecord
from ptxgen.config import KernelConfig
from ptxgen.outcome import Outcome, Status
from search.context import RunContext, StoppedError
from search.evaluator import Candidate, Effort, EvaluateRequest, FinalsRequest
from search.events import FinalsStarted, Note, Task, TaskEnded
from search.finals import FINALISTS, Decision, Final, decide
from search.task_search import TaskSearch
from search.worker import FinalsError


def conclude(context: RunContext, search: TaskSearch, task: Task) -> TaskEnded:
    """Decides a search and stores its winner.

    Where nothing new was measured the stored winner stands; where the user stopped, the screening
    decides, and only over a slower stored winner.
    """
    stored = _standing_winner(context, search, task)
    if stored is not None and not context.job.refresh and search.new_trials == 0:
        return _from_record(task, stored, context.floor_us(task))
    if not search.best_configs(1):
        return _without_winner(context, task, "no candidate ended well")
    try:
        if not context.stop.requested:
            return _by_finals(context, search, task)
    except StoppedError:
        pass
    return _by_screening(context, search, task)


def _by_finals(context: RunContext, search: TaskSearch, task: Task) -> TaskEnded:
    """Times the best ones, the default and cuBLAS in turns."""
    candidates = search.candidates(search.best_configs(FINALISTS))
    contenders: list[Candidate | None] = [*candidates, *([None] if context.job.baseline else [])]
    context.on_event(FinalsStarted(task, len(contenders)))
    trials = _timed_in_turns(context, task, contenders)
    finals, trial_ids, cublas_us = [], {}, None
    for contender, (trial_id, outcome) in zip(contenders, trials, strict=True):
        if contender is None:
            cublas_us = outcome.time_us if outcome.status is Status.OK else None
            continue
        finals.append(Final(contender, outcome))
        trial_ids[contender.config.key()] = trial_id
    default_key = search.default.key()
    neighbours = frozenset(config.key() for config in search.neighbours)
    decision = decide(finals, default_key, neighbours)
    if decision is None:
        return _without_winner(context, task, "no finalist ended well")
    default_us = next((item.outcome.time_us for item in finals if item.key == default_key), None)
    context.store.set_winner(
        trial_ids[decision.winner.key],
        default_us=default_us,
        cublas_us=cublas_us,
        ties=_tied_configs(decision),
        refresh=True,  # the stored winner took part where it still counts
    )
    return TaskEnded(
        task,
        decision.winner.candidate.config,
        decision.winner.time_us,
        default_us,
        cublas_us,
        decision.winner.outcome.floor_us or context.floor_us(task),
    )


def _timed_in_turns(
    context: RunContext, task: Task, contenders: Sequence[Candidate | None]
) -> list[tuple[int, Outcome]]:
    """Trial ids and outcomes of the contenders; one by one where the worker dies in the finals.

    Their rows are written afterwards: every one of them was journalled when it was first measured.
    """
    request = FinalsRequest(task.problem, task.m, task.protocol, tuple(contenders))
    try:
        with context.gpu() as worker:
            outcomes = worker.finals(request)
    except FinalsError as error:
        context.on_event(Note(f"the finals failed ({error}); measuring one by one"))
        return [
            context.measure(
                task, EvaluateRequest(task.problem, task.m, task.protocol, item, Effort.FULL)
            )
            for item in contenders
        ]
    ids = [
        context.record(task, item, outcome)
        for item, outcome in zip(contenders, outcomes, strict=True)
    ]
    return list(zip(ids, outcomes, strict=True))


def _by_screening(context: RunContext, search: TaskSearch, task: Task) -> TaskEnded:
    """The fastest of the screening, for a run that the user ended."""
    config = search.best_configs(1)[0]
    trial_id, time_us = search.trial_of(config), search.time_of(config)
    if trial_id is None or time_us is None:
        return _without_winner(context, task, "no candidate ended well")
    default_us = search.time_of(search.default)
    context.store.set_winner(trial_id, default_us=default_us)
    return TaskEnded(task, config, time_us, default_us, None, context.floor_us(task))


def _standing_winner(context: RunContext, search: TaskSearch, task: Task) -> WinnerRecord | None:
    """The stored winner, where this very source was measured by this toolchain and compared."""
    found = query.winners(
        context.store.database,
        device=context.device,
        problem=task.problem,
        m=task.m,
        protocol=task.protocol,
        predicted=False,
    )
    if not found or search.time_of(found[0].config) is None:
        return None
    compared = found[0].default_us is not None and (
        found[0].cublas_us is not None or not context.job.baseline
    )
    return found[0] if compared else None


def _from_record(task: Task, winner: WinnerRecord, floor_us: float) -> TaskEnded:
    return TaskEnded(
        task,
        winner.config,
        winner.time_us,
        winner.default_us,
        winner.cublas_us,
        winner.floor_us or floor_us,
    )


def _without_winner(context: RunContext, task: Task, message: str) -> TaskEnded:
    return TaskEnded(task, None, None, None, None, context.floor_us(task), message)


def _tied_configs(decision: Decision) -> list[KernelConfig]:
    return [item.candidate.config for item in decision.ties]
