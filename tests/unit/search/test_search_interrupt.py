"""Ctrl-C and kill -9 in the middle of a run lose nothing that was measured."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import search_fakes

from db import query
from db.session import open_database
from db.store import Store
from ptxgen.arch import arch_named
from ptxgen.outcome import Status
from search.job import TuneJob
from search.tune import STOPPING, tune

SCRIPT = Path(__file__).with_name("interrupted_run.py")
FAMILY = search_fakes.families()["mma"]
LEGAL = list(FAMILY.candidates(search_fakes.PROBLEM, arch_named("sm_90a"), 8))
OPTIMUM = min(LEGAL, key=search_fakes.true_us)

Run = subprocess.Popen[str]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[int], Run]]:
    """Starts the run in a process group of its own, as a shell does."""
    made: list[Run] = []

    def begin(free: int) -> Run:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, str(SCRIPT), str(tmp_path), str(free)]
        made.append(
            subprocess.Popen(
                command, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True
            )
        )
        return made[-1]

    yield begin
    for run in made:
        run.kill()
        run.wait()


def wait_for(run: Run, line: str) -> None:
    assert run.stdout is not None
    for found in run.stdout:
        if found.strip() == line:
            return
    raise AssertionError(f"the run ended without {line!r}")


def rest_of(run: Run) -> str:
    assert run.stdout is not None
    return run.stdout.read()


def evaluated(folder: Path) -> list[str]:
    lines = (folder / "evaluated.log").read_text().splitlines()
    return [line.split(" ", 2)[2] for line in lines if line.startswith("evaluate screen")]


def wait_until_running(folder: Path, count: int) -> None:
    """Until the evaluator has begun with so many candidates, of which the last one waits."""
    log = folder / "evaluated.log"
    while not log.exists() or len(evaluated(folder)) < count:  # the test's timeout ends it
        time.sleep(0.01)


def test_one_ctrl_c_ends_after_the_running_trial(
    start: Callable[[int], Run], tmp_path: Path, make_job: Callable[..., TuneJob]
) -> None:
    run = start(3)
    wait_for(run, "trial 3")
    wait_until_running(tmp_path, 4)
    os.killpg(run.pid, signal.SIGINT)  # as a terminal does: to the whole group
    wait_for(run, f"note {STOPPING}")
    (tmp_path / "release").touch()
    text = rest_of(run)
    assert run.wait() == 0
    assert "interrupted True tasks 1" in text
    with open_database(tmp_path / "tune.db") as database:
        trials = query.trials(database, problem=search_fakes.PROBLEM)
        assert Counter(trial.outcome.status for trial in trials) == {Status.OK: len(trials)}
        assert len(trials) == 4
        assert query.winners(database)[0].time_us == min(
            trial.outcome.time_us or 0 for trial in trials
        )
        (task,) = tune(make_job(), Store(database)).tasks
    assert task.config == OPTIMUM
    assert set(Counter(evaluated(tmp_path)).values()) == {1}
    assert len(evaluated(tmp_path)) == len(LEGAL)


def test_two_ctrl_c_end_at_once(start: Callable[[int], Run], tmp_path: Path) -> None:
    run = start(1)
    wait_for(run, "trial 1")
    wait_until_running(tmp_path, 2)
    os.killpg(run.pid, signal.SIGINT)
    wait_for(run, f"note {STOPPING}")
    os.killpg(run.pid, signal.SIGINT)
    text = rest_of(run)
    assert run.wait() == 0
    assert "interrupted True" in text
    with open_database(tmp_path / "tune.db") as database:
        done, cut_off = query.trials(database)
        assert cut_off.outcome.status is Status.NOISY  # nothing is held against it
        assert done.outcome.time_us == search_fakes.true_us(search_fakes.BASE)


def test_kill_9_loses_at_most_the_running_trial(
    start: Callable[[int], Run], tmp_path: Path, make_job: Callable[..., TuneJob]
) -> None:
    run = start(3)
    wait_for(run, "trial 3")
    wait_until_running(tmp_path, 4)
    run.kill()
    run.wait()
    with open_database(tmp_path / "tune.db") as database:
        assert len(query.trials(database, statuses=[Status.OK])) == 3
        (task,) = tune(make_job(), Store(database)).tasks
        assert query.trials(database, statuses=[Status.STARTED]) == []
        assert len(query.trials(database, statuses=[Status.CRASH])) <= 1
    assert task.config == OPTIMUM
    counts = Counter(evaluated(tmp_path))
    assert len(counts) == len(LEGAL)
    assert sum(count > 1 for count in counts.values()) <= 1  # the one that was running
