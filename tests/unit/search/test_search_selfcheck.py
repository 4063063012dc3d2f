"""The self-check passes a good tuner, fails a bad one, and leaves the user's database alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import search_fakes

from db.store import Store
from ptxgen.arch import arch_named
from ptxgen.families import FAMILIES
from ptxgen.families.base import Family
from ptxgen.outcome import Status
from ptxgen.problem import Problem
from search.budget import Budget
from search.gates import Gate
from search.job import TuneJob
from search.replay import recording_of
from search.selfcheck import SelfCheck, record, selfcheck, small_families

ARCH = arch_named("sm_90a")


def gate(found: SelfCheck, name: str) -> Gate:
    return next(item for item in found.gates if item.name == name)


def legal(m: int = 8) -> set[str]:
    family = search_fakes.families()["mma"]
    return {item.key() for item in family.candidates(search_fakes.PROBLEM, ARCH, m)}


def test_a_good_tuner_passes(tmp_path: Path, make_job: Callable[..., TuneJob]) -> None:
    found = selfcheck(
        make_job(buckets=(8, 16)), tmp_path, repeats=2, note="a note", budget=Budget(trials=120)
    )
    assert found.passed, found.gates
    # The valley is the same for all M, so the neighbour's winner costs nothing.
    assert gate(found, "regret of the nearest bucket's winner, worst").value == 0
    assert gate(found, "regret against exhaustive, worst").value == 0
    recording = recording_of(found.recorded, "recorded")
    assert [set(trials) for trials in recording.tasks.values()] == [legal(), legal()]
    assert found.recorded.note == "a note"
    assert all(len(winners.repeats) == 2 for winners in found.winners.values())
    assert sorted(path.name for path in tmp_path.glob("*.db")) == [
        "exhaustive.db",
        "repeat-0.db",
        "repeat-1.db",
        "windows.db",
    ]


def test_a_bad_tuner_fails(tmp_path: Path, make_job: Callable[..., TuneJob]) -> None:
    job = make_job(
        {"starts": str(tmp_path / "starts")},
        evaluator="search_fakes:create_moody",
        families=search_fakes.families(search_fakes.LARGE),
    )
    limited = small_families(job, ARCH, 60)
    found = selfcheck(
        replace(job, families=limited), tmp_path, repeats=2, budget=Budget(trials=120)
    )
    assert not found.passed
    assert gate(found, "regret against exhaustive, worst").value > 0.03


def test_record_measures_every_config_once(store: Store, make_job: Callable[..., TuneJob]) -> None:
    content = record(make_job(), store, "here")
    assert {trial.config.key() for trial in content.trials} == legal()
    assert {trial.status for trial in content.trials} == {Status.OK}
    for trial in content.trials:
        assert trial.time_us == pytest.approx(search_fakes.true_us(trial.config))
    assert sum(trial.won for trial in content.trials) == 1


@pytest.mark.sampled
@pytest.mark.parametrize("count", [0, 50])
def test_a_small_space_is_a_fixed_choice_with_the_default(
    make_job: Callable[..., TuneJob], count: int
) -> None:
    problem = Problem(4096, 4096)
    job = make_job(problems=(problem,), buckets=(16, 64), families=FAMILIES)
    first, second = (small_families(job, ARCH, count) for _ in range(2))
    for m in (16, 64):
        offered = keys(first, problem, m)
        assert offered == keys(second, problem, m)
        everything = set(keys(FAMILIES, problem, m))  # launches of the job are plain
        defaults = {f.default_config(problem, ARCH, m, 132) for f in FAMILIES.values()}
        assert {f.default_config(problem, ARCH, m, 132) for f in first.values()} == defaults
        everything |= {default.key() for default in defaults}
        assert set(offered) <= everything
        assert len(offered) == len(set(offered))
        if count:
            assert min(count, len(everything)) <= len(offered) <= count + len(FAMILIES)
        else:
            assert set(offered) == everything


def keys(families: Mapping[str, Family], problem: Problem, m: int) -> list[str]:
    return [
        config.key()
        for family in families.values()
        for config in family.candidates(problem, ARCH, m)
        if config == config.plain()
    ]
