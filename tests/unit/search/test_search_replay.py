"""Replay and gates: searches on trials recorded on an H200, and gates that do fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import search_fakes

from db.records import Protocol
from db.store import Store
from db.trial_file import Environment, TrialFile, write_trials
from db.trial_rows import SharedTrial
from ptxgen.config import KernelConfig
from ptxgen.errors import TrialFileError
from ptxgen.families.mma import MMA
from ptxgen.outcome import Status
from search.budget import Budget
from search.events import Task
from search.gates import (
    BLIND,
    MAX_REGRET,
    MAX_SHARES,
    Gate,
    Search,
    best_config,
    flip_gates,
    nearest_bucket,
    offline_gates,
    regret_gates,
    run_search,
    share_gates,
    transfer_regrets,
)
from search.job import TuneJob
from search.replay import (
    Recording,
    Simulated,
    load_recording,
    model_first,
    recording_of,
    simulate,
)
from search.space import Space
from search.tune import tune

RECORDED = Path(__file__).parents[2] / "data" / "recorded-h200.jsonl.gz"
TRIALS = 100


@pytest.fixture(scope="module")
def recording() -> Recording:
    return load_recording(RECORDED)


def large_tasks(recording: Recording, count: int = 6) -> list[Task]:
    """The tasks with the most recorded configs, of different problems and buckets."""
    by_size = sorted(recording.tasks, key=lambda task: -len(recording.tasks[task]))
    distinct = {(task.problem, task.m): task for task in reversed(by_size)}
    return sorted(distinct.values(), key=lambda task: -len(recording.tasks[task]))[:count]


def test_the_recording_is_of_an_h200_and_large(recording: Recording) -> None:
    assert recording.device.name == "NVIDIA H200"
    assert recording.environment.toolchain.driver.startswith("580")
    assert sum(map(len, recording.tasks.values())) > 10_000
    assert min(len(recording.tasks[task]) for task in large_tasks(recording)) >= 300
    for task in recording.tasks:  # still what the emitter can make
        for trial in recording.tasks[task].values():
            assert MMA.violations(task.problem, trial.config, recording.arch) == []


def test_exhaustive_search_has_no_regret(recording: Recording) -> None:
    task = large_tasks(recording)[0]
    found = simulate(recording, task, "exhaustive", 10_000)
    assert found.trials == len(recording.tasks[task])
    assert found.regret == 0
    assert found.config is not None
    times = [trial.time_us for trial in recording.tasks[task].values() if trial.time_us]
    assert recording.tasks[task][found.config.key()].time_us == min(times)


SEEDS = 2


@pytest.fixture(scope="module")
def blind(recording: Recording) -> list[Simulated]:
    return ended(recording, partial(run_search, name=BLIND))


def ended(recording: Recording, tuner: Search) -> list[Simulated]:
    return [
        tuner(recording, task, TRIALS, seed)
        for task in large_tasks(recording)
        for seed in range(SEEDS)
    ]


def tuner_gates(runs: list[Simulated], blind: list[Simulated]) -> list[Gate]:
    """The gates of offline_gates that have limits."""
    regrets = {str(number): found.regret_after(TRIALS) for number, found in enumerate(runs)}
    return [*regret_gates("regret", regrets, MAX_REGRET), *share_gates(runs, blind, TRIALS)]


def shuffled_model(recording: Recording, task: Task, space: Space, seed: int) -> list[KernelConfig]:
    """As many configs as the model would choose, by chance."""
    return space.shuffled(seed + 1000)[: len(model_first(recording, task, space, seed))]


def on_a_shuffled_model(recording: Recording, task: Task, trials: int, seed: int) -> Simulated:
    return simulate(recording, task, "tpe", trials, seed=seed, first=shuffled_model)


def without_learning(recording: Recording, task: Task, trials: int, seed: int) -> Simulated:
    return run_search(recording, task, trials, seed, "random with seeds")


def of_a_smaller_budget(recording: Recording, task: Task, trials: int, seed: int) -> Simulated:
    return run_search(recording, task, trials // 2, seed, BLIND)


def stops_early(recording: Recording, task: Task, trials: int, seed: int) -> Simulated:
    return run_search(recording, task, trials * 3 // 10, seed)


def test_the_tuner_passes_its_gates(recording: Recording, blind: list[Simulated]) -> None:
    gates = tuner_gates(ended(recording, run_search), blind)
    assert all(gate.passed for gate in gates), gates
    assert sum(gate.limit is not None for gate in gates) == 1 + len(MAX_SHARES)


@pytest.mark.parametrize(
    ("tuner", "broken"),
    [
        (on_a_shuffled_model, {10}),
        (without_learning, {TRIALS}),
        (of_a_smaller_budget, {10, 40, TRIALS}),
        (stops_early, {TRIALS}),
    ],
)
def test_a_worse_tuner_breaks_a_gate(
    recording: Recording, blind: list[Simulated], tuner: Search, broken: set[int]
) -> None:
    gates = share_gates(ended(recording, tuner), blind, TRIALS)
    failed = {after for gate, after in zip(gates, (10, 40, TRIALS), strict=True) if not gate.passed}
    assert broken <= failed, gates


def test_a_worse_tuner_fails_the_whole_check(recording: Recording) -> None:
    few = {task: recording.tasks[task] for task in large_tasks(recording, 5)}
    gates = offline_gates(replace(recording, tasks=few), trials=TRIALS, seeds=2, tuner=stops_early)
    assert f"share of a blind search's regret, {TRIALS} trials" in [
        gate.name for gate in gates if not gate.passed
    ]


def test_shares_by_hand() -> None:
    def run(*regrets: float) -> Simulated:
        return Simulated(None, regrets[-1], regrets)

    blind = [run(*[0.4] * 4, *[0.2] * 6), run(*[0.2] * 10)] * 5
    mine = [run(0.1, 0.0), run(0.05)] * 5  # each keeps its last regret where it ended early
    first, middle, last = share_gates(mine, blind, 10)
    assert (first.value, middle.value) == (pytest.approx(0.25), pytest.approx(0.025 / 0.3))
    assert last.value == pytest.approx(0.125)
    assert [first.passed, middle.passed, last.passed] == [True, True, False]
    assert last.detail == "2.50% of 20.00%"
    perfect = [run(0.0)]
    assert [gate.value for gate in share_gates(perfect, perfect, 10)] == [0.0, 0.0, 0.0]
    assert not share_gates(mine, perfect * 10, 10)[0].passed
    assert share_gates(mine[:9], perfect * 9, 10)[0].passed  # too few to decide
    assert share_gates([], [], 10) == []
    assert run(0.3).regret_after(0) == float("inf")


def test_a_simulated_search_repeats_itself(recording: Recording) -> None:
    task = large_tasks(recording)[1]
    first, second = (simulate(recording, task, "tpe", 40, seed=7) for _ in range(2))
    assert first == second


def test_the_whole_tuner_runs_on_a_recording(
    recording: Recording, store: Store, make_job: Callable[..., TuneJob]
) -> None:
    task = min(
        (task for task in recording.tasks if task.protocol is Protocol.PLAIN),
        key=lambda task: len(recording.tasks[task]),
    )
    job = make_job(
        {"path": str(RECORDED)},
        problems=(task.problem,),
        buckets=(task.m,),
        evaluator="search.replay:create",
        families=recording.families(),
        budget=Budget(),
        sampler="exhaustive",
        baseline=False,
    )
    (ended,) = tune(job, store).tasks
    assert ended.config is not None
    assert ended.time_us == pytest.approx(recording.best_us(task), rel=0.02)  # or a tie


# ---- small recordings, known by hand ------------------------------------------------------------


def config(block_n: int) -> KernelConfig:
    return replace(search_fakes.BASE, block_n=block_n)


def made(times: dict[int, dict[int, float | None]]) -> Recording:
    """A recording of M -> block_n -> time; None is a wrong result."""
    trials = tuple(
        SharedTrial(
            search_fakes.PROBLEM,
            m,
            Protocol.PLAIN,
            config(block_n),
            Status.WRONG if time_us is None else Status.OK,
            time_us=time_us,
        )
        for m, row in times.items()
        for block_n, time_us in row.items()
    )
    environment = Environment(search_fakes.DEVICE, search_fakes.TOOLCHAIN)
    return recording_of(TrialFile((environment,), trials), "made")


def task_of(m: int) -> Task:
    return Task(search_fakes.PROBLEM, m, Protocol.PLAIN)


def test_transfer_regret_by_hand() -> None:
    recording = made({1: {32: 4.0, 64: 5.0}, 8: {32: 6.0, 64: 5.0}, 256: {64: 9.0}})
    assert best_config(recording, task_of(1)) == config(32)
    assert nearest_bucket(task_of(256), list(recording.tasks)) == task_of(8)
    found = transfer_regrets(recording)
    assert found[f"{task_of(8).title()} from M=1"] == pytest.approx(0.2)
    assert found[f"{task_of(1).title()} from M=8"] == pytest.approx(0.25)
    assert found[f"{task_of(256).title()} from M=8"] == 0


def test_regret_is_against_the_best_ok_trial() -> None:
    recording = made({1: {32: 4.0, 64: 5.0, 128: None}})
    assert recording.best_us(task_of(1)) == 4.0
    assert simulate(recording, task_of(1), "random", 1, first=None).regret in (0.0, 0.25)
    assert simulate(recording, task_of(1), "random", 3, first=None).regret == 0.0


def test_flips_that_cost_nothing_pass_and_costly_ones_fail() -> None:
    rate, costly = flip_gates({"a": [("x", 5.0), ("y", 5.05), ("x", 5.0)]})
    assert rate.value == pytest.approx(2 / 3)
    assert costly.value == 0
    assert costly.passed
    rate, costly = flip_gates({"a": [("x", 5.0), ("y", 5.5)], "b": [("z", 1.0), ("z", 1.0)]})
    assert (rate.value, costly.value) == (0.5, 0.5)
    assert not costly.passed
    assert "a" in costly.detail
    assert flip_gates({"a": [("x", 5.0)]}) == []


def test_the_worst_case_decides_a_regret() -> None:
    mean, worst = regret_gates("regret", {"a": 0.0, "b": 0.04}, 0.03)
    assert mean.passed
    assert mean.value == pytest.approx(0.02)
    assert (worst.passed, worst.detail) == (False, "b")
    assert not Gate("regret", float("nan"), 0.03).passed
    assert regret_gates("regret", {}, 0.03) == []


def names(gates: Sequence[Gate]) -> list[str]:
    return [gate.name for gate in gates]


def test_offline_gates_leave_small_tasks_out(recording: Recording) -> None:
    task = large_tasks(recording)[0]
    small = min(recording.tasks, key=lambda item: len(recording.tasks[item]))
    few = {item: recording.tasks[item] for item in (task, small)}
    gates = offline_gates(replace(recording, tasks=few), trials=100, seeds=1)
    assert next(gate.detail for gate in gates if gate.name.endswith("mean")) == "1 cases"
    assert "regret of tpe with seeds, 100 trials, worst" in names(gates)
    assert {gate.limit for gate in gates if gate.name.startswith("share")} == {None}  # of one case
    assert not any(
        name.startswith(("regret of tpe", "share"))
        for name in names(offline_gates(made({1: {32: 4.0, 64: 5.0}}), trials=100, seeds=1))
    )


@pytest.mark.parametrize("count", [0, 2])
def test_a_recording_is_of_one_environment(tmp_path: Path, count: int) -> None:
    environments = tuple(
        Environment(replace(search_fakes.DEVICE, num_sms=sms), search_fakes.TOOLCHAIN)
        for sms in range(100, 100 + count)
    )
    trial = SharedTrial(search_fakes.PROBLEM, 1, Protocol.PLAIN, config(32), Status.OK, time_us=1.0)
    trials = (trial,) if count else ()
    write_trials(tmp_path / "r.gz", TrialFile(environments, trials))
    with pytest.raises(TrialFileError, match=f"{len(trials)} trials of {count} environments"):
        load_recording(tmp_path / "r.gz")


def test_of_two_times_of_a_config_the_screening_counts() -> None:
    """Its second one, of the finals, was taken at the clock of sustained work."""
    first = made({8: {16: 10.0, 32: 11.0, 64: None}})
    (task,) = first.tasks
    trials = list(first.tasks[task].values())
    again = [
        replace(trials[0], time_us=13.0),
        replace(trials[1], status=Status.NOISY, time_us=None),
        replace(trials[2], status=Status.OK, time_us=12.0),
    ]
    found = recording_of(TrialFile((first.environment,), (*trials, *again)), "made").tasks[task]
    assert [found[config(block_n).key()].time_us for block_n in (16, 32, 64)] == [10.0, 11.0, 12.0]
