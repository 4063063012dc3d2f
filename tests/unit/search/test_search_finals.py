"""Finals, budget, ledger, lock and progress: the small parts by themselves."""

from __future__ import annotations

import io
import json
import multiprocessing
import shlex
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from rich.console import Console
from search_fakes import BASE, DEVICE, PROBLEM, SMALL, families

from db.records import Protocol
from ptxgen.arch import arch_named
from ptxgen.config import KernelConfig
from ptxgen.errors import ConfigError, ProblemError
from ptxgen.families import config_from_dict
from ptxgen.outcome import Outcome, Resources, Status
from ptxgen.problem import Problem
from search.budget import PRESETS, Budget, Meter, budget_named
from search.evaluator import Candidate
from search.events import (
    FinalsStarted,
    Note,
    RunStarted,
    Task,
    TaskEnded,
    TaskStarted,
    TrialEnded,
)
from search.finals import MAX_TIE, Decision, Final, decide
from search.gpu_lock import GpuLock
from search.job import TuneJob
from search.ledger import Ledger, reproducer
from search.progress import ProgressView

FAMILY = families()["mma"]
ARCH = arch_named("sm_90a")
CONFIGS = sorted(
    FAMILY.candidates(PROBLEM, ARCH, 8),
    key=lambda config: FAMILY.plan(PROBLEM, config, ARCH).smem_bytes,
)
TASK = Task(PROBLEM, 8, Protocol.PLAIN)


def final(
    config: KernelConfig, time_us: float | None, spread: float = 0.01, status: Status = Status.OK
) -> Final:
    source = FAMILY.emit(PROBLEM, config, ARCH)
    candidate = Candidate(config, source.plan, "e", "/c", Resources(64, 0, 0), source.digest())
    return Final(candidate, Outcome(status, time_us=time_us, spread=spread))


def decided(
    finals: list[Final], default: KernelConfig = BASE, neighbours: tuple[KernelConfig, ...] = ()
) -> Decision:
    keys = frozenset(config.key() for config in neighbours)
    decision = decide(finals, default.key(), keys)
    assert decision is not None
    return decision


SMALLEST, MIDDLE, LARGEST = CONFIGS[0], CONFIGS[len(CONFIGS) // 2], CONFIGS[-1]


def test_a_clear_difference_decides() -> None:
    decision = decided([final(SMALLEST, 11.0), final(LARGEST, 10.0), final(BASE, 12.0)])
    assert decision.winner.candidate.config == LARGEST
    assert [item.candidate.config for item in decision.ties] == [LARGEST]


def test_within_the_spread_the_neighbours_config_wins_then_less_shared_memory() -> None:
    finals = [final(LARGEST, 10.0), final(MIDDLE, 10.05), final(SMALLEST, 10.08), final(BASE, 12.0)]
    assert decided(finals).winner.candidate.config == SMALLEST
    assert decided(finals, neighbours=(MIDDLE,)).winner.candidate.config == MIDDLE
    assert len(decided(finals).ties) == 3


def test_the_default_wins_a_tie_and_never_loses_to_a_slower_one() -> None:
    tied = [final(LARGEST, 10.0), final(BASE, 10.09)]
    assert decided(tied).winner.candidate.config == BASE
    # BASE is the fastest but the spread makes a smaller one a tie: BASE is the default, so it wins.
    assert decided([final(BASE, 10.0), final(SMALLEST, 10.05)]).winner.candidate.config == BASE


@pytest.mark.parametrize("default_us", [9.9, 10.0, 10.01, 10.1, 10.3, 11.0])
@pytest.mark.parametrize("spread", [0.0, 0.01, 0.5])
def test_the_winner_is_never_slower_than_the_default(default_us: float, spread: float) -> None:
    finals = [
        final(SMALLEST, 10.15, spread),
        final(MIDDLE, 10.05, spread),
        final(LARGEST, 10.0, spread),
        final(BASE, default_us, spread),
    ]
    assert decided(finals).winner.time_us <= default_us


def test_noise_does_not_make_everything_a_tie() -> None:
    decision = decided([final(LARGEST, 10.0, spread=0.5), final(SMALLEST, 10.0 * (1.01 + MAX_TIE))])
    assert decision.winner.candidate.config == LARGEST


def test_failures_cannot_win() -> None:
    finals = [final(SMALLEST, 1.0, status=Status.WRONG), final(LARGEST, 10.0)]
    assert decided(finals).winner.candidate.config == LARGEST
    assert decide([final(SMALLEST, None, status=Status.NOISY)], BASE.key(), frozenset()) is None
    assert decide([], BASE.key(), frozenset()) is None


def test_the_order_of_the_finals_does_not_matter() -> None:
    finals = [final(LARGEST, 10.0), final(MIDDLE, 10.0), final(SMALLEST, 10.0)]
    winners = {decided(order).winner.key for order in (finals, finals[::-1])}
    assert winners == {SMALLEST.key()}


# ---- budget -------------------------------------------------------------------------------------


def test_budgets_by_name_and_by_number() -> None:
    assert budget_named("full") == PRESETS["full"]
    assert budget_named() == PRESETS["quick"]
    quick = budget_named("quick", predicted=True)  # nothing measures: more time to compile
    assert (quick.seconds or 0) > (PRESETS["quick"].seconds or 0)
    assert budget_named("quick", trials=7) == Budget(7, None)
    assert budget_named("quick", seconds=2.5) == Budget(None, 2.5)
    with pytest.raises(ConfigError, match="'huge' is not known; choose one of quick, full"):
        budget_named("huge")


@pytest.mark.parametrize(
    "limits", [{"trials": 0}, {"seconds": 0.0}, {"seconds": -1.0}, {"seconds": float("nan")}]
)
def test_a_budget_of_nothing_is_refused(limits: dict) -> None:  # type: ignore[type-arg]
    with pytest.raises(ConfigError, match="budget of"):
        Budget(**limits)


def test_no_patience_is_refused() -> None:
    with pytest.raises(ConfigError, match="patience of 0 trials"):
        Budget(patience=0)


def test_patience_ends_with_so_many_trials_in_a_row_without_gain() -> None:
    meter = Meter(Budget(patience=3))
    ended = []
    # None: not one worked yet; 9.97 is within the noise of 10.0, and 9.94 is not.
    for time_us in (None, 10.0, 10.0, 9.97, 9.94, 9.94, 9.94, 9.94):
        meter.trials += 1
        if time_us is not None:
            meter.note_time(time_us)
        ended.append(meter.exhausted())
    assert ended == [False] * 7 + [True]


def test_the_meter_counts_pending_ones_and_seconds() -> None:
    meter = Meter(Budget(trials=3))
    meter.trials = 1
    assert not meter.exhausted(pending=1)
    assert meter.exhausted(pending=2)
    now = [100.0]
    brief = Meter(Budget(seconds=5.0), clock=lambda: now[0])
    now[0] = 104.9
    assert not brief.exhausted()
    now[0] = 105.0
    assert brief.exhausted()
    assert brief.seconds == 5.0
    assert not Meter(Budget()).exhausted(pending=10**6)


# ---- ledger -------------------------------------------------------------------------------------


def test_the_ledger_names_the_worst_of_each_class() -> None:
    ledger = Ledger()
    for config, error in ((SMALLEST, 0.1), (LARGEST, 0.9), (MIDDLE, 0.5)):
        ledger.add(TASK, config, Outcome(Status.WRONG, f"error {error}", rel_err=error))
    for spilled in (8, 64, 16):
        outcome = Outcome(Status.SPILLED, f"{spilled}", resources=Resources(255, spilled, 0))
        ledger.add(TASK, BASE, outcome)
    ledger.add(TASK, BASE, Outcome(Status.OK, time_us=1.0))
    ledger.add(TASK, BASE, Outcome(Status.PREDICTED, time_us=1.0))
    entries = ledger.entries()
    assert [(e.status, e.count, e.message) for e in entries] == [
        (Status.SPILLED, 3, "64"),
        (Status.WRONG, 3, "error 0.9"),
    ]
    assert entries[1].config == LARGEST


def test_a_wrong_nan_is_the_worst() -> None:
    ledger = Ledger()
    ledger.add(TASK, SMALLEST, Outcome(Status.WRONG, "large", rel_err=1e9))
    ledger.add(TASK, LARGEST, Outcome(Status.WRONG, "nan", rel_err=float("nan")))
    assert ledger.entries()[0].config == LARGEST


@pytest.mark.parametrize(
    "problem", [PROBLEM, Problem(1024, 4096, 4096, "bf16", "int", True), Problem(64, 32, 32)]
)
def test_a_reproducer_is_a_shell_command_that_holds_everything(problem: Problem) -> None:
    words = shlex.split(reproducer(Task(problem, 3, Protocol.CHAINED), LARGEST))
    options = dict(zip(words[2::2], words[3::2], strict=False))
    assert words[:2] == ["ptxtune", "one"]
    assert ("--bias" in words) == problem.bias
    words = [word for word in words if word != "--bias"]
    options = dict(zip(words[2::2], words[3::2], strict=True))
    assert config_from_dict(json.loads(options["--config"])) == LARGEST
    assert options["--n"] == str(problem.n)
    assert options["--k"] == str(problem.k)
    assert options["--group"] == ("-1" if problem.whole_k else str(problem.group_size))
    assert options["--dtype"] == problem.dtype
    assert options["--zero"] == problem.zero
    assert options["--m"] == "3"
    assert options["--protocol"] == "chained"


# ---- lock ---------------------------------------------------------------------------------------


def test_the_lock_keeps_another_process_waiting(tmp_path: Path) -> None:
    code = f"""
        import sys, time
        sys.path[:0] = {sys.path!r}
        from pathlib import Path
        from search.gpu_lock import GpuLock
        with GpuLock("GPU-1", Path({str(tmp_path)!r})).held():
            print("held", flush=True)
            sys.stdin.readline()
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == "held\n"
        waits: list[int] = []

        def waiting() -> None:
            waits.append(1)
            other.stdin.write("go\n")  # type: ignore[union-attr]
            other.stdin.flush()  # type: ignore[union-attr]

        with GpuLock("GPU-2", tmp_path).held(waiting):
            assert waits == []  # another GPU
        with GpuLock("GPU-1", tmp_path).held(waiting):
            assert waits == [1]
    assert multiprocessing.active_children() == []


def test_waiting_for_the_lock_can_be_given_up(tmp_path: Path) -> None:
    def give_up() -> None:
        raise InterruptedError

    with (
        GpuLock("GPU-1", tmp_path).held(),
        pytest.raises(InterruptedError),
        GpuLock("GPU-1", tmp_path).held(give_up),
    ):
        pass
    with GpuLock("GPU-1", tmp_path).held(give_up):
        pass


# ---- job ----------------------------------------------------------------------------------------


def test_a_job_has_each_task_once(make_job) -> None:  # type: ignore[no-untyped-def]
    job: TuneJob = make_job(problems=(PROBLEM, PROBLEM), buckets=(8, 1, 8))
    assert [task.m for task in job.tasks()] == [1, 8]
    assert json.loads(json.dumps(job.settings()))["buckets"] == [8, 1, 8]


@pytest.mark.parametrize("fields", [{"problems": ()}, {"buckets": ()}, {"protocols": ()}])
def test_a_job_of_nothing_is_refused(make_job, fields) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ProblemError, match="nothing to tune"):
        make_job(**fields)


@pytest.mark.parametrize("m", [0, -1, 1 << 21])
def test_a_job_of_an_impossible_batch_is_refused(make_job, m: int) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ProblemError, match="M = "):
        make_job(buckets=(m,))


# ---- progress -----------------------------------------------------------------------------------


def shown(terminal: bool, drawn: str = "") -> str:
    """What a whole run looks like; before its finals it waits until a bar has drawn that."""
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=terminal, width=240)
    with ProgressView(console) as view:
        view.on_event(RunStarted(7, DEVICE, 2))
        view.on_event(TaskStarted(TASK, 0, len(SMALL), 3, 2.0, Budget(trials=20)))
        view.on_event(TrialEnded(TASK, BASE, Outcome(Status.WRONG, "no"), None, 1))
        view.on_event(TrialEnded(TASK, BASE, Outcome(Status.OK, time_us=8.0), 8.0, 2))
        while drawn not in stream.getvalue():  # the test's timeout ends it
            time.sleep(0.01)
        view.on_event(FinalsStarted(TASK, 10))
        view.on_event(TaskEnded(TASK, BASE, 8.0, 10.0, 16.0, 2.0))
        view.on_event(TaskStarted(TASK, 1, 3, 0, 2.0, Budget(seconds=1.0)))
        view.on_event(TaskEnded(TASK, None, None, None, None, 2.0, "nothing [red]ended[/red] well"))
        view.on_event(Note("the GPU worker was restarted"))
    return stream.getvalue()


@pytest.mark.parametrize("terminal", [False, True])
def test_progress_says_what_matters(terminal: bool) -> None:
    text = shown(terminal)
    assert "run 7: tuning on NVIDIA H200, 2 searches" in text
    assert "8.00 us, 25% of the floor, 1.25x the default, 2.00x cuBLAS; mma(block_m=8" in text
    assert "no winner: nothing [red]ended[/red] well" in text
    assert "the GPU worker was restarted" in text
    assert "[1/2] n4096-k4096-g128-fp16-sym M=8 plain" in text
    if not terminal:
        assert "3 legal configs, 3 known" in text
        assert "finals of 10" in text
        assert "\x1b" not in text


def test_a_terminal_shows_best_time_share_of_the_floor_and_failures() -> None:
    text = "2 measured, best 8.00 us, 25% of the floor, wrong 1"
    assert text in shown(terminal=True, drawn=text)
