"""The bench runner with processes for real and a CPU for the GPU: nobody's fault is anyone's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from bench_fakes import KIT, SilentWatch, contender, lock_folder

from db.records import Protocol
from ptxgen.problem import Problem
from search.bench.case import Case, Entry, Result, Verdict
from search.bench.process import BenchLimits
from search.bench.registry import CONTENDERS, Contender
from search.bench.runner import MAX_CRASHES, BenchRunner
from search.bench.turns import RemoteTimed, Turns
from search.gpu_lock import GpuLock

PROBLEM = Problem(64, 128, dtype="bf16", zero="int")


@pytest.fixture(scope="module")
def watch() -> SilentWatch:
    return SilentWatch()


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory, watch: SilentWatch) -> Iterator[BenchRunner]:
    """One for all tests: its processes take seconds to start."""
    lock = GpuLock("fake", lock_folder(tmp_path_factory.mktemp("bench")))
    limits = BenchLimits(start_s=60, prepare_s=60, sample_s=60)
    with BenchRunner(watch, lock, {"kit": KIT}, limits=limits) as runner:
        yield runner


def entries(*contenders: Contender, die: bool = False) -> list[Entry]:
    return [
        Entry(item, Protocol.PLAIN, {"die": die and item.name.startswith("dies")})
        for item in contenders
    ]


def verdicts(results: Sequence[Result]) -> dict[str, Verdict]:
    return {item.entry.contender.name: item.verdict for item in results}


def test_real_packing_is_right_on_a_cpu(runner: BenchRunner, watch: SilentWatch) -> None:
    """cuBLAS' and tinygemm's adapters, through a process and the whole protocol."""
    case = Case(PROBLEM, 3, floor_us=1.0)
    results = runner.run(case, entries(CONTENDERS["cublas"], CONTENDERS["tinygemm"]), rounds=4)
    for result in results:
        assert (result.verdict, result.reason) == (Verdict.OK, "")
        assert result.outcome is not None
        assert result.outcome.time_us == 10.0
        assert len(result.outcome.samples_us) == 4
        assert result.outcome.rel_err is not None
        assert 0 < result.outcome.rel_err < 1e-2
    assert len(watch.pids) == 1  # both share torch's process


def test_faults_are_rows_and_cost_nobody_else(runner: BenchRunner) -> None:
    """Wrong values, a NaN, wrong or idle timed launches, a death, a lost context, a bad import."""
    cast = entries(
        contender("right"),
        contender("slightly_off"),
        contender("one_nan"),
        contender("wrong_when_timed"),
        contender("writes_once"),
        contender("dies_when_timed"),
        contender("loses_the_context", "second"),
        contender("cannot_be_imported", "second"),
        contender("absent", "third", module="no_such_module"),
        die=True,
    )
    results = runner.run(Case(PROBLEM, 2, floor_us=1.0), cast, rounds=2)
    assert [item.entry for item in results] == cast
    assert verdicts(results) == {
        "right": Verdict.OK,
        "slightly_off": Verdict.WRONG,
        "one_nan": Verdict.WRONG,
        "wrong_when_timed": Verdict.WRONG,
        "writes_once": Verdict.WRONG,
        "dies_when_timed": Verdict.CRASHED,
        "loses_the_context": Verdict.CRASHED,
        "cannot_be_imported": Verdict.FAILED,
        "absent": Verdict.NOT_INSTALLED,
    }
    reasons = {item.entry.contender.name: item.reason for item in results}
    assert "0.011 against FP32 is above 0.01" in reasons["slightly_off"]
    assert "NaN" in reasons["one_nan"]
    assert "NaN" in reasons["writes_once"]
    assert "SIGKILL" in reasons["dies_when_timed"]
    assert "illegal memory access" in reasons["loses_the_context"]
    assert "undefined symbol" in reasons["cannot_be_imported"]
    assert reasons["absent"] == "torch is not installed"
    assert results[0].outcome is not None
    assert results[0].outcome.time_us == 10.0


def test_a_hang_is_killed_and_given_up_in_the_end(tmp_path: Path) -> None:
    limits = BenchLimits(start_s=60, prepare_s=0.2, sample_s=60)
    lock = GpuLock("fake", lock_folder(tmp_path))
    cast = entries(contender("hangs"))
    with BenchRunner(SilentWatch(), lock, {"kit": KIT}, limits=limits) as runner:
        found = [runner.run(Case(PROBLEM, 2, 1.0), cast, rounds=1)[0] for _ in range(4)]
    assert [item.verdict for item in found[:MAX_CRASHES]] == [Verdict.HUNG] * MAX_CRASHES
    assert "no answer within 0.2 s" in found[0].reason
    assert found[-1].verdict is Verdict.CRASHED
    assert "not tried again" in found[-1].reason


def test_what_a_contender_does_not_serve_says_so(runner: BenchRunner) -> None:
    """The same process goes on with what it does serve; another dtype is tinygemm's own reason."""
    cast = entries(contender("right"))
    fp16 = Problem(64, 128)
    odd = runner.run(Case(PROBLEM, 3, 1.0), cast, rounds=1)[0]
    even = runner.run(Case(PROBLEM, 4, 1.0), cast, rounds=1)[0]
    tiny = runner.run(Case(fp16, 4, 1.0), entries(CONTENDERS["tinygemm"]), rounds=1)[0]
    assert (odd.verdict, odd.reason) == (Verdict.UNSUPPORTED, "odd batches are not for it")
    assert even.verdict is Verdict.OK
    assert tiny.verdict is Verdict.UNSUPPORTED
    assert "bf16" in tiny.reason


def test_a_time_below_the_least_one_is_noise(runner: BenchRunner) -> None:
    result = runner.run(Case(PROBLEM, 2, 1.0, 13.0), entries(contender("right")), rounds=1)[0]
    assert result.verdict is Verdict.NOISY
    assert "faster than" in result.reason


def test_a_time_below_the_floor_is_a_time(runner: BenchRunner) -> None:
    result = runner.run(Case(PROBLEM, 2, 13.0), entries(contender("right")), rounds=1)[0]
    assert result.verdict is Verdict.OK


class RecordingProcess:
    """Answers everything with an empty list and remembers what it was asked."""

    def __init__(self, name: str, asked: list[tuple[str, str]]) -> None:
        self._name, self._asked = name, asked

    def ask(self, key: str, message: dict[str, object], limit_s: float) -> list[float]:
        self._asked.append((self._name, str(message["kind"])))
        return []


def test_nobody_is_timed_beside_work_that_another_queued() -> None:
    asked: list[tuple[str, str]] = []
    turns = Turns()
    first, second = (
        RemoteTimed(turns, RecordingProcess(name, asked), name, 1.0)  # type: ignore[arg-type]
        for name in ("first", "second")
    )
    first.samples_us(3)
    first.keep_busy()
    second.samples_us(3)
    second.keep_busy()
    turns.settle()
    turns.settle()
    assert asked == [
        ("first", "samples"),
        ("first", "keep_busy"),
        ("first", "finish"),
        ("second", "samples"),
        ("second", "keep_busy"),
        ("second", "finish"),
    ]
