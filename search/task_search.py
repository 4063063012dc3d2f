"""TaskSearch: the search of one problem x bucket x protocol: ask, compile, measure, store, tell."""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, replace

from ptxgen.config import KernelConfig
from ptxgen.outcome import Outcome, Status
from ptxgen.source import KernelSource
from search.budget import Meter
from search.compile_pool import Compiled
from search.context import MAX_KILLS, RunContext, StoppedError, emit_source
from search.evaluator import Candidate, EvaluateRequest
from search.events import Note, Task, TaskStarted, TrialEnded
from search.history import earlier_trials
from search.ranking import Ranker, gpu_spec_of
from search.samplers import Sampler, Suggestion, choose_sampler
from search.seeds import earlier_best, neighbour_winners, related_winners
from search.space import Space

UNRUN = frozenset({Status.INVALID, Status.COMPILE_ERROR, Status.COMPILE_TIMEOUT, Status.SPILLED})

STOP_ABOVE = 2.0
"""Timing of a candidate stops early above this many times the best time (TileLang uses 2)."""

NEIGHBOUR_SEEDS = 8
RELATED_SEEDS = 4

LOOKAHEAD = 2
"""Compiles under way for each compile process."""


@dataclass(frozen=True, slots=True)
class _Attempt:
    """A suggestion whose kernel is being compiled."""

    suggestion: Suggestion
    source: KernelSource
    compiled: Future[Compiled]


class TaskSearch:
    """Searches one task. Call run(), then read best_candidates().

    Args:
        context: of the run.
        task: what is searched.
        space: its legal configs.
        index: of the task in the run, from 0.
    """

    def __init__(self, context: RunContext, task: Task, space: Space, index: int) -> None:
        self._context, self._task, self._space, self._index = context, task, space, index
        self.default = context.default_config(task)
        space.add(self.default)
        name = choose_sampler(context.job.sampler, space)
        self._sampler = Sampler(space, name, context.job.seed)
        self._meter = Meter(context.job.budget)
        self._outcomes: dict[str, Outcome] = {}  # by source digest
        self._times: dict[str, float] = {}  # by config key, of those that ended well
        self._trial_ids: dict[str, int] = {}
        self.neighbours = neighbour_winners(context.store.database, context.device, task)
        self.new_trials = 0
        self._default_asked = False  # it is always measured, however small the budget

    @property
    def best_us(self) -> float | None:
        """Best time so far, earlier runs included."""
        return min(self._times.values(), default=None)

    def run(self) -> None:
        """Searches until the budget is used up, the space is exhausted or the user stops."""
        known = self._remember_earlier_runs()
        context = self._context
        context.on_event(
            TaskStarted(
                self._task,
                self._index,
                len(self._space),
                known,
                context.floor_us(self._task),
                context.job.budget,
            )
        )
        if self._meter.exhausted() and self._default_asked:
            return
        pending: list[_Attempt] = []
        try:
            self._sampler.enqueue(self._known_seeds())
            self._fill(pending, seeds_only=True)  # they compile while the model orders the others
            self._sampler.enqueue(self._model_seeds())
            while not context.stop.requested:
                self._fill(pending)
                self._drop_late(pending)
                if not pending:
                    return
                attempt = self._next_compiled(pending)
                if attempt is not None:
                    pending.remove(attempt)
                    self._finish(attempt, pending)
        except StoppedError:
            return
        finally:
            for attempt in pending:
                attempt.compiled.cancel()

    def best_configs(self, count: int) -> list[KernelConfig]:
        """The fastest configs so far, and always the default where it ended well."""
        keys = sorted(self._times, key=lambda key: (self._times[key], key))[:count]
        if self.default.key() in self._times and self.default.key() not in keys:
            keys.append(self.default.key())
        return [self._space[key] for key in keys]

    def trial_of(self, config: KernelConfig) -> int | None:
        """The trial of a config that ended well."""
        return self._trial_ids.get(config.key())

    def time_of(self, config: KernelConfig) -> float | None:
        """The time of a config that ended well, in microseconds."""
        return self._times.get(config.key())

    def candidates(self, configs: list[KernelConfig]) -> list[Candidate]:
        """Compiled candidates of configs that ended well before; from the cache as a rule."""
        return compiled_candidates(self._context, self._task, configs)

    # ---- before the search ----------------------------------------------------------------------

    def _remember_earlier_runs(self) -> int:
        """Takes in the trials of earlier runs that still hold. Returns how many."""
        if self._context.job.refresh:
            return 0
        known = 0
        for earlier in earlier_trials(self._context, self._task, self._space):
            known += 1
            self._default_asked |= earlier.config == self.default
            if earlier.outcome.status not in UNRUN:
                self._meter.trials += 1  # the budget's trials include those of earlier runs
            self._note(earlier.config, earlier.source_digest, earlier.outcome, earlier.trial_id)
            self._sampler.remember(earlier.config, earlier.outcome)
        return known

    def _known_seeds(self) -> list[KernelConfig]:
        """What is tried first: the default, the best under another driver, winners of this and of
        other layers and GPUs: about 13, and 21 after a change of driver."""
        context = self._context
        related = related_winners(context.store.database, context.device, self._task)
        legal = [config for config in related if config.plain() in self._space]
        earlier = earlier_best(context.store.database, context.device, self._task)
        known = [*earlier, *self.neighbours[:NEIGHBOUR_SEEDS], *legal[:RELATED_SEEDS]]
        return self._launched([self.default, *known])

    def _model_seeds(self) -> list[KernelConfig]:
        """The model's top of the whole space, which takes a second where that is large."""
        context = self._context
        ranker = Ranker(self._task, context.arch, gpu_spec_of(context.device), context.families)
        return self._launched(ranker.seeds(self._space, context.job.seed))

    def _launched(self, configs: list[KernelConfig]) -> list[KernelConfig]:
        """The configs as this task launches them: chained, or by ordinary edges."""
        return configs if self._task.chained else [config.plain() for config in configs]

    # ---- the loop -------------------------------------------------------------------------------

    def _fill(self, pending: list[_Attempt], measuring: int = 0, seeds_only: bool = False) -> None:
        """Keeps the compile pool busy ahead of the measuring, with seeds alone where told so."""
        while len(pending) < LOOKAHEAD * self._context.pool.workers:
            if seeds_only and not self._sampler.has_seeds:
                return
            if self._meter.exhausted(len(pending) + measuring) and self._default_asked:
                return
            suggestion = self._sampler.ask()
            self._default_asked = True  # the first seed, where it is not known already
            if suggestion is None:
                return
            attempt = self._begin(suggestion)
            if attempt is not None:
                pending.append(attempt)

    def _drop_late(self, pending: list[_Attempt]) -> None:
        """Out of time, what was not measured yet is given up, except for the default.

        Also what is compiled already: two kernels a compile process took up to half a second more.
        """
        if not self._meter.out_of_time():
            return
        for attempt in list(pending):
            if attempt.suggestion.config != self.default:
                attempt.compiled.cancel()
                pending.remove(attempt)

    def _begin(self, suggestion: Suggestion) -> _Attempt | None:
        """Sends a suggestion to the compiler, or ends it here: illegal, known or quarantined."""
        context, config = self._context, suggestion.config
        source = emit_source(self._task, config, context.arch, context.families)
        if isinstance(source, Outcome):
            context.record_unrun(self._task, config, "", source)
            self._tell(suggestion, source)
            return None
        digest = source.digest()
        if digest in self._outcomes:  # another config with the very same kernel
            self._sampler.tell(suggestion, self._outcomes[digest])
            return None
        kills = context.kills(digest)
        if kills >= MAX_KILLS:
            context.on_event(Note(f"quarantined after {kills} kills: {config.key()}"))
            self._sampler.tell(suggestion, Outcome(Status.CRASH, "quarantined"))
            return None
        return _Attempt(suggestion, source, context.pool.submit(source))

    def _next_compiled(self, pending: list[_Attempt]) -> _Attempt | None:
        """The first attempt whose compile is over; None after half a second without one."""
        wait([item.compiled for item in pending], timeout=0.5, return_when=FIRST_COMPLETED)
        return next((item for item in pending if item.compiled.done()), None)

    def _finish(self, attempt: _Attempt, pending: list[_Attempt]) -> None:
        """Measures what was compiled; stores and tells the outcome. Refills pending meanwhile."""
        context, config = self._context, attempt.suggestion.config
        compiled = attempt.compiled.result()
        digest = attempt.source.digest()
        if digest in self._outcomes:  # its twin was compiled at the same time, and ended first
            self._sampler.tell(attempt.suggestion, self._outcomes[digest])
            return
        candidate = _candidate(config, attempt.source, compiled)
        if candidate is None:
            outcome = compiled.failure or Outcome(Status.COMPILE_ERROR, "no cubin")
            context.record_unrun(self._task, config, digest, outcome)
            self._outcomes[digest] = outcome
            self._tell(attempt.suggestion, outcome)
            return
        trial_id, outcome = context.measure(
            self._task, self._request(candidate), lambda: self._fill(pending, measuring=1)
        )
        self._meter.trials += 1
        self.new_trials += 1
        outcome = outcome if outcome.resources else replace(outcome, resources=compiled.resources)
        self._note(config, digest, outcome, trial_id)
        self._tell(attempt.suggestion, outcome)

    def _request(self, candidate: Candidate) -> EvaluateRequest:
        best = self.best_us
        return EvaluateRequest(
            self._task.problem,
            self._task.m,
            self._task.protocol,
            candidate,
            stop_above_us=None if best is None else STOP_ABOVE * best,
        )

    def _note(
        self, config: KernelConfig, source_digest: str, outcome: Outcome, trial_id: int
    ) -> None:
        self._outcomes[source_digest] = outcome
        if outcome.status is Status.OK and outcome.time_us is not None:
            self._times[config.key()] = outcome.time_us
            self._trial_ids[config.key()] = trial_id
            self._meter.note_time(outcome.time_us)

    def _tell(self, suggestion: Suggestion, outcome: Outcome) -> None:
        self._sampler.tell(suggestion, outcome)
        self._context.on_event(
            TrialEnded(self._task, suggestion.config, outcome, self.best_us, self._meter.trials)
        )


def compiled_candidates(
    context: RunContext, task: Task, configs: list[KernelConfig]
) -> list[Candidate]:
    """The configs that have a kernel, compiled (from the cache as a rule), in their order."""
    sources = [emit_source(task, config, context.arch, context.families) for config in configs]
    futures = [
        (config, source, context.pool.submit(source))
        for config, source in zip(configs, sources, strict=True)
        if isinstance(source, KernelSource)
    ]
    made = (_candidate(config, source, future.result()) for config, source, future in futures)
    return [candidate for candidate in made if candidate is not None]


def _candidate(config: KernelConfig, source: KernelSource, compiled: Compiled) -> Candidate | None:
    """A candidate ready to run; None where the compile says no."""
    if compiled.failure is not None or compiled.resources is None:
        return None
    return Candidate(
        config=config,
        plan=source.plan,
        entry=source.entry,
        cubin_path=compiled.cubin_path,
        resources=compiled.resources,
        source_digest=source.digest(),
    )
