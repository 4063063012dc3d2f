"""A soak in miniature with real processes, kills and locks, and an audit that finds faults."""

from __future__ import annotations

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
from search.fake_parts import SoakFamily, soak_time_us
from search.faults import KERNEL_FAULTS, PROCESS_FAULTS, TRANSIENT, FaultPlan
from search.gpu_faults import EDITS
from search.soak import Disturbances, SoakReport, soak, spec_for
from search.soak_audit import Audit, audit
from search.soak_run import SoakSpec, offered

FAULTS = 60
DISTURBED = Disturbances(parent_kills=2, child_kills=2, locks=1, pause_s=1.5)


@pytest.fixture(scope="module")
def soaked(tmp_path_factory: pytest.TempPathFactory) -> tuple[SoakSpec, SoakReport]:
    spec = replace(spec_for(tmp_path_factory.mktemp("soak"), FAULTS, seed=4), clock_jumps=0.05)
    return spec, soak(spec, DISTURBED)


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
    assert report.audit.trials[Status.OK] >= 20
    assert report.audit.trials[Status.CRASH] >= 1
    assert Status.STARTED not in report.audit.trials
    assert sum(report.audit.trials.values()) >= len(offered(spec, spec.problems()[0]))


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
            "INSERT INTO trial (id, COLUMNS) SELECT -1, COLUMNS FROM trial WHERE id = OK_TRIAL",
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


def test_a_thousand_faults_are_planned(tmp_path: Path) -> None:
    spec = spec_for(tmp_path, 1000)
    planned = sum(
        spec.plan.fault_of(config, problem.key()) is not None
        for problem in spec.problems()
        for config in offered(spec, problem)
    )
    assert 900 < planned < 1300
    kernels = spec_for(tmp_path, 1000, kernels=True)
    chosen = [
        kernels.plan.fault_of(config, problem.key())
        for problem in kernels.problems()
        for config in offered(kernels, problem)
    ]
    found = [fault for fault in chosen if fault is not None]
    assert len(found) >= 1000
    # A sticky error costs a worker on the GPU, some seconds each: few enough for two minutes.
    assert 5 <= sum(fault.deadly for fault in found) <= 16
    assert SoakSpec.load(spec.save()) == spec
