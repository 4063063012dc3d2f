"""The GPU worker survives everything that an evaluator can do, in real processes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from search_fakes import BASE, DEVICE, FAST, PROBLEM, SMALL, families, true_us

from db.records import Protocol
from ptxgen.arch import arch_named
from ptxgen.config import KernelConfig
from ptxgen.errors import DriverError
from ptxgen.outcome import Resources, Status
from search.child import Child, ChildDiedError, ChildTimeoutError
from search.evaluator import Candidate, EvaluateRequest, FinalsRequest
from search.messages import request_from_dict, request_to_dict
from search.worker import FinalsError, GpuWorker

CONFIGS = list(families(SMALL)["mma"].candidates(PROBLEM, arch_named("sm_90a"), 8))
OTHER = next(config for config in CONFIGS if config != BASE)


def candidate(config: KernelConfig) -> Candidate:
    source = families()["mma"].emit(PROBLEM, config, arch_named("sm_90a"))
    return Candidate(
        config, source.plan, source.entry, "/k.cubin", Resources(64, 0, 1024), source.digest()
    )


def request(config: KernelConfig | None) -> EvaluateRequest:
    made = candidate(config) if config else None
    return EvaluateRequest(PROBLEM, 8, Protocol.PLAIN, made)


@pytest.fixture
def worker_of() -> Iterator[Callable[..., GpuWorker]]:
    made: list[GpuWorker] = []

    def make(factory: str = "search_fakes:create", **options: Any) -> GpuWorker:
        made.append(GpuWorker(factory, options, FAST))
        return made[-1]

    yield make
    for worker in made:
        worker.close()


def test_a_good_candidate_and_cublas_are_timed(worker_of: Callable[..., GpuWorker]) -> None:
    worker = worker_of(cublas_us=17.0)
    assert worker.device() == DEVICE
    assert worker.driver_version() == "580.1"
    assert worker.evaluate(request(BASE)).time_us == pytest.approx(true_us(BASE))
    assert worker.evaluate(request(None)).time_us == 17.0
    assert worker.restarts == 0


@pytest.mark.parametrize(
    ("behaviour", "status", "words"),
    [
        ("segv", Status.CRASH, "SIGSEGV"),
        ("exit", Status.CRASH, "exited with code 3; it printed: the driver said goodbye"),
        ("garbage", Status.CRASH, "not json"),
        ("sticky", Status.CRASH, "illegal memory access"),
    ],
)
def test_a_killer_is_a_crash_and_the_next_one_runs(
    worker_of: Callable[..., GpuWorker], behaviour: str, status: Status, words: str
) -> None:
    worker = worker_of(behaviour={OTHER.key(): behaviour})
    assert worker.evaluate(request(BASE)).status is Status.OK
    outcome = worker.evaluate(request(OTHER))
    assert outcome.status is status
    assert words in outcome.message
    assert worker.evaluate(request(BASE)).status is Status.OK
    assert worker.restarts == 1


@pytest.mark.parametrize("behaviour", ["hang", "half"])
def test_a_silent_worker_is_killed_at_the_shrunk_limit(
    worker_of: Callable[..., GpuWorker], behaviour: str
) -> None:
    worker = worker_of(behaviour={OTHER.key(): behaviour})
    assert worker.evaluate(request(BASE)).status is Status.OK
    outcome = worker.evaluate(request(OTHER))
    assert outcome.status is Status.HANG
    limit_s = re.search(r"no answer within (\S+) s", outcome.message)
    assert limit_s is not None
    assert FAST.shrunk_min_s <= float(limit_s[1]) < FAST.measure_s / 2
    assert worker.evaluate(request(BASE)).status is Status.OK


def test_a_new_worker_that_has_proved_itself_keeps_the_shrunk_limit(
    worker_of: Callable[..., GpuWorker],
) -> None:
    third = next(config for config in CONFIGS if config not in (BASE, OTHER))
    worker = worker_of(behaviour={OTHER.key(): "segv", third.key(): "hang"})
    assert worker.evaluate(request(BASE)).status is Status.OK
    assert worker.evaluate(request(OTHER)).status is Status.CRASH
    outcome = worker.evaluate(request(third))
    assert outcome.status is Status.HANG
    limit_s = re.search(r"no answer within (\S+) s", outcome.message)
    assert limit_s is not None
    assert FAST.shrunk_min_s <= float(limit_s[1]) < FAST.measure_s / 2
    assert worker.restarts == 1


@pytest.mark.parametrize(
    ("behaviour", "status"),
    [
        ("resources", Status.LAUNCH_ERROR),
        ("not-an-outcome", Status.LAUNCH_ERROR),
        ("nan", Status.NOISY),
        ("wrong", Status.WRONG),
    ],
)
def test_a_bad_candidate_leaves_the_worker_alive(
    worker_of: Callable[..., GpuWorker], behaviour: str, status: Status
) -> None:
    worker = worker_of(behaviour={OTHER.key(): behaviour})
    assert worker.evaluate(request(OTHER)).status is status
    assert worker.evaluate(request(BASE)).status is Status.OK
    assert worker.restarts == 0


def test_an_unknown_error_costs_the_worker(worker_of: Callable[..., GpuWorker]) -> None:
    """Nobody knows the context's state, so the next candidate gets a new process."""
    worker = worker_of(behaviour={OTHER.key(): "unknown"})
    outcome = worker.evaluate(request(OTHER))
    assert outcome.status is Status.LAUNCH_ERROR
    assert "nobody has classified" in outcome.message
    assert worker.evaluate(request(BASE)).status is Status.OK
    assert worker.restarts == 1


def test_finals_come_back_in_order(worker_of: Callable[..., GpuWorker]) -> None:
    contenders = (candidate(OTHER), None, candidate(BASE))
    outcomes = worker_of().finals(FinalsRequest(PROBLEM, 8, Protocol.PLAIN, contenders))
    assert [item.time_us for item in outcomes] == [true_us(OTHER), 20.0, true_us(BASE)]


@pytest.mark.parametrize("behaviour", ["segv", "garbage", "sticky", "wrong"])
def test_failed_finals_say_so_and_the_worker_goes_on(
    worker_of: Callable[..., GpuWorker], behaviour: str
) -> None:
    worker = worker_of(finals=behaviour)
    contenders = (candidate(BASE), None)
    with pytest.raises(FinalsError):  # "wrong": one outcome for two contenders
        worker.finals(FinalsRequest(PROBLEM, 8, Protocol.PLAIN, contenders))
    assert worker.evaluate(request(BASE)).status is Status.OK


def test_no_gpu_is_an_error(worker_of: Callable[..., GpuWorker]) -> None:
    with pytest.raises(DriverError, match="CUDA_ERROR_NO_DEVICE"):
        worker_of("search_fakes:no_gpu").device()


def test_a_gpu_that_died_is_an_error_and_not_a_row_of_bad_configs(
    worker_of: Callable[..., GpuWorker], tmp_path: Path
) -> None:
    worker = worker_of(
        "search_fakes:create_dying",
        behaviour={OTHER.key(): "segv"},
        starts=str(tmp_path / "starts"),
    )
    assert worker.evaluate(request(BASE)).status is Status.OK
    assert worker.evaluate(request(OTHER)).status is Status.CRASH
    with pytest.raises(DriverError, match="does not work any more"):
        worker.evaluate(request(BASE))


def test_requests_survive_the_pipe() -> None:
    original = EvaluateRequest(PROBLEM, 8, Protocol.CHAINED, candidate(OTHER), stop_above_us=12.5)
    assert request_from_dict(request_to_dict(original)) == original
    finals = FinalsRequest(PROBLEM, 8, Protocol.PLAIN, (candidate(BASE), None), rounds=3)
    assert request_from_dict(request_to_dict(finals)) == finals


def test_children_die_with_their_parent(tmp_path: Path) -> None:
    code = f"""
        import os, sys
        sys.path[:0] = {sys.path!r}
        from search.child import Child
        child = Child("search_fakes:make_compiler", {{"cache_root": "/"}})
        print(child.pid, flush=True)
        child.request({{"text": "never-ends"}}, 60)
    """
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    while _runs(pid):  # the test's timeout ends it
        time.sleep(0.05)


def test_a_killed_child_takes_its_group_along() -> None:
    child = Child("search_fakes:make_compiler", {"cache_root": "/"})
    with pytest.raises(ChildTimeoutError):
        child.request({"text": "never-ends"}, 1.0)
    assert os.getpgid(child.pid) == child.pid
    child.kill()
    assert not child.alive()
    with pytest.raises(ChildDiedError):
        child.request({"text": ""}, 1.0)


def _runs(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def test_the_start_of_the_process_is_no_part_of_a_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy machine imports for seconds; a limit of a request says nothing about that."""
    (tmp_path / "slow_to_import.py").write_text(
        "import time\ntime.sleep(1.5)\n\ndef make(options):\n    return lambda message: message\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    child = Child("slow_to_import:make", {})
    assert child.request({"n": 1}, 1.0) == {"n": 1}
    child.kill()


def test_signals_are_named() -> None:
    child = Child("search_fakes:make_compiler", {"cache_root": "/"})
    os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(ChildDiedError, match="SIGKILL"):
        child.request({"text": ""}, 250.0)
    child.kill()


def test_the_parent_works_while_the_worker_measures(
    worker_of: Callable[..., GpuWorker], tmp_path: Path
) -> None:
    log = tmp_path / "evaluated.log"
    worker = worker_of(log=str(log))
    seen: list[str] = []

    def other_work() -> None:
        while not log.exists():  # the test's timeout ends it
            time.sleep(0.01)
        seen.append(log.read_text())  # the worker began although the parent is busy here

    assert worker.evaluate(request(BASE), other_work).status is Status.OK
    assert seen == [f"evaluate screen {BASE.key()}\n"]
