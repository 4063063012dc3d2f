"""Gates on the tuner itself: regret, flips and bucket transfer, as numbers with limits. Pure."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ptxgen.config import KernelConfig
from search.events import Task
from search.replay import FirstConfigs, Recording, Simulated, model_first, simulate
from search.samplers import SamplerName

MAX_REGRET = 0.03
"""A search may miss the best of an exhaustive one by this share of its time (flashinfer#3920)."""

FLIP_COST = 0.02
"""Two winners whose times differ by less are a tie, and a change between them costs nothing."""


@dataclass(frozen=True, slots=True)
class Gate:
    """One number about the tuner.

    Attributes:
        name: what is measured.
        value: the number, a share of time or of cases.
        limit: the gate fails above it; None where the number only informs.
        detail: where the number comes from.
    """

    name: str
    value: float
    limit: float | None
    detail: str = ""

    @property
    def passed(self) -> bool:
        return self.limit is None or self.value <= self.limit


def regret_gates(name: str, regrets: Mapping[str, float], limit: float | None) -> list[Gate]:
    """Mean and worst of the regrets by case; the worst one has the limit."""
    if not regrets:
        return []
    worst = max(regrets, key=lambda case: regrets[case])
    return [
        Gate(f"{name}, mean", statistics.mean(regrets.values()), None, f"{len(regrets)} cases"),
        Gate(f"{name}, worst", regrets[worst], limit, worst),
    ]


def flip_gates(winners: Mapping[str, Sequence[tuple[str, float]]]) -> list[Gate]:
    """How often two runs of one case chose another winner, and how often that costs time.

    Args:
        winners: case -> (config key, time in one common window) of each run.
    """
    pairs = [
        (case, first, second)
        for case, runs in winners.items()
        for first, second in itertools.combinations(runs, 2)
    ]
    if not pairs:
        return []
    flips = [pair for pair in pairs if pair[1][0] != pair[2][0]]
    costly = [case for case, first, second in flips if _apart(first[1], second[1]) > FLIP_COST]
    total = f"of {len(pairs)} pairs of runs"
    worst = f"{total}; more than {FLIP_COST:.0%} apart"
    return [
        Gate("winner flips", len(flips) / len(pairs), None, total),
        Gate("costly winner flips", len(costly) / len(pairs), 0.0, "; ".join([worst, *costly[:3]])),
    ]


def transfer_regrets(recording: Recording) -> dict[str, float]:
    """What it costs to serve a bucket with the winner of the nearest other one, where recorded."""
    found: dict[str, float] = {}
    for task, trials in recording.tasks.items():
        donor = nearest_bucket(task, list(recording.tasks))
        if donor is None:
            continue
        config = best_config(recording, donor)
        here = trials.get(config.key()) if config is not None else None
        if here is not None and here.time_us is not None:
            case = f"{task.title()} from M={donor.m}"
            found[case] = here.time_us / recording.best_us(task) - 1
    return found


def nearest_bucket(task: Task, tasks: Sequence[Task]) -> Task | None:
    """The task of the same problem and protocol whose M is the fewest octaves away."""
    others = [
        item
        for item in tasks
        if item.problem == task.problem and item.protocol is task.protocol and item.m != task.m
    ]
    return min(
        others,
        key=lambda item: (abs(item.m.bit_length() - task.m.bit_length()), item.m),
        default=None,
    )


def best_config(recording: Recording, task: Task) -> KernelConfig | None:
    """The fastest recorded config of a task."""
    good = [trial for trial in recording.tasks[task].values() if trial.time_us is not None]
    best = min(good, key=lambda trial: (trial.time_us, trial.config.key()), default=None)
    return None if best is None else best.config


def run_search(
    recording: Recording, task: Task, trials: int, seed: int, name: str = "tpe with seeds"
) -> Simulated:
    """One of SEARCHES on a task; by default what a tuning run does."""
    sampler, first = SEARCHES[name]
    return simulate(recording, task, sampler, trials, seed=seed, first=first)


def offline_gates(
    recording: Recording, *, trials: int, seeds: int = 3, tuner: Search = run_search
) -> list[Gate]:
    """The gates on recorded trials: exhaustive search is the recording itself.

    A budget that sees a quarter of a space finds its best one way or another, so what is gated is
    also how soon: the mean regret after a part of the budget, as a share of that of a random search
    without seeds at the same time.

    Args:
        recording: trials of a space, every one of them measured.
        trials: budget of a search; tasks with fewer than twice as many trials are left out, since a
            search that sees most of a space proves nothing.
        seeds: repetitions of every search.
        tuner: the search that the limits are for; the others are told beside it.
    """
    tasks = [task for task, found in recording.tasks.items() if len(found) >= 2 * trials]
    cases = list(itertools.product(tasks, range(seeds)))
    titles = [f"{task.title()}, seed {seed}" for task, seed in cases]
    searches: dict[str, Search] = {name: partial(run_search, name=name) for name in SEARCHES}
    searches[REAL] = tuner
    gates: list[Gate] = []
    ended: dict[str, list[Simulated]] = {}
    for name, search in searches.items():
        ended[name] = [search(recording, task, trials, seed) for task, seed in cases]
        regrets = {
            title: found.regret_after(trials)
            for title, found in zip(titles, ended[name], strict=True)
        }
        limit = MAX_REGRET if name == REAL else None
        gates += regret_gates(f"regret of {name}, {trials} trials", regrets, limit)
    gates += share_gates(ended[REAL], ended[BLIND], trials)
    early = round(trials * FLIPS_AFTER)
    winners: dict[str, list[tuple[str, float]]] = {}
    for (task, seed), found in zip(cases, ended[REAL], strict=True):
        config = tuner(recording, task, early, seed).config
        if config is not None:
            time_us = recording.best_us(task) * (1 + found.regret_after(early))
            winners.setdefault(task.title(), []).append((config.key(), time_us))
    gates += [
        replace(gate, name=f"{gate.name} after {early} trials", limit=None)
        for gate in flip_gates(winners)
    ]
    gates += regret_gates(
        "regret of the nearest bucket's winner", transfer_regrets(recording), None
    )
    return gates


def share_gates(tuner: Sequence[Simulated], blind: Sequence[Simulated], trials: int) -> list[Gate]:
    """The mean regret of a search along the way, as a share of a blind one's.

    Args:
        tuner: how a search ended, case by case.
        blind: how a random search without seeds ended in the same cases.
        trials: budget of both.
    """
    gates = []
    for part, limit in MAX_SHARES.items() if tuner else ():
        after = max(1, round(trials * part))
        mine, other = (
            statistics.mean(found.regret_after(after) for found in side) for side in (tuner, blind)
        )
        share = mine / other if other else (float("inf") if mine else 0.0)
        name = f"share of a blind search's regret, {after} trials"
        decides = len(tuner) >= LEAST_CASES
        detail = f"{mine:.2%} of {other:.2%}"
        gates.append(Gate(name, share, limit if decides else None, detail))
    return gates


Search = Callable[[Recording, Task, int, int], Simulated]
"""Searches a task of a recording with a number of trials and a seed."""

SEARCHES: dict[str, tuple[SamplerName, FirstConfigs | None]] = {
    "tpe with seeds": ("tpe", model_first),
    "tpe without seeds": ("tpe", None),
    "random with seeds": ("random", model_first),
    "random without seeds": ("random", None),
}
REAL = "tpe with seeds"
"""The search that a tuning run makes."""
BLIND = "random without seeds"

MAX_SHARES = {0.1: 0.35, 0.4: 0.25, 1.0: 0.1}
"""Share of a budget -> share of the blind search's mean regret that a tuner may have by then.

On the H200's trials it has 15, 15 and 0 %. Seeds of a shuffled model make the first 100 %, random
search behind good seeds the last two 28 and 19 %, and one that ends after 40 of 100 trials 25 %.
"""

LEAST_CASES = 10
"""Of fewer searches the mean says little: then shares only inform."""

FLIPS_AFTER = 0.4
"""Share of the budget after which two runs are compared; at its end they mostly agree."""


def _apart(first: float, second: float) -> float:
    return abs(first - second) / min(first, second)
