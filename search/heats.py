"""Heats: where many candidates are nearly as fast, they are timed in turns before the finals.

Screening times one candidate at a time, between pauses, at the GPU's highest clock. In sustained
work the power limit takes up to a third of that clock, and the order is another one: of 512 tokens
and more the winner was among the last four of eight finalists in 16 of 40 cells (H200, 2026-11-30),
so it may as well be one that screening put ninth.
"""

from __future__ import annotations

from collections.abc import Sequence

from ptxgen.config import KernelConfig
from ptxgen.outcome import Outcome, Status
from search.context import RunContext
from search.evaluator import Candidate, FinalsRequest
from search.events import Note, Task
from search.finals import FINALISTS, Final
from search.task_search import TaskSearch
from search.worker import FinalsError

ENTRANTS = 24
"""Three for each place in the finals."""

NEAR = 1.06
"""Times up to so many times the best one of the screening take part."""

ROUNDS = 2


def finalists(context: RunContext, search: TaskSearch, task: Task) -> list[KernelConfig]:
    """The configs for the finals, fastest first, and always the default where it ended well.

    They are those of the screening where few are near the fastest one, and where the heats failed.
    """
    screened = search.best_configs(FINALISTS)
    entrants = _entrants(search)
    if len(entrants) <= FINALISTS:
        return screened
    candidates = search.candidates(entrants)
    request = FinalsRequest(task.problem, task.m, task.protocol, tuple(candidates), ROUNDS)
    try:
        with context.gpu() as worker:
            outcomes = worker.finals(request)
    except FinalsError as error:
        context.on_event(Note(f"the heats failed ({error}); the screening chooses the finalists"))
        return screened
    results = list(zip(candidates, outcomes, strict=True))
    wrong = []
    for candidate, outcome in results:
        if outcome.status is Status.WRONG:  # though it was right when it was screened
            context.record(task, candidate, outcome)
            wrong.append(candidate.config)
    right = [config for config in screened if config not in wrong]
    chosen = _fastest(results) or right
    if search.default in right and search.default not in chosen:
        chosen.append(search.default)
    return chosen


def _entrants(search: TaskSearch) -> list[KernelConfig]:
    """The fastest of the screening and those near them."""
    limit_us = NEAR * (search.best_us or 0.0)
    best = search.best_configs(ENTRANTS)
    return [config for config in best if (search.time_of(config) or limit_us) <= limit_us]


def _fastest(results: Sequence[tuple[Candidate, Outcome]]) -> list[KernelConfig]:
    """Of those that ended well; none where a throttled GPU made all of them worthless."""
    finals = [Final(candidate, outcome) for candidate, outcome in results]
    good = sorted(
        (item for item in finals if item.time_us < float("inf")),
        key=lambda item: (item.time_us, item.key),
    )
    return [item.candidate.config for item in good[:FINALISTS]]
