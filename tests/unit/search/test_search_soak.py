"""A soak in miniature with real processes, kills and locks, and an audit that finds faults."""

from __future__ import annotations

import itertools
import sqlite3
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from db.session import open_database
from ptxgen.arch import arch_named
from ptxgen.config import KernelConfig
from ptxgen.outcome import Status
from ptxgen.problem import Problem
from search.fake_parts import DEVICE, FaultLog, SoakFamily, soak_time_us
from search.faults import KERNEL_FAULTS, PROCESS_FAULTS, TRANSIENT, Fault, FaultPlan
from search.gpu_faults import EDITS
from search.soak import SoakReport, soak
from search.soak_audit import Audit, audit
from search.soak_plan import (
    GOOD,
    Disturbances,
    Lane,
    SoakError,
    deal,
    disturbances_for,
    lanes_for,
    plan_soak,
    quotas,
)
from search.soak_run import SoakSpec, happened, offered

FAULTS = 60
DISTURBED = Disturbances(parent_kills=2, child_kills=2, locks=1, pause_s=1.5)


@pytest.fixture(scope="module")
def soaked(tmp_path_factory: pytest.TempPathFactory) -> tuple[SoakSpec, SoakReport]:
    (planned,) = plan_soak(tmp_path_factory.mktemp("soak"), FAULTS, seed=4)
    lane = Lane(replace(planned.spec, clock_jumps=0.05), DISTURBED)
    return lane.spec, soak([lane], FAULTS)


def test_nothing_is_lost_or_doubled_under_sixty_faults(
    soaked: tuple[SoakSpec, SoakReport],
) -> None:
    spec, report = soaked
    assert report.audit.problems == {what: [] for what in report.audit.problems}, report
    assert report.stray == ()
    assert report.passed
    assert report.total >= FAULTS
    for what in ("kill -9 of the tuner", "kill -9 of a child", "locked database", "clock jumps"):
        assert report.faults[what] >= 1
    assert report.runs >= 3 + DISTURBED.parent_kills
    assert report.workers >= report.runs - DISTURBED.parent_kills
    assert report.audit.trials[Status.OK] >= 20
    assert report.audit.trials[Status.CRASH] >= 1
    assert Status.STARTED not in report.audit.trials
    assert sum(report.audit.trials.values()) >= len(offered(spec, spec.problems()[0]))
    for fault in PROCESS_FAULTS:
        if not fault.deadly:
            assert set(report.audit.stored.get(fault.name, {})) <= {*fault.expected, Status.CRASH}


# ---- the audit finds what is bad ----------------------------------------------------------------


def tampered(spec: SoakSpec, folder: Path, statement: str) -> Audit:
    """The audit of a copy of the soak whose database was changed behind its back."""
    copy = replace(spec, folder=str(folder))
    for name in ("notes.log", "faults.log"):
        (folder / name).write_bytes((Path(spec.folder) / name).read_bytes())
    with sqlite3.connect(spec.database) as source, sqlite3.connect(copy.database) as target:
        source.backup(target)
        for name, text in NAMES.items():
            statement = statement.replace(name, text)
        target.execute(statement)
        target.commit()
        assert target.total_changes > 0
    with open_database(copy.database) as database:
        return audit(copy, database)


NAMES = {
    "OK_TRIAL": "(SELECT MIN(id) FROM trial WHERE status = 'ok')",
    "COLUMNS": "run_id, problem_id, config_id, m, protocol, protocol_version, layout_version, "
    "contender, source_digest, status, message, time_us, spread, samples_us, rel_err, pid, owner, "
    "started_at, ended_at",
}


@pytest.mark.parametrize(
    ("what", "statement"),
    [
        (
            "lost",
            "DELETE FROM trial WHERE status = 'ok' AND id NOT IN (SELECT trial_id FROM winner)",
        ),
        (
            "lost",
            "UPDATE trial SET status = 'noisy', time_us = NULL WHERE id = OK_TRIAL",
        ),
        (
            "duplicated",
            "INSERT INTO trial (id, COLUMNS) SELECT 99999, COLUMNS FROM trial WHERE id = OK_TRIAL",
        ),
        (
            "never finished",
            "UPDATE trial SET status = 'started', ended_at = NULL WHERE status = 'wrong'",
        ),
        ("forgotten", "DELETE FROM trial WHERE status = 'wrong'"),
        (
            "undetected",
            "UPDATE trial SET status = 'ok', time_us = 5 WHERE status = 'wrong'",
        ),
        (
            "slandered",
            "UPDATE trial SET status = 'wrong', time_us = NULL WHERE id = OK_TRIAL",
        ),
        ("wrong winner", "DELETE FROM winner"),
        ("wrong winner", "UPDATE trial SET time_us = time_us + 1 WHERE status = 'ok'"),
    ],
)
def test_the_audit_finds_it(
    soaked: tuple[SoakSpec, SoakReport], tmp_path: Path, what: str, statement: str
) -> None:
    found = tampered(soaked[0], tmp_path, statement)
    assert found.problems[what], found.problems
    assert not found.passed


# ---- the plan -----------------------------------------------------------------------------------


def configs(count: int = 360) -> list[KernelConfig]:
    family = SoakFamily(FaultPlan(PROCESS_FAULTS, 0.6, 0), count)
    return list(family.candidates(Problem(2048, 2048), arch_named("sm_90a"), 8))


def test_a_plan_depends_on_its_seed_alone_and_keeps_its_share() -> None:
    plan, same, other = (FaultPlan(PROCESS_FAULTS, 0.6, seed) for seed in (1, 1, 2))
    chosen = [plan.fault_of(config, "case") for config in configs()]
    assert chosen == [same.fault_of(config, "case") for config in configs()]
    assert chosen != [other.fault_of(config, "case") for config in configs()]
    assert chosen != [plan.fault_of(config, "another case") for config in configs()]
    assert 0.5 < sum(fault is not None for fault in chosen) / 360 < 0.7
    transient = sum(plan.is_transient(config, "case") for config in configs()) / 360
    assert abs(transient - TRANSIENT) < 0.1


@pytest.mark.parametrize("faults", [PROCESS_FAULTS, KERNEL_FAULTS])
def test_every_fault_comes_up(faults: tuple) -> None:
    plan = FaultPlan(faults, 1.0, 0)
    counts = Counter(
        fault.name
        for case in range(12)
        for config in configs()
        if (fault := plan.fault_of(config, str(case)))
    )
    assert counts.keys() == {fault.name for fault in faults}
    assert {fault.name for fault in KERNEL_FAULTS} == EDITS.keys()


def test_fake_times_have_one_optimum() -> None:
    times = [soak_time_us(config) for config in configs()]
    assert len(configs()) == len(set(configs())) == 360
    assert times.count(min(times)) == 1


@pytest.mark.parametrize("lanes", [1, 4, 16])
def test_a_thousand_faults_without_a_gpu_are_planned(tmp_path: Path, lanes: int) -> None:
    planned = plan_soak(tmp_path, 1000, lanes=lanes)
    assert len(planned) == lanes
    counts = [planned_faults(lane.spec).total() for lane in planned]
    assert 800 < sum(counts) < 1400
    assert len({lane.spec.seed for lane in planned}) == lanes
    assert SoakSpec.load(planned[-1].spec.save()) == planned[-1].spec


@pytest.mark.parametrize(("lanes", "seed"), [(1, 0), (3, 1), (12, 0), (16, 0), (16, 7)])
def test_a_thousand_faults_on_a_gpu_are_planned_evenly(
    tmp_path: Path, lanes: int, seed: int
) -> None:
    planned = plan_soak(tmp_path, 1000, lanes=lanes, device=DEVICE, seed=seed)
    counts = [planned_faults(lane.spec) for lane in planned]
    total = sum(counts, Counter())
    assert 1000 <= total.total() <= 1060
    assert total.keys() == {fault.name for fault in KERNEL_FAULTS}
    # Each deadly one happens twice before its quarantine.
    deadly = [sum(count[name] for name in DEADLY_FAULTS) for count in counts]
    assert sum(deadly) >= 50
    assert max(deadly) - min(deadly) <= 1
    assert max(map(Counter.total, counts)) - min(map(Counter.total, counts)) <= 1
    for lane, count in zip(planned, counts, strict=True):
        assert lane.spec.configs - count.total() >= 3
        assert SoakSpec.load(lane.spec.save()) == lane.spec
        assert lane.spec.device is not None
        assert lane.spec.device["read_gbps"] == DEVICE.read_gbps


DEADLY_FAULTS = [fault.name for fault in KERNEL_FAULTS if fault.deadly]


def planned_faults(spec: SoakSpec) -> Counter[str]:
    return Counter(
        fault.name
        for problem in spec.problems()
        for config in offered(spec, problem)
        if (fault := spec.plan.fault_of(config, problem.key()))
    )


def test_more_than_the_space_holds_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SoakError, match=r"missing .* fewer faults or give more --lanes"):
        plan_soak(tmp_path, 100_000, lanes=2, device=DEVICE)
    with pytest.raises(SoakError, match="3 lanes for 2 faults"):
        plan_soak(tmp_path, 2, lanes=3)


@pytest.mark.parametrize("lanes", range(1, 17))
def test_nothing_is_lost_where_it_is_dealt(lanes: int) -> None:
    for faults in (1, 99, 1000, 2000):
        for kernels in (False, True):
            outside = disturbances_for(faults, kernels=kernels)
            hands = [each.names() for each in deal(outside, lanes)]
            assert sorted(itertools.chain(*hands)) == sorted(outside.names())
            assert max(map(len, hands)) - min(map(len, hands)) <= 1
        dealt = quotas(faults, lanes)
        for fault in KERNEL_FAULTS:
            share = fault.weight / sum(item.weight for item in KERNEL_FAULTS)
            assert sum(each.get(fault.name, 0) for each in dealt) >= faults * share
        assert min(each[GOOD] for each in dealt) >= 3


def test_a_lane_has_a_core_and_enough_to_do() -> None:
    assert lanes_for(1) == lanes_for(49) == 1
    assert 1 <= lanes_for(100_000) <= 16


@pytest.mark.parametrize("fault", KERNEL_FAULTS)
def test_only_what_met_its_fault_counts_as_injected(fault: Fault) -> None:
    counted = {status for status in Status if happened(fault, status)}
    assert counted == fault.expected | {Status.OK}


# ---- lanes, and an end before the end -----------------------------------------------------------


def logged(folder: Path, lanes: int) -> Counter[str]:
    logs = (FaultLog(folder / f"lane-{number + 1}" / "faults.log") for number in range(lanes))
    return Counter(line for log in logs for line in log.lines())


@pytest.mark.deep
def test_lanes_at_once_are_one_report(tmp_path: Path) -> None:
    told: list[str] = []
    report = soak(plan_soak(tmp_path, 24, lanes=3, seed=2), 24, told.append)
    assert report.passed, report
    assert report.lanes == 3
    assert report.runs == 9
    assert report.workers >= 9
    assert report.faults == logged(tmp_path, 3)
    assert report.total >= 24
    assert all("of 24 faults" in line for line in told)


def test_at_its_limit_it_says_what_it_had_and_fails(tmp_path: Path) -> None:
    report = soak(plan_soak(tmp_path, 3000, lanes=2), 3000, seconds=6.0)
    assert report.seconds >= 6
    assert "limit of 6 s" in report.stopped
    assert report.clean, report  # what was done until then is in order
    assert not report.passed
    assert report.stray == ()
    assert "forgotten" not in report.audit.problems
    assert report.faults == logged(tmp_path, 2)


@pytest.mark.deep
def test_a_tuner_that_fails_undisturbed_ends_its_lane_in_words(tmp_path: Path) -> None:
    (lane,) = plan_soak(tmp_path, 5)
    broken = replace(lane, spec=replace(lane.spec, kind="kernel", chosen=({"family": "none"},)))
    told: list[str] = []
    report = soak([broken], 5, told.append)
    assert not report.passed
    assert "although nothing disturbed it" in report.errors[0]
    assert "none" in report.errors[0]
