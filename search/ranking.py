"""Ranking: orders a space by the model before anything is compiled."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice, zip_longest
from operator import itemgetter

from db.records import DeviceRecord
from ptxgen.arch import ArchSpec, GpuSpec, gpu_named
from ptxgen.config import KernelConfig
from ptxgen.errors import ArchError
from ptxgen.families.base import Family
from search.events import Task
from search.model import estimate_resources, predict_us
from search.space import Space

UNKNOWN_GPU = GpuSpec("unknown", "", "sm_80", 0, 0, 800.0, 150.0, 1.9)
"""Rates for a GPU whose ceilings are neither measured nor in the table: they still rank."""

RANKED = 4000
"""Of a larger space a random sample of this size is ranked first, with small families whole."""

CLIMBS = 6
"""Rounds in which the neighbours of the best ones are looked at."""

CLIMBERS = 8

MODEL_SEEDS = 12

FAMILY_SEEDS = 4
IN_REACH = 1.5
"""A family whose best prediction is longer by more than this gets no seeds of its own."""


def gpu_spec_of(device: DeviceRecord) -> GpuSpec:
    """A device's ceilings as the model needs them; the table's, or a guess, where none exist."""
    try:
        known = gpu_named(device.name)
    except ArchError:
        known = UNKNOWN_GPU
    return GpuSpec(
        name=known.name,
        device_name=device.name,
        arch=device.arch.name,
        num_sms=device.num_sms,
        l2_bytes=device.l2_bytes,
        read_gbps=device.read_gbps or known.read_gbps,
        tensor_tflops=device.tensor_tflops or known.tensor_tflops,
        launch_us=device.launch_us or known.launch_us,
        measured=device.measured,
    )


class Ranker:
    """Predicts configs of one task from estimated resources; remembers what it has predicted."""

    def __init__(
        self, task: Task, arch: ArchSpec, gpu: GpuSpec, families: Mapping[str, Family]
    ) -> None:
        self._task, self._arch, self._gpu, self._families = task, arch, gpu, families
        self._known: dict[str, float] = {}

    def predicted_us(self, config: KernelConfig) -> float:
        """Microseconds by the model, registers being a guess."""
        key = config.key()
        if key not in self._known:
            problem = self._task.problem
            plan = self._families[config.family].plan(problem, config, self._arch)
            resources = estimate_resources(problem, config, plan)
            self._known[key] = predict_us(
                problem,
                config,
                plan,
                resources,
                self._task.m,
                gpu=self._gpu,
                protocol=self._task.protocol,
            )
        return self._known[key]

    def best(self, space: Space, count: int, seed: int = 0) -> list[KernelConfig]:
        """The most promising configs, best first: of all, or of a sample and a climb from it."""
        found = {config.key(): config for config in _sample(space.shuffled(seed))}
        if len(space) > RANKED:
            for _ in range(CLIMBS):
                top = self._sorted(found.values())[:CLIMBERS]
                near = [item for config in top for item in space.neighbours(config)]
                if all(item.key() in found for item in near):
                    break
                found.update((item.key(), item) for item in near)
        return self._sorted(found.values())[:count]

    def seeds(self, space: Space, seed: int = 0) -> list[KernelConfig]:
        """What to start a search with: of each family in reach its best, then the best of all.

        The model compares configs of one family well, families less so: at M = 32 it preferred
        wgmma to wgmma_tma on 8192 x 8192, where that is 17 % faster (H200, 2026-11-30).
        """
        # Of configs that the model cannot tell apart one is enough to start with.
        distinct: dict[tuple[str, float], KernelConfig] = {}
        for config in self.best(space, len(space), seed):
            distinct.setdefault((config.family, round(self.predicted_us(config), 3)), config)
        ranked = list(distinct.values())
        if not ranked:
            return []
        reach_us = IN_REACH * self.predicted_us(ranked[0])
        places: Counter[str] = Counter()
        turns: list[tuple[int, KernelConfig]] = []
        for config in ranked:
            in_reach = self.predicted_us(config) <= reach_us
            turn = min(places[config.family], FAMILY_SEEDS) if in_reach else FAMILY_SEEDS
            turns.append((turn, config))
            places[config.family] += 1
        turns.sort(key=itemgetter(0))  # stable: within a turn by the prediction
        return [config for _, config in turns][:MODEL_SEEDS]

    def _sorted(self, configs: Iterable[KernelConfig]) -> list[KernelConfig]:
        finite = (item for item in configs if math.isfinite(self.predicted_us(item)))
        return sorted(finite, key=lambda item: (self.predicted_us(item), item.key()))


def _sample(shuffled: Sequence[KernelConfig]) -> list[KernelConfig]:
    """The first RANKED configs, each family in its turn as long as it lasts."""
    families: dict[str, list[KernelConfig]] = {}
    for config in shuffled:
        families.setdefault(config.family, []).append(config)
    turns = zip_longest(*families.values())
    in_turns = (config for turn in turns for config in turn if config is not None)
    return list(islice(in_turns, RANKED))
