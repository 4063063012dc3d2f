"""Gates on the tuner itself: regret, flips and bucket transfer, as numbers with limits. Pure."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ptxgen.config import KernelConfig
from search.events import Task
from search.replay import Recording, simulate
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


def offline_gates(recording: Recording, *, trials: int, seeds: int = 3) -> list[Gate]:
    """The gates on recorded trials: exhaustive search is the recording itself.

    Args:
        recording: trials of a space, every one of them measured.
        trials: budget of a search; tasks with fewer than twice as many trials are left out, since a
            search that sees most of a space proves nothing.
        seeds: repetitions of every search.
    """
    tasks = [task for task, found in recording.tasks.items() if len(found) >= 2 * trials]
    gates: list[Gate] = []
    winners: dict[str, list[tuple[str, float]]] = {}
    for sampler, seeded, limit in SEARCHES:
        regrets: dict[str, float] = {}
        for task, seed in itertools.product(tasks, range(seeds)):
            found = simulate(recording, task, sampler, trials, seed=seed, seeded=seeded)
            regrets[f"{task.title()}, seed {seed}"] = found.regret
            if (sampler, seeded) == REAL and found.config is not None:
                best = recording.best_us(task) * (1 + found.regret)
                winners.setdefault(task.title(), []).append((found.config.key(), best))
        name = f"regret of {sampler}{' with' if seeded else ' without'} seeds, {trials} trials"
        gates += regret_gates(name, regrets, limit)
    gates += flip_gates(winners)[:1]
    gates += regret_gates(
        "regret of the nearest bucket's winner", transfer_regrets(recording), None
    )
    return gates


SEARCHES: tuple[tuple[SamplerName, bool, float | None], ...] = (
    ("tpe", True, MAX_REGRET),
    ("tpe", False, None),
    ("random", True, None),
    ("random", False, None),
)
REAL = ("tpe", True)
"""The search that a tuning run makes."""


def _apart(first: float, second: float) -> float:
    return abs(first - second) / min(first, second)
