"""Replay and gates: searches on trials recorded on an H200, and gates that do fail."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
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
    MAX_REGRET,
    Gate,
    best_config,
    flip_gates,
    nearest_bucket,
    offline_gates,
    regret_gates,
    transfer_regrets,
)
from search.job import TuneJob
from search.replay import Recording, load_recording, recording_of, simulate
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


def test_tpe_with_seeds_is_within_three_percent_everywhere(recording: Recording) -> None:
    regrets = {
        (task.title(), seed): simulate(recording, task, "tpe", TRIALS, seed=seed).regret
        for task in large_tasks(recording)
        for seed in range(2)
    }
    assert max(regrets.values()) <= MAX_REGRET, max(regrets, key=lambda case: regrets[case])
    assert statistics.mean(regrets.values()) < 0.01


def test_tpe_and_seeds_earn_their_keep(recording: Recording) -> None:
    def mean(sampler: str, seeded: bool) -> float:
        return statistics.mean(
            simulate(recording, task, sampler, 60, seed=seed, seeded=seeded).regret
            for task in large_tasks(recording, 5)
            for seed in range(2)
        )

    blind = mean("random", False)
    assert mean("random", True) < blind
    assert mean("tpe", True) < blind / 2


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
    assert simulate(recording, task_of(1), "random", 1, seeded=False).regret in (0.0, 0.25)
    assert simulate(recording, task_of(1), "random", 3, seeded=False).regret == 0.0


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
    assert all(gate.passed for gate in gates)
    assert not any(
        name.startswith("regret of tpe")
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
