"""What a soak does: its lanes, what is offered in each, and what comes from outside.

A lane is a tuner of its own with its own database and worker; lanes share nothing but the machine
and, with real kernels, the GPU.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from db.records import DeviceRecord
from ptxgen.arch import arch_named
from ptxgen.config import Scalar
from ptxgen.errors import PtxtuneError
from ptxgen.families import FAMILIES
from search.compile_pool import MAX_WORKERS, cores
from search.faults import PLANS, FaultPlan
from search.soak_run import BUCKET, SoakSpec
from search.space import Space

MAX_LANES = 16
"""A worker start takes a core for some seconds; each lane has one worker and two compilers."""

LEAST_FAULTS = 25
"""In a lane by itself; fewer are not worth the start of another tuner."""

KERNEL_SHARE = 0.85
PROCESS_SHARE = 0.6
PROCESS_CONFIGS = 360

SPARE = 1.02
"""Planned faults over wanted ones: a kernel that spills is rejected before its fault happens."""

LEAST_GOOD = 3
"""Good configs of a lane, at least: one must win, and prove a new worker."""

GOOD = ""
"""Stands for the good configs among the names of faults."""

PARENT_KILL, CHILD_KILL, LOCK = "kill -9 of the tuner", "kill -9 of a child", "locked database"


class SoakError(PtxtuneError):
    """A soak that cannot be planned as asked for, or that no fault explains the end of."""


@dataclass(frozen=True, slots=True)
class Disturbances:
    """How often what comes from outside happens.

    Attributes:
        parent_kills: kill -9 of the tuner.
        child_kills: kill -9 of a worker or compile process of it.
        locks: another connection holds the write lock for up to 4 s.
        pause_s: between two of them, at most.
    """

    parent_kills: int = 0
    child_kills: int = 0
    locks: int = 0
    pause_s: float = 2.5

    def names(self) -> list[str]:
        """One name for each of them."""
        named = {PARENT_KILL: self.parent_kills, CHILD_KILL: self.child_kills, LOCK: self.locks}
        return [name for name, count in named.items() for _ in range(count)]


@dataclass(frozen=True, slots=True)
class Lane:
    """What one lane does."""

    spec: SoakSpec
    disturbances: Disturbances


def lanes_for(faults: int) -> int:
    """Lanes of a soak where none are asked for: one a core, at most 16, each with 25 faults."""
    return max(1, min(MAX_LANES, cores(), faults // LEAST_FAULTS))


def plan_soak(
    folder: Path, faults: int, *, lanes: int = 1, device: DeviceRecord | None = None, seed: int = 0
) -> list[Lane]:
    """The lanes of a soak of at least that many faults.

    Args:
        folder: an empty folder; each lane gets one in it.
        faults: how many, at least, over all lanes.
        lanes: how many tuners run at once.
        device: real kernels on this GPU, whose ceilings were measured; None: fakes, no GPU.
        seed: of every random choice.

    Raises:
        SoakError: more faults than there are configs, or more lanes than faults.
    """
    if lanes > faults:
        raise SoakError(
            f"{lanes} lanes for {faults} faults: every lane needs one. Give at most {faults} lanes."
        )
    folders = [folder / f"lane-{number + 1}" for number in range(lanes)]
    for each in folders:
        each.mkdir()
    if device is None:
        specs = _fake_specs(folders, math.ceil(faults / lanes), seed)
    else:
        specs = _kernel_specs(folders, faults, device, seed)
    outside = deal(disturbances_for(faults, kernels=device is not None), lanes)
    return [Lane(spec, each) for spec, each in zip(specs, outside, strict=True)]


def disturbances_for(faults: int, *, kernels: bool = False) -> Disturbances:
    """How much of a soak comes from outside; on a GPU less, since a restart takes seconds there."""
    if kernels:
        few = min(8, math.ceil(faults / 100))
        return Disturbances(few, few, few, pause_s=4.0)
    return Disturbances(faults // 50, faults // 50, faults // 100)


def deal(outside: Disturbances, lanes: int) -> list[Disturbances]:
    """Deals disturbances to lanes, so that no lane gets two more than another."""
    hands = [Counter(outside.names()[lane::lanes]) for lane in range(lanes)]
    return [
        Disturbances(hand[PARENT_KILL], hand[CHILD_KILL], hand[LOCK], outside.pause_s)
        for hand in hands
    ]


def quotas(faults: int, lanes: int, share: float = KERNEL_SHARE) -> list[dict[str, int]]:
    """How many configs of each fault of real kernels a lane is offered, and how many good ones.

    Faults are dealt one by one in the order of their list, where the deadly ones come first: a lane
    that has more of those than the others would end long after them.
    """
    weights = {fault.name: fault.weight for fault in PLANS["kernel"]}
    scale = SPARE * faults / sum(weights.values())
    names = [name for name, each in weights.items() for _ in range(math.ceil(each * scale))]
    good = max(LEAST_GOOD, math.ceil(len(names) / lanes * (1 / share - 1)))
    return [{GOOD: good, **Counter(names[lane::lanes])} for lane in range(lanes)]


def _fake_specs(folders: list[Path], faults: int, seed: int) -> list[SoakSpec]:
    """Lanes of fakes; more than one problem where one has too few configs."""
    configs = min(PROCESS_CONFIGS, max(20, faults))
    cases = max(1, round(faults / (configs * PROCESS_SHARE)))
    return [
        SoakSpec(str(folder), "process", _seed(seed, lane), cases, configs, PROCESS_SHARE)
        for lane, folder in enumerate(folders)
    ]


def _kernel_specs(
    folders: list[Path], faults: int, device: DeviceRecord, seed: int
) -> list[SoakSpec]:
    """Lanes of real kernels, each with its quotas of one space."""
    base = SoakSpec(
        "",
        "kernel",
        share=KERNEL_SHARE,
        busy_timeout_ms=5000,
        arch=device.arch.name,
        compilers=max(1, min(MAX_WORKERS, 2 * cores() // len(folders))),
        device=asdict(device),
    )
    (problem,) = base.problems()
    mma = {"mma": FAMILIES["mma"]}
    space = Space(problem, arch_named(base.arch), BUCKET, mma, chained=False)
    specs = []
    for lane, quota in enumerate(quotas(faults, len(folders))):
        spec = replace(base, folder=str(folders[lane]), seed=_seed(seed, lane))
        chosen = _chosen(space, spec.plan, quota, spec.seed)
        specs.append(replace(spec, configs=len(chosen), chosen=tuple(chosen)))
    return specs


def _chosen(
    space: Space, plan: FaultPlan, quota: Mapping[str, int], seed: int
) -> list[dict[str, Scalar]]:
    """Configs in random order until every quota is full. Raises SoakError where they run out."""
    left = Counter(quota)
    case = space.problem.key()
    found: list[dict[str, Scalar]] = []
    for config in space.shuffled(seed):
        fault = plan.fault_of(config, case)
        name = fault.name if fault else GOOD
        if left[name] > 0:
            left[name] -= 1
            found.append(config.to_dict())
    missing = {name: count for name, count in left.items() if count > 0}
    if missing:
        raise SoakError(
            f"{sum(quota.values())} configs were asked for in one lane, and among the "
            f"{len(space)} of the space {sum(missing.values())} are missing ({missing}): ask for "
            f"fewer faults or give more --lanes."
        )
    return found


def _seed(seed: int, lane: int) -> int:
    """Of one lane: no lane of one soak shares its choices with another."""
    return 1000 * seed + lane
