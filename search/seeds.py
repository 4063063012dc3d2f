"""Seeds from the database: configs that won where things were nearly the same, nearest first."""

from __future__ import annotations

import math
from collections.abc import Iterable

from db import query
from db.devices import device_key
from db.records import DeviceRecord, WinnerRecord
from db.session import Database
from ptxgen.config import KernelConfig
from search.events import Task


def neighbour_winners(database: Database, device: DeviceRecord, task: Task) -> list[KernelConfig]:
    """Winners of this very problem on this device model: other buckets, protocols, predictions.

    They also break ties: one kernel that serves two buckets is better than two.
    """
    found = query.winners(database, device=device, problem=task.problem)
    found.sort(key=lambda item: (item.m != task.m, _octaves(item.m, task.m)))
    return _distinct(item.config for item in found)


def related_winners(database: Database, device: DeviceRecord, task: Task) -> list[KernelConfig]:
    """Winners of other layers and other GPU models, and imported ones; a search may try them first.

    Ordered by how far their M, their size (N x K) and their GPU are from the task's. Those whose
    config is not legal here are left out by the sampler.
    """
    key, ours = task.problem.key(), device_key(device)
    other = [
        item
        for item in query.winners(database)
        if item.problem.key() != key or device_key(item.device) != ours
    ]
    other.sort(key=lambda item: _distance(item, task, ours))
    return _distinct(item.config for item in other)


def _distance(item: WinnerRecord, task: Task, ours: str) -> tuple[float, bool, int]:
    """Steps in M count most, then the layer's size, then another GPU, predictions last."""
    layer, wanted = item.problem, task.problem
    size = abs(math.log2(layer.n / wanted.n)) + abs(math.log2(layer.k / wanted.k))
    unlike = (layer.dtype, layer.zero, layer.group_size) != (
        wanted.dtype,
        wanted.zero,
        wanted.group_size,
    )
    steps = 2.0 * _octaves(item.m, task.m) + size + unlike + (device_key(item.device) != ours)
    return (steps, item.predicted, item.trial_id)


def _octaves(m: int, wanted: int) -> int:
    return abs(m.bit_length() - wanted.bit_length())


def _distinct(configs: Iterable[KernelConfig]) -> list[KernelConfig]:
    return list({config.key(): config for config in configs}.values())
