"""tune end to end: real processes and a real database, an evaluator whose optimum is known."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from search_fakes import (
    BASE,
    DEVICE,
    LARGE,
    PROBLEM,
    SMALL,
    TOOLCHAIN,
    FakeFamily,
    families,
    true_us,
)

from db import query
from db.records import Protocol
from db.store import Store
from ptxgen.arch import ArchSpec, arch_named
from ptxgen.config import KernelConfig
from ptxgen.errors import DriverError
from ptxgen.outcome import Outcome, Status
from ptxgen.problem import Problem
from search.budget import Budget
from search.evaluator import Effort
from search.events import Event, FinalsStarted, Note, TaskEnded, TaskStarted, TrialEnded
from search.job import NothingMeasuredError, TuneJob
from search.stop import StopRequest
from search.tune import run_one, tune

ARCH = arch_named("sm_90a")
LEGAL = list(families(SMALL)["mma"].candidates(PROBLEM, ARCH, 8))
OPTIMUM = min(LEGAL, key=true_us)

MakeJob = Callable[..., TuneJob]


def screened(lines: list[str]) -> list[str]:
    """Keys of the configs that were screened, in order."""
    return [line.split(" ", 2)[2] for line in lines if line.startswith("evaluate screen")]


@pytest.mark.parametrize("sampler", [None, "tpe", "random", "exhaustive"])
def test_a_small_space_is_measured_whole_and_once(
    store: Store, make_job: MakeJob, evaluated: Callable[[], list[str]], sampler: str | None
) -> None:
    summary = tune(make_job(sampler=sampler), store)
    (task,) = summary.tasks
    assert task.config == OPTIMUM
    assert Counter(screened(evaluated())) == Counter(config.key() for config in LEGAL)
    (winner,) = query.winners(store.database, problem=PROBLEM)
    assert winner.config == OPTIMUM
    assert winner.time_us == pytest.approx(true_us(OPTIMUM))
    assert winner.default_us == pytest.approx(true_us(BASE))
    assert winner.cublas_us == pytest.approx(20.0)
    assert winner.ties == (OPTIMUM,)
    assert not winner.predicted
    assert winner.toolchain.driver == "580.1"


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_a_large_space_is_searched_within_the_trials(
    store: Store, make_job: MakeJob, evaluated: Callable[[], list[str]], sampler: str
) -> None:
    everything = list(families(LARGE)["mma"].candidates(PROBLEM, ARCH, 8))
    job = make_job(families=families(LARGE), sampler=sampler, budget=Budget(trials=60))
    (task,) = tune(job, store).tasks
    keys = screened(evaluated())
    assert len(keys) == 60 == len(set(keys))
    assert task.time_us is not None
    rank = sum(true_us(config) < task.time_us for config in everything)
    assert rank <= len(everything) * (0.02 if sampler == "tpe" else 0.1)


def test_the_default_and_the_models_best_come_first(
    store: Store, make_job: MakeJob, evaluated: Callable[[], list[str]]
) -> None:
    tune(make_job(families=families(LARGE), budget=Budget(trials=5)), store)
    assert screened(evaluated())[0] == BASE.key()


def test_a_second_run_measures_nothing_again(
    store: Store, make_job: MakeJob, evaluated: Callable[[], list[str]]
) -> None:
    first = tune(make_job(), store)
    lines = evaluated()
    events: list[Event] = []
    second = tune(make_job(), store, events.append)
    assert evaluated() == lines  # not even the finals
    assert second.tasks == first.tasks
    assert [e.known for e in events if isinstance(e, TaskStarted)] == [len(LEGAL)]


def test_a_resumed_run_counts_earlier_trials_and_completes_the_space(
    store: Store, make_job: MakeJob, evaluated: Callable[[], list[str]]
) -> None:
    tune(make_job(budget=Budget(trials=4)), store)
    assert len(screened(evaluated())) == 4
    tune(make_job(budget=Budget(trials=10)), store)
    assert len(set(screened(evaluated()))) == 10 == len(screened(evaluated()))
    (task,) = tune(make_job(), store).tasks
    assert Counter(screened(evaluated())) == Counter(config.key() for config in LEGAL)
    assert task.config == OPTIMUM


@pytest.mark.parametrize("what", ["source", "toolchain", "refresh"])
def test_what_is_out_of_date_is_measured_again(
    store: Store, make_job: MakeJob, evaluated: Callable[[], list[str]], what: str
) -> None:
    tune(make_job(), store)
    changed = {
        "source": {"families": families(SMALL, mark="v2")},
        "toolchain": {"toolchain": replace(TOOLCHAIN, nvrtc="14.0")},
        "refresh": {"refresh": True},
    }
    tune(make_job(**changed[what]), store)
    assert set(Counter(screened(evaluated())).values()) == {2}


def test_equal_sources_are_measured_once(
    store: Store, make_job: MakeJob, evaluated: Callable[[], list[str]]
) -> None:
    class Blind(type(families()["mma"])):  # type: ignore[misc]
        """Emits the same text and launch plan whatever num_stages is, but for comments."""

        def emit(self, problem, config, arch):  # type: ignore[no-untyped-def]
            source = super().emit(problem, config, arch)
            text = f"// {config.key()}\n{config.block_n} {config.split_k}"
            return replace(source, text=text, plan=replace(source.plan, smem_bytes=0))

    tune(make_job(families={"mma": Blind(SMALL)}), store)
    assert len(screened(evaluated())) == 9  # 3 block_n x 3 split_k


def test_killers_are_stored_and_the_rest_goes_on(
    store: Store, make_job: MakeJob, evaluated: Callable[[], list[str]]
) -> None:
    bad = [config for config in LEGAL if config not in (BASE, OPTIMUM)][:5]
    how = ["segv", "exit", "garbage", "sticky", "wrong"]
    behaviour = {config.key(): name for config, name in zip(bad, how, strict=True)}
    events: list[Event] = []
    summary = tune(make_job({"behaviour": behaviour}), store, events.append)
    (task,) = summary.tasks
    assert task.config == OPTIMUM
    assert summary.restarts >= 4
    counts = query.outcomes_by_status(store.database, summary.run_id)
    assert counts[Status.CRASH] == 4
    assert counts[Status.WRONG] == 1
    ledger = {entry.status: entry for entry in summary.ledger}
    assert {status: entry.count for status, entry in ledger.items()} == {
        Status.CRASH: 4,
        Status.WRONG: 1,
    }
    assert ledger[Status.WRONG].config == bad[4]
    assert ledger[Status.WRONG].reproduce.startswith(
        "ptxtune one --n 4096 --k 4096 --group 128 --dtype fp16 --zero sym --m 8 --protocol plain "
        "--config '{"
    )
    ended = [event for event in events if isinstance(event, TrialEnded)]
    assert len(ended) == len(LEGAL)


def test_a_killer_gets_a_second_chance_and_then_quarantine(
    store: Store, make_job: MakeJob, evaluated: Callable[[], list[str]]
) -> None:
    killer = next(config for config in LEGAL if config not in (BASE, OPTIMUM))
    job = make_job({"behaviour": {killer.key(): "segv"}})
    for runs, expected in ((1, 1), (2, 2), (3, 2)):
        events: list[Event] = []
        tune(job, store, events.append)
        assert screened(evaluated()).count(killer.key()) == expected, runs
        notes = [event.text for event in events if isinstance(event, Note)]
        assert any("quarantined" in note for note in notes) == (runs == 3)


def test_one_that_was_measured_is_not_screened_again_after_a_death_in_the_finals(
    store: Store, make_job: MakeJob, evaluated: Callable[[], list[str]]
) -> None:
    """A tuner that is killed in its finals leaves a crash behind the finalist that it timed."""
    summary = tune(make_job(), store)
    before = Counter(screened(evaluated()))
    (task,) = summary.tasks
    records = query.finished(store.database, PROBLEM, summary.device, 8, Protocol.PLAIN)
    known = next(item for item in records if item.config == task.config)
    trial = store.start_trial(
        summary.run_id,
        PROBLEM,
        8,
        Protocol.PLAIN,
        config=known.config,
        source_digest=known.source_digest,
    )
    store.end_trial(trial, Outcome(Status.CRASH, "the process died before the trial ended"))
    (task,) = tune(make_job(), store).tasks
    assert Counter(screened(evaluated())) == before
    assert task.config == OPTIMUM


def test_compile_failures_are_outcomes(
    store: Store, make_job: MakeJob, evaluated: Callable[[], list[str]]
) -> None:
    words = iter(["refused", "dies", "raises", "spills", "never-ends"])
    marks = {
        config.key(): word
        for config, word in zip([c for c in LEGAL if c not in (BASE, OPTIMUM)], words, strict=False)
    }

    class Marked(type(families()["mma"])):  # type: ignore[misc]
        """Some sources carry a word that the fake compiler obeys."""

        def emit(self, problem, config, arch):  # type: ignore[no-untyped-def]
            source = super().emit(problem, config, arch)
            return replace(source, text=f"{source.text} {marks.get(config.key(), '')}")

    summary = tune(
        make_job(families={"mma": Marked(SMALL)}, compile_workers=2, compile_timeout_s=5.0), store
    )
    counts = query.outcomes_by_status(store.database, summary.run_id)
    assert counts[Status.COMPILE_ERROR] == 3
    assert counts[Status.COMPILE_TIMEOUT] == 1
    assert counts[Status.SPILLED] == 1
    assert not marks.keys() & set(screened(evaluated()))
    assert summary.tasks[0].config == OPTIMUM


def test_an_emitter_that_fails_on_one_config_does_not_end_the_run(
    store: Store, make_job: MakeJob
) -> None:
    class Broken(type(families()["mma"])):  # type: ignore[misc]
        """Divides by zero for one split."""

        def emit(self, problem, config, arch):  # type: ignore[no-untyped-def]
            assert 1 // (config.split_k - 4) is not None
            return super().emit(problem, config, arch)

    summary = tune(make_job(families={"mma": Broken(SMALL)}), store)
    counts = query.outcomes_by_status(store.database, summary.run_id)
    assert counts[Status.INVALID] == sum(config.to_dict()["split_k"] == 4 for config in LEGAL)
    assert summary.ledger[0].message == (
        "the emitter failed: ZeroDivisionError: integer division or modulo by zero"
    )
    assert summary.tasks[0].config == OPTIMUM


@pytest.mark.parametrize("how", ["segv", "wrong"])
def test_failed_finals_fall_back_to_one_by_one(
    store: Store, make_job: MakeJob, evaluated: Callable[[], list[str]], how: str
) -> None:
    (task,) = tune(make_job({"finals": how}), store).tasks
    assert task.config == OPTIMUM
    assert task.cublas_us == 20.0
    assert task.default_us == pytest.approx(true_us(BASE))
    full = [line for line in evaluated() if line.startswith(f"evaluate {Effort.FULL.value}")]
    assert full[-1].endswith("cublas")


def test_nothing_measured_is_an_error_with_reproducers(store: Store, make_job: MakeJob) -> None:
    behaviour = {config.key(): "wrong" for config in LEGAL}
    with pytest.raises(NothingMeasuredError, match=r"33 x wrong.*ptxtune one --n 4096") as caught:
        tune(make_job({"behaviour": behaviour}), store)
    assert caught.value.exit_code != 0
    assert caught.value.summary.tasks[0].config is None
    assert query.winners(store.database) == []
    assert query.runs(store.database)[0].ended_at is not None


def test_buckets_and_protocols_are_searched_one_by_one(store: Store, make_job: MakeJob) -> None:
    job = make_job(buckets=(16, 1, 16), protocols=(Protocol.PLAIN, Protocol.CHAINED))
    summary = tune(job, store)
    assert [(task.task.m, task.task.protocol) for task in summary.tasks] == [
        (m, protocol) for m in (1, 16) for protocol in Protocol
    ]
    assert len(query.winners(store.database)) == 4


def test_a_problem_without_legal_configs_does_not_end_the_others(
    store: Store, make_job: MakeJob
) -> None:
    class Picky(type(families()["mma"])):  # type: ignore[misc]
        """Has nothing for M = 16."""

        def candidates(self, problem, arch, m):  # type: ignore[no-untyped-def]
            return iter(()) if m == 16 else super().candidates(problem, arch, m)

    summary = tune(make_job(families={"mma": Picky(SMALL)}, buckets=(8, 16)), store)
    assert [task.config for task in summary.tasks] == [OPTIMUM, None]
    assert "no config is legal" in summary.tasks[1].message


def test_a_stop_keeps_everything_and_sets_a_winner_from_the_screening(
    store: Store, make_job: MakeJob, evaluated: Callable[[], list[str]]
) -> None:
    stop = StopRequest()

    def on_event(event: Event) -> None:
        if isinstance(event, TrialEnded) and event.measured == 3:
            stop.request()

    summary = tune(make_job(), store, on_event, stop)
    assert summary.interrupted
    assert len(screened(evaluated())) == 3
    assert "finals" not in evaluated()
    (winner,) = query.winners(store.database)
    times = [true_us(config) for config in LEGAL if config.key() in screened(evaluated())]
    assert winner.time_us == pytest.approx(min(times))
    (task,) = tune(make_job(), store).tasks
    assert task.config == OPTIMUM


@pytest.mark.parametrize("budget", [Budget(seconds=1e-9), Budget(trials=1)])
def test_the_default_is_measured_however_small_the_budget(
    store: Store, make_job: MakeJob, evaluated: Callable[[], list[str]], budget: Budget
) -> None:
    (task,) = tune(make_job(budget=budget), store).tasks
    assert screened(evaluated()) == [BASE.key()]
    assert task.config == BASE
    assert task.cublas_us == 20.0


def test_the_next_task_is_prepared_during_the_finals(store: Store, make_job: MakeJob) -> None:
    seen: list[str] = []

    class Watched(FakeFamily):
        def candidates(self, problem: Problem, arch: ArchSpec, m: int) -> Iterator[KernelConfig]:
            seen.append(f"space {m}")
            return super().candidates(problem, arch, m)

    job = make_job(
        families={"mma": Watched(SMALL)},
        buckets=(8, 16, 32),
        protocols=(Protocol.PLAIN, Protocol.CHAINED),
        budget=Budget(trials=1),
    )
    told = (FinalsStarted, TaskEnded)
    tune(
        job, store, lambda event: seen.append(type(event).__name__) if type(event) in told else None
    )
    prepared = [["FinalsStarted", f"space {m}", "TaskEnded"] for m in (8, 16, 16, 32, 32)]
    assert seen == ["space 8", *itertools.chain(*prepared), "FinalsStarted", "TaskEnded"]


def test_a_search_out_of_patience_ends_and_does_not_begin_again(
    store: Store, make_job: MakeJob, evaluated: Callable[[], list[str]]
) -> None:
    """In a space of hundreds, 12 in a row that bring nothing end it; the same job is then done."""
    job = make_job(families=families(LARGE), sampler="random", budget=Budget(patience=12))
    (task,) = tune(job, store).tasks
    assert task.config is not None
    count = len(screened(evaluated()))
    assert 12 < count < len(list(families(LARGE)["mma"].candidates(PROBLEM, ARCH, 8)))
    tune(job, store)
    assert len(screened(evaluated())) == count


def test_out_of_time_what_waits_compiled_is_given_up(
    store: Store, make_job: MakeJob, evaluated: Callable[[], list[str]]
) -> None:
    """Each one takes longer than the budget, and eight kernels are compiled meanwhile."""
    job = make_job({"seconds": 1.2}, budget=Budget(seconds=1.0), compile_workers=4)
    tune(job, store)
    assert BASE.key() in screened(evaluated())  # always, be it compiled first or last
    assert len(screened(evaluated())) <= 2


def test_a_gpu_that_dies_ends_the_run_and_blames_nobody(
    store: Store, make_job: MakeJob, tmp_path: Path
) -> None:
    killer = next(config for config in LEGAL if config not in (BASE, OPTIMUM))
    options = {"behaviour": {killer.key(): "segv"}, "starts": str(tmp_path / "starts")}
    with pytest.raises(DriverError, match="does not work any more"):
        tune(make_job(options, evaluator="search_fakes:create_dying"), store)
    trials = query.trials(store.database)
    assert [t.config for t in trials if t.outcome.status is Status.CRASH] == [killer]
    assert trials[-1].outcome.status is Status.NOISY
    assert query.runs(store.database)[0].ended_at is not None
    (task,) = tune(make_job(), store).tasks
    assert task.config == OPTIMUM


def test_no_gpu_leaves_no_run_behind(store: Store, make_job: MakeJob) -> None:
    with pytest.raises(DriverError, match="CUDA_ERROR_NO_DEVICE"):
        tune(make_job(evaluator="search_fakes:no_gpu"), store)
    assert query.runs(store.database) == []


def test_run_one_measures_even_what_is_known(
    store: Store, make_job: MakeJob, evaluated: Callable[[], list[str]]
) -> None:
    tune(make_job(), store)
    outcome = run_one(make_job(), OPTIMUM, store)
    assert outcome.status is Status.OK
    assert outcome.time_us == pytest.approx(true_us(OPTIMUM))
    assert evaluated()[-1] == f"evaluate full {OPTIMUM.key()}"
    assert run_one(make_job(), None, store).time_us == pytest.approx(true_us(BASE))


def test_run_one_says_why_a_config_is_illegal(store: Store, make_job: MakeJob) -> None:
    illegal = replace_knob(BASE, block_n=256, num_stages=6)
    outcome = run_one(make_job(), illegal, store)
    assert outcome.status is Status.INVALID
    assert "1536 is more than 512" in outcome.message
    (trial,) = query.trials(store.database, device=DEVICE)
    assert trial.outcome.status is Status.INVALID


def replace_knob(config: KernelConfig, **knobs: int) -> KernelConfig:
    own = {name: value for name, value in config.to_dict().items() if name != "family"}
    return type(config).from_knobs({**own, **knobs})


def test_every_event_of_a_task_is_seen(store: Store, make_job: MakeJob) -> None:
    events: list[Event] = []
    summary = tune(make_job(), store, events.append)
    kinds = [type(event).__name__ for event in events]
    assert kinds[:2] == ["RunStarted", "TaskStarted"]
    assert kinds[2:-2] == ["TrialEnded"] * len(LEGAL)
    assert kinds[-2:] == ["FinalsStarted", "TaskEnded"]
    last = events[-1]
    assert isinstance(last, TaskEnded)
    assert last == summary.tasks[0]
    assert last.floor_us == pytest.approx(PROBLEM.bytes_moved(8) / 4480e3)
