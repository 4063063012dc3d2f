"""Seeds: the nearest winners come first, whoever found them, and a search tries them early."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace

import pytest
import search_fakes

from db import query
from db.imported import import_trials
from db.records import DeviceRecord, Protocol
from db.store import Store
from db.trial_file import Environment, TrialFile
from db.trial_rows import SharedTrial
from ptxgen.arch import arch_named
from ptxgen.config import KernelConfig
from ptxgen.outcome import Outcome, Status
from ptxgen.problem import Problem
from ptxgen.source import KernelSource
from search.compile_pool import Compiled, CompilePool
from search.events import Task
from search.job import TuneJob
from search.ranking import Ranker
from search.seeds import neighbour_winners, related_winners
from search.space import Space
from search.tune import tune

H100 = replace(search_fakes.DEVICE, name="NVIDIA H100 80GB HBM3", uuid="GPU-other")
TASK = Task(search_fakes.PROBLEM, 8, Protocol.PLAIN)
CONFIGS = list(
    search_fakes.families()["mma"].candidates(search_fakes.PROBLEM, arch_named("sm_90a"), 8)
)


def win(
    store: Store, config: KernelConfig, problem: Problem, m: int, device: DeviceRecord
) -> KernelConfig:
    run = store.start_run(device, search_fakes.TOOLCHAIN)
    trial = store.start_trial(run, problem, m, Protocol.PLAIN, config=config, source_digest="d")
    store.end_trial(trial, Outcome(Status.OK, time_us=5.0))
    assert store.set_winner(trial)
    return config


def test_neighbours_are_of_this_problem_and_gpu_nearest_bucket_first(store: Store) -> None:
    far = win(store, CONFIGS[0], TASK.problem, 256, search_fakes.DEVICE)
    near = win(store, CONFIGS[1], TASK.problem, 16, search_fakes.DEVICE)
    win(store, CONFIGS[2], Problem(8192, 4096), 8, search_fakes.DEVICE)
    win(store, CONFIGS[3], TASK.problem, 8, H100)
    assert neighbour_winners(store.database, search_fakes.DEVICE, TASK) == [near, far]


def test_relatives_are_other_layers_and_other_gpus_nearest_first(store: Store) -> None:
    win(store, CONFIGS[1], TASK.problem, 16, search_fakes.DEVICE)  # a neighbour
    farthest = win(store, CONFIGS[0], Problem(28672, 8192), 64, H100)
    other_layer = win(store, CONFIGS[2], Problem(6144, 4096), 8, search_fakes.DEVICE)
    other_gpu = win(store, CONFIGS[3], TASK.problem, 16, H100)
    found = related_winners(store.database, search_fakes.DEVICE, TASK)
    assert found == [other_layer, other_gpu, farthest]


def test_a_search_tries_relatives_right_after_the_default(
    store: Store, make_job: Callable[..., TuneJob], evaluated: Callable[[], list[str]]
) -> None:
    relative = win(store, CONFIGS[5], Problem(6144, 4096), 8, search_fakes.DEVICE)
    tune(make_job(), store)
    tried = [line.split(" ", 2)[2] for line in evaluated() if line.startswith("evaluate screen")]
    assert tried[:2] == [search_fakes.BASE.key(), relative.key()]


def test_known_seeds_compile_while_the_model_orders_the_others(
    store: Store, make_job: Callable[..., TuneJob], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ordering a large space takes a second, of which short budgets have few."""
    relative = win(store, CONFIGS[5], Problem(6144, 4096), 8, search_fakes.DEVICE)
    order: list[str] = []
    submit, seeds = CompilePool.submit, Ranker.seeds

    def submitted(pool: CompilePool, source: KernelSource) -> Future[Compiled]:
        order.append(source.text)
        return submit(pool, source)

    def ranked(ranker: Ranker, space: Space, seed: int = 0) -> list[KernelConfig]:
        order.append("ranked")
        return seeds(ranker, space, seed)

    monkeypatch.setattr(CompilePool, "submit", submitted)
    monkeypatch.setattr(Ranker, "seeds", ranked)
    (task,) = tune(make_job(), store).tasks
    first = order[: order.index("ranked")]
    assert len(first) == 2
    assert search_fakes.BASE.key() in first[0]
    assert relative.key() in first[1]
    assert len(order) > 3
    assert task.time_us is not None


def test_imported_trials_are_seeds(store: Store, make_job: Callable[..., TuneJob]) -> None:
    shared = SharedTrial(
        TASK.problem, 8, Protocol.PLAIN, CONFIGS[7], Status.OK, time_us=1.0, won=True
    )
    environment = Environment(H100, search_fakes.TOOLCHAIN)
    import_trials(store.database, TrialFile((environment,), (shared,)), "elsewhere")
    far = win(store, CONFIGS[0], Problem(28672, 8192), 64, search_fakes.DEVICE)
    assert related_winners(store.database, search_fakes.DEVICE, TASK) == [CONFIGS[7], far]
    (task,) = tune(make_job(), store).tasks
    assert task.time_us == search_fakes.true_us(task.config)  # measured here, not the imported 1 us
    measured = query.trials(store.database, config=CONFIGS[7], contender="ptxtune")
    assert measured[0].outcome.time_us == search_fakes.true_us(CONFIGS[7])


@pytest.mark.parametrize("change", ["driver", "refresh"])
def test_after_a_change_of_driver_the_eight_best_are_measured_first(
    store: Store, make_job: Callable[..., TuneJob], evaluated: Callable[[], list[str]], change: str
) -> None:
    tune(make_job(), store)
    count = len(evaluated())
    changed = {
        "driver": {"toolchain": replace(search_fakes.TOOLCHAIN, nvrtc="13.6")},
        "refresh": {"refresh": True},
    }
    tune(make_job(**changed[change]), store)
    tried = [line.split(" ", 2)[2] for line in evaluated()[count:] if "evaluate screen" in line]
    best = sorted(CONFIGS, key=lambda item: (search_fakes.true_us(item), item.key()))
    assert set(tried[:9]) == {search_fakes.BASE.key(), *(item.key() for item in best[:8])}
