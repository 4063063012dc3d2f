"""selfcheck: runs the tuner on a space small enough to exhaust, and measures how good it is.

Per problem x bucket: every config is measured; then the tuner runs several times; then everybody's
winners take turns in one window, so that their regrets are ratios of paired times.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from db.records import Protocol
from db.session import open_database
from db.sharing import shared_trials
from db.store import Store
from db.trial_file import TrialFile
from ptxgen.arch import ArchSpec
from ptxgen.config import KernelConfig
from ptxgen.errors import ConfigError
from ptxgen.families.base import Family
from ptxgen.outcome import Status
from search.budget import PRESETS, Budget
from search.evaluator import FinalsRequest
from search.events import Note, OnEvent, Task
from search.gates import MAX_REGRET, Gate, flip_gates, nearest_bucket, regret_gates
from search.job import TuneJob, TuneSummary
from search.replay import LimitedFamily
from search.space import Space
from search.stop import StopRequest
from search.task_search import compiled_candidates
from search.tune import ignore, running, tune

ROUNDS = 21
"""Turns in the window that decides about regret."""


@dataclass(frozen=True, slots=True)
class Winners:
    """The winners of one task.

    Attributes:
        exhaustive: of the exhaustive search; None where nothing won.
        repeats: of every repetition that has one.
    """

    exhaustive: KernelConfig | None
    repeats: tuple[KernelConfig, ...]


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """What a self-check found.

    Attributes:
        gates: the numbers.
        recorded: every trial of the exhaustive search.
        winners: by task.
    """

    gates: tuple[Gate, ...]
    recorded: TrialFile
    winners: Mapping[Task, Winners]

    @property
    def passed(self) -> bool:
        return all(gate.passed for gate in self.gates)


def small_families(
    job: TuneJob, arch: ArchSpec, count: int, seed: int = 0
) -> dict[str, LimitedFamily]:
    """The job's families, offering `count` legal configs a bucket and the default; all where 0.

    The choice is random and fixed by the seed, so that any family and space can be sampled.
    """
    families = job.kernel_families()
    offered: dict[tuple[str, int], list[KernelConfig]] = {}
    for problem, m in itertools.product(job.problems, sorted(set(job.buckets))):
        space = Space(problem, arch, m, families, chained=Protocol.CHAINED in job.protocols)
        chosen = space.shuffled(seed)[: count or None]
        defaults = [_default(family, space) for family in families.values()]
        kept = {config.key(): config for config in (*defaults, *chosen) if config is not None}
        offered[problem.key(), m] = list(kept.values())
    return {name: LimitedFamily(family, offered) for name, family in families.items()}


def record(job: TuneJob, store: Store, note: str, on_event: OnEvent = ignore) -> TrialFile:
    """Measures every config of the job's families, and returns the trials.

    Raises:
        NothingMeasuredError, DriverError: as tune does.
    """
    summary = _whole(tune(_exhaustive(job), store, on_event))
    return shared_trials(store.database, run_id=summary.run_id, note=note)


def selfcheck(
    job: TuneJob,
    folder: Path,
    *,
    repeats: int = 3,
    note: str = "",
    budget: Budget = PRESETS["quick"],
    on_event: OnEvent = ignore,
) -> SelfCheck:
    """Runs the whole check.

    Args:
        job: its families should offer a few hundred configs (small_families).
        folder: an empty folder for the databases of the runs; none of the user's is touched.
        repeats: tuning runs that are compared with the exhaustive one.
        note: stored with the recorded trials.
        budget: of each search of a tuning run; it sees 40 % of the space at most.
        on_event: told about the progress.

    Raises:
        NothingMeasuredError, DriverError: as tune does.
    """
    on_event(Note("exhaustive search"))
    with open_database(folder / "exhaustive.db") as database:
        summary = _whole(tune(_exhaustive(job), Store(database), on_event))
        recorded = shared_trials(database, run_id=summary.run_id, note=note)
    exhaustive = _winners(summary)
    sizes = _sizes(recorded)
    runs = []
    for number in range(repeats):
        on_event(Note(f"tuning run {number + 1} of {repeats}"))
        with open_database(folder / f"repeat-{number}.db") as database:
            again = tune(_repeat(job, number, sizes, budget), Store(database), on_event)
            runs.append(_winners(_whole(again)))
    winners = {
        task: Winners(exhaustive.get(task), tuple(found[task] for found in runs if task in found))
        for task in job.tasks()
    }
    on_event(Note("all winners in one window"))
    with open_database(folder / "windows.db") as database:
        times = _windows(job, Store(database), winners, on_event)
    return SelfCheck(tuple(_gates(winners, times)), recorded, winners)


def _exhaustive(job: TuneJob) -> TuneJob:
    return replace(job, sampler="exhaustive", budget=Budget(), refresh=False)


def _repeat(job: TuneJob, number: int, size: int, budget: Budget) -> TuneJob:
    """A run as `ptxtune tune` makes it with that budget, of 40 % of the space at most."""
    trials = max(20, min(budget.trials or size, int(0.4 * size)))
    limited = replace(budget, trials=trials)
    return replace(job, sampler="tpe", seed=number + 1, budget=limited, refresh=False)


def _sizes(recorded: TrialFile) -> int:
    """Configs of the smallest recorded task."""
    configs: dict[tuple[str, int, str], set[str]] = {}
    for trial in recorded.trials:
        key = (trial.problem.key(), trial.m, trial.protocol.value)
        configs.setdefault(key, set()).add(trial.config.key())
    return min((len(found) for found in configs.values()), default=0)


def _whole(summary: TuneSummary) -> TuneSummary:
    """The summary; a run that the user ended is no recording and ends the check as well."""
    if summary.interrupted:
        raise KeyboardInterrupt
    return summary


def _winners(summary: TuneSummary) -> dict[Task, KernelConfig]:
    return {item.task: item.config for item in summary.tasks if item.config is not None}


def _windows(
    job: TuneJob, store: Store, winners: Mapping[Task, Winners], on_event: OnEvent
) -> dict[Task, dict[str, float]]:
    """Times of all winners that are legal for a task, its neighbour's too, in turns, by config."""
    found: dict[Task, dict[str, float]] = {}
    with running(job, store, on_event, StopRequest()) as context:
        for task, mine in winners.items():
            donor = nearest_bucket(task, list(winners))
            wanted = [mine.exhaustive, *mine.repeats]
            wanted += [winners[donor].exhaustive] if donor is not None else []
            configs = {config.key(): config for config in wanted if config is not None}
            candidates = compiled_candidates(context, task, list(configs.values()))
            request = FinalsRequest(
                task.problem, task.m, task.protocol, tuple(candidates), rounds=ROUNDS
            )
            with context.gpu() as worker:
                outcomes = worker.finals(request) if candidates else []
            found[task] = {
                candidate.config.key(): outcome.time_us
                for candidate, outcome in zip(candidates, outcomes, strict=True)
                if outcome.status is Status.OK and outcome.time_us is not None
            }
    return found


def _gates(
    winners: Mapping[Task, Winners], times: Mapping[Task, Mapping[str, float]]
) -> list[Gate]:
    regrets, transfers = dict[str, float](), dict[str, float]()
    runs: dict[str, list[tuple[str, float]]] = {}
    for task, mine in winners.items():
        measured = times[task]
        best = min(measured.values(), default=0.0)  # 0: nothing ran, so every regret is infinite
        for number, config in enumerate(mine.repeats, 1):
            time_us = measured.get(config.key(), float("inf"))
            regrets[f"{task.title()}, run {number}"] = time_us / best - 1 if best else time_us
            runs.setdefault(task.title(), []).append((config.key(), time_us))
        donor = nearest_bucket(task, list(winners))
        other = winners[donor].exhaustive if donor is not None else None
        if donor is not None and other is not None and other.key() in measured:
            transfers[f"{task.title()} from M={donor.m}"] = measured[other.key()] / best - 1
    return [
        *regret_gates("regret against exhaustive", regrets, MAX_REGRET),
        *flip_gates(runs),
        *regret_gates("regret of the nearest bucket's winner", transfers, None),
    ]


def _default(family: Family, space: Space) -> KernelConfig | None:
    """A family's default where it is legal. The SM count only tips its choice of a split."""
    try:
        return family.default_config(space.problem, space.arch, space.m, 132)
    except ConfigError:
        return None
