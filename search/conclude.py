"""The end of one search: finals, winner, and what it is compared with; all of it stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from db import query
from db.records import WinnerRecord
from ptxgen.config import KernelConfig
from ptxgen.dequantize.rule import DEQUANTIZED
from ptxgen.families.invariant import is_invariant
from ptxgen.outcome import Outcome, Status
from search.context import MAX_KILLS, RunContext, StoppedError, emit_source
from search.dequantized import dequantizer, may_take_part
from search.evaluator import (
    CUBLAS,
    Candidate,
    Contender,
    Effort,
    EvaluateRequest,
    FinalsRequest,
    name_of,
)
from search.events import FinalsStarted, Note, Task, TaskEnded
from search.finals import Decision, Final, decide
from search.heats import finalists
from search.proof import prove
from search.task_search import TaskSearch
from search.worker import FinalsError


@dataclass(frozen=True, slots=True)
class _Window:
    """What the finals gave.

    Attributes:
        finals: our contenders.
        trial_ids: of our contenders, by config key.
        baselines: how cuBLAS and dequantize + matmul ended, by name, where they took part.
        paired: whether they took turns, so that sample i of all is of the same round.
    """

    finals: list[Final]
    trial_ids: dict[str, int]
    baselines: Mapping[str, Outcome]
    paired: bool

    def outcome_of(self, config: KernelConfig | None) -> Outcome | None:
        """How a config ended; None where it did not take part."""
        key = None if config is None else config.key()
        return next((item.outcome for item in self.finals if item.key == key), None)

    def why_not(self) -> str:
        """Why nobody won, as far as the contenders say."""
        reason = next((item.outcome.message for item in self.finals if item.outcome.message), "")
        return f"no finalist ended well{': ' if reason else ''}{reason}"


def conclude(context: RunContext, search: TaskSearch, task: Task) -> TaskEnded:
    """Decides a search and stores its winner.

    Where nothing new was measured the stored winner stands; where the user stopped, the screening
    decides, and only over a slower stored winner.
    """
    stored = _stored_winner(context, task)
    nothing_new = search.new_trials == 0 and not context.job.refresh
    if stored is not None and nothing_new and _stands(context, search, task, stored):
        return _from_record(task, stored, context.floor_us(task))
    if not search.best_configs(1):
        return _without_winner(context, task, "no candidate ended well")
    try:
        if not context.stop.requested:
            return _by_finals(context, search, task, stored)
    except StoppedError:
        pass
    return _by_screening(context, search, task)


def _by_finals(
    context: RunContext, search: TaskSearch, task: Task, stored: WinnerRecord | None
) -> TaskEnded:
    """Times the best ones, the default, the winner stored before and the baselines in turns."""
    configs = finalists(context, search, task)
    contenders: list[Contender] = [*search.candidates(configs)]
    if stored is not None and stored.config not in configs:
        contenders += _previous_winner(context, search, task, stored.config)
    if context.job.baseline:
        contenders.append(None)
    dense = dequantizer(context, task)
    if dense is not None:
        contenders.append(dense)
    context.on_event(FinalsStarted(task, len(contenders)))
    window = _timed_in_turns(context, task, contenders)
    neighbours = frozenset(config.key() for config in search.neighbours)
    decision = decide(window.finals, search.default.key(), neighbours, paired=window.paired)
    if decision is None:
        return _without_winner(context, task, window.why_not())
    previous = None if stored is None else stored.config
    return _won(context, task, window, decision, default=search.default, previous=previous)


def _won(
    context: RunContext,
    task: Task,
    window: _Window,
    decision: Decision,
    *,
    default: KernelConfig,
    previous: KernelConfig | None,
) -> TaskEnded:
    """Stores the winner with its proof."""
    winner = decision.winner
    proof = prove(
        winner.outcome,
        default=window.outcome_of(default),
        cublas=window.baselines.get(CUBLAS),
        previous=window.outcome_of(previous),
        paired=window.paired,
        dequantized=window.baselines.get(DEQUANTIZED),
    )
    ties = tuple(item.candidate.config for item in decision.ties)
    context.store.set_winner(
        window.trial_ids[winner.key],
        default_us=proof.default_us,
        cublas_us=proof.cublas_us,
        dequantized_us=proof.dequantized_us,
        ties=ties,
        proof=proof,
        refresh=True,  # the stored winner took part where it still counts
        batch_invariant=task.batch_invariant,
    )
    evidence = winner.outcome.evidence
    if evidence is not None and evidence.other_pids:
        pids = ", ".join(map(str, evidence.other_pids))
        context.on_event(
            Note(f"other processes computed on the GPU meanwhile ({pids}); the result is marked")
        )
    return TaskEnded(
        task,
        winner.candidate.config,
        winner.time_us,
        proof.default_us,
        proof.cublas_us,
        winner.outcome.floor_us or context.floor_us(task),
        proof=proof,
        evidence=evidence,
        ties=ties,
        dequantized_us=proof.dequantized_us,
    )


def _previous_winner(
    context: RunContext, search: TaskSearch, task: Task, config: KernelConfig
) -> list[Candidate]:
    """The winner stored before, ready for the finals, however it did in this search's screening.

    Left out where it is illegal now, quarantined, or failed in this run. One that this search never
    ran is journalled, checked and timed by itself first, as every other finalist was.
    """
    source = emit_source(task, config, context.arch, context.families)
    if isinstance(source, Outcome) or context.kills(source.digest()) >= MAX_KILLS:
        return []
    tried = query.trials(
        context.store.database,
        run_id=context.run_id,
        problem=task.problem,
        m=task.m,
        protocol=task.protocol,
        config=config,
    )
    if tried and tried[-1].outcome.status is not Status.OK:
        return []
    candidates = search.candidates([config])
    if search.time_of(config) is not None:
        return candidates
    return [
        item
        for item in candidates
        if context.measure(task, EvaluateRequest(task.problem, task.m, task.protocol, item))[
            1
        ].status
        is Status.OK
    ]


def _timed_in_turns(context: RunContext, task: Task, contenders: Sequence[Contender]) -> _Window:
    """How the contenders ended; timed one by one where the worker dies in the finals.

    Their rows are written afterwards: every one of them was journalled when it was first measured.
    """
    request = FinalsRequest(task.problem, task.m, task.protocol, tuple(contenders))
    paired = True
    try:
        with context.gpu() as worker:
            outcomes = worker.finals(request, context.during_finals)
        trials = [
            (context.record(task, item, outcome), outcome)
            for item, outcome in zip(contenders, outcomes, strict=True)
        ]
    except FinalsError as error:
        paired = False
        context.on_event(Note(f"the finals failed ({error}); measuring one by one"))
        trials = [
            context.measure(
                task, EvaluateRequest(task.problem, task.m, task.protocol, item, Effort.FULL)
            )
            for item in contenders
        ]
    finals, trial_ids, baselines = [], {}, {}
    for contender, (trial_id, outcome) in zip(contenders, trials, strict=True):
        if isinstance(contender, Candidate):
            finals.append(Final(contender, outcome))
            trial_ids[contender.config.key()] = trial_id
        else:
            baselines[name_of(contender)] = outcome
    return _Window(finals, trial_ids, baselines, paired)


def _by_screening(context: RunContext, search: TaskSearch, task: Task) -> TaskEnded:
    """The fastest of the screening, for a run that the user ended."""
    config = search.best_configs(1)[0]
    trial_id, time_us = search.trial_of(config), search.time_of(config)
    if trial_id is None or time_us is None:
        return _without_winner(context, task, "no candidate ended well")
    default_us = search.time_of(search.default)
    context.store.set_winner(trial_id, default_us=default_us, batch_invariant=task.batch_invariant)
    return TaskEnded(task, config, time_us, default_us, None, context.floor_us(task))


def _stored_winner(context: RunContext, task: Task) -> WinnerRecord | None:
    """The measured winner stored so far, on any card of this model."""
    found = query.winners(
        context.store.database,
        device=context.device,
        problem=task.problem,
        m=task.m,
        protocol=task.protocol,
        predicted=False,
        batch_invariant=task.batch_invariant,
    )
    if task.batch_invariant:  # one of an older order of sums must not take part in the finals
        found = [item for item in found if is_invariant(item.problem, item.config)]
    return found[0] if found else None


def _stands(context: RunContext, search: TaskSearch, task: Task, winner: WinnerRecord) -> bool:
    """Whether this very source was measured by this toolchain and compared."""
    compared = winner.cublas_us is not None or not context.job.baseline
    if may_take_part(context, task):
        compared = compared and winner.dequantized_us is not None
    return compared and winner.default_us is not None and search.time_of(winner.config) is not None


def _from_record(task: Task, winner: WinnerRecord, floor_us: float) -> TaskEnded:
    return TaskEnded(
        task,
        winner.config,
        winner.time_us,
        winner.default_us,
        winner.cublas_us,
        winner.floor_us or floor_us,
        proof=winner.proof,
        evidence=winner.evidence,
        ties=winner.ties,
        dequantized_us=winner.dequantized_us,
    )


def _without_winner(context: RunContext, task: Task, message: str) -> TaskEnded:
    return TaskEnded(task, None, None, None, None, context.floor_us(task), message)
