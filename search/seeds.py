"""Seeds from the database: configs that won where things were nearly the same, nearest first."""

from __future__ import annotations

import math
from collections.abc import Iterable

from db import query
from db.devices import device_key
from db.imported import IMPORTED
from db.records import DeviceRecord, TrialRecord, WinnerRecord
from db.session import Database
from ptxgen.config import KernelConfig
from ptxgen.outcome import Status
from ptxgen.problem import Problem
from search.events import Task

EARLIER = 8
"""Configs of an older driver or NVRTC that a search measures first."""


def neighbour_winners(database: Database, device: DeviceRecord, task: Task) -> list[KernelConfig]:
    """Winners of this very problem on this device model: other buckets, protocols, predictions.

    They also break ties: one kernel that serves two buckets is better than two.
    """
    found = query.winners(
        database, device=device, problem=task.problem, batch_invariant=task.batch_invariant
    )
    found.sort(key=lambda item: (item.m != task.m, _octaves(item.m, task.m)))
    return _distinct(item.config for item in found)


def earlier_best(database: Database, device: DeviceRecord, task: Task) -> list[KernelConfig]:
    """The fastest configs of this very task under any driver or NVRTC: a refresh begins with them.

    Those whose trial still holds are known to the sampler, which does not repeat them.
    """
    found = query.finished(database, task.problem, device, task.m, task.protocol)
    timed = [item for item in found if item.outcome.status is Status.OK]
    timed.sort(key=lambda item: (item.outcome.time_us or math.inf, item.id))
    return _distinct(item.config for item in timed if item.config is not None)[:EARLIER]


def related_winners(database: Database, device: DeviceRecord, task: Task) -> list[KernelConfig]:
    """Winners of other layers and other GPU models, and imported ones; a search may try them first.

    Ordered by how far their M, their size (N x K) and their GPU are from the task's. Those whose
    config is not legal here are left out by the sampler.
    """
    key, ours = task.problem.key(), device_key(device)
    found: list[tuple[float, int, KernelConfig]] = []
    for item in query.winners(database):
        same_device = device_key(item.device) == ours
        if item.problem.key() != key or not same_device:
            away = _distance(item, task) + (not same_device) + item.predicted
            found.append((away, item.trial_id, item.config))
    for trial in query.trials(database, contender=IMPORTED):
        if trial.config is not None:
            found.append((_distance(trial, task), trial.id, trial.config))
    found.sort(key=lambda item: item[:2])
    return _distinct(config for _, _, config in found)


def _distance(item: WinnerRecord | TrialRecord, task: Task) -> float:
    """Steps in M count most, then the layer's size, then what else is unlike."""
    wanted = task.problem
    size = abs(math.log2(item.problem.n / wanted.n)) + abs(math.log2(item.problem.k / wanted.k))
    unlike = _kind(item.problem) != _kind(wanted)
    return 2.0 * _octaves(item.m, task.m) + size + unlike


def _kind(problem: Problem) -> tuple[str, str, int]:
    return (problem.dtype, problem.zero, problem.group_size)


def _octaves(m: int, wanted: int) -> int:
    return abs(m.bit_length() - wanted.bit_length())


def _distinct(configs: Iterable[KernelConfig]) -> list[KernelConfig]:
    return list({config.key(): config for config in configs}.values())
