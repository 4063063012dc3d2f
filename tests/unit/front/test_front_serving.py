"""Which winners serve another batch on real families: by the model, and by trials of an H200."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

import ptxtune
from db.records import Protocol, WinnerRecord
from db.serving import Question, refusal
from db.session import open_database
from db.store import Store
from db.trial_rows import SharedTrial
from ptxgen.arch import GPUS
from ptxgen.config import KernelConfig
from ptxgen.families import default_config, emit, family_named
from ptxgen.outcome import Outcome, Status
from ptxgen.problem import Problem, bucket_of
from ptxtune.bench import make_bench
from ptxtune.bench_selection import LayerOptions, select_layers
from ptxtune.cli import cli
from ptxtune.detect import DetectedGpu, Detection
from ptxtune.serving_model import serving_model
from ptxtune.target import Target, resolve_target
from ptxtune.toolchain import current_toolchain
from search.events import Task
from search.model import estimate_resources, predict_us
from search.predict import device_of
from search.replay import Recording, load_recording

DATA = Path(__file__).parents[2] / "data"
RECORDINGS = sorted(DATA.glob("recorded-h200*.jsonl.gz"))
BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
WINNERS, NEAR = 10, 1.05
"""Of each recorded task so many of the fastest, within so much of the best: a shorter search could
have ended with any of them."""
TOLERANCE = 1.03
H200 = resolve_target("h200", Detection((), "no GPU in this test"))


@dataclass(frozen=True)
class Cell:
    """One recorded layer, M and protocol."""

    task: Task
    trials: dict[str, SharedTrial]

    def time_of(self, config: KernelConfig) -> float | None:
        trial = self.trials.get(config.key())
        return trial.time_us if trial else None

    @property
    def default(self) -> KernelConfig:
        task = self.task
        return default_config(task.problem, H200.arch, task.m, 132, chained=task.chained)

    def winners(self, recording: Recording) -> Iterator[WinnerRecord]:
        timed = sorted(
            (trial for trial in self.trials.values() if trial.time_us is not None),
            key=lambda trial: trial.time_us or 0.0,
        )
        near = NEAR * (timed[0].time_us or 0.0)
        for place, trial in enumerate(timed[:WINNERS]):
            if (trial.time_us or 0.0) > near:
                return
            yield WinnerRecord(
                trial_id=place,
                device=recording.device,
                toolchain=recording.environment.toolchain,
                problem=self.task.problem,
                m=self.task.m,
                protocol=self.task.protocol,
                config=trial.config,
                source_digest="",
                time_us=trial.time_us or 0.0,
                spread=None,
                rel_err=None,
                floor_us=None,
                default_us=self.time_of(self.default),
                cublas_us=None,
                predicted=False,
                measured_at=datetime(2026, 11, 30, tzinfo=UTC),
            )


def cells(recording: Recording) -> list[Cell]:
    return [Cell(task, trials) for task, trials in recording.tasks.items()]


def question(problem: Problem, m: int, protocol: Protocol, target: Target = H200) -> Question:
    model = serving_model(problem, target)
    return Question(
        problem, m, bucket_of(m), target.device, protocol, target.arch, 132, False, model
    )


def predicted(problem: Problem, config: KernelConfig, m: int, protocol: Protocol) -> float:
    plan = family_named(config.family).plan(problem, config, H200.arch)
    guess = estimate_resources(problem, config, plan)
    return predict_us(problem, config, plan, guess, m, gpu=GPUS["h200"], protocol=protocol)


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.name.split(".")[0])
def test_no_winner_serves_where_it_was_measured_slower_than_the_default(path: Path) -> None:
    """For all pairs of recorded cells of a layer: another M, other launches, or both."""
    recording = load_recording(path)
    slow_refused = 0
    for asked in cells(recording):
        task, ours = asked.task, asked.time_of(asked.default)
        asking = question(task.problem, task.m, task.protocol)
        for cell in cells(recording):
            if cell.task.problem != task.problem or cell.task == task:
                continue
            for winner in cell.winners(recording):
                refused = refusal(winner, asking)
                time_us = asked.time_of(winner.config)
                if time_us is None or ours is None:
                    continue
                slow = time_us > TOLERANCE * ours
                assert refused or not slow, (task, winner.m, winner.protocol, time_us / ours)
                slow_refused += slow
    assert slow_refused > 15


@pytest.mark.parametrize("protocol", Protocol)
def test_no_winner_serves_where_it_is_predicted_slower_than_the_default(protocol: Protocol) -> None:
    """Configs that won at a recorded M, as predicted winners of it, for every M of the buckets."""
    recording = load_recording(DATA / "recorded-h200-m32-up.jsonl.gz")
    served = 0
    for cell in cells(recording):
        if cell.task.protocol is not protocol:
            continue
        winner = next(cell.winners(recording))
        for m in (*BUCKETS, 3, 12, 40, 100, 300, 5000):
            if refusal(winner, question(winner.problem, m, protocol)) or m == winner.m:
                continue
            default = default_config(
                winner.problem, H200.arch, m, 132, chained=protocol is Protocol.CHAINED
            )
            mine = predicted(winner.problem, winner.config, m, protocol)
            assert mine <= predicted(winner.problem, default, m, protocol) or (
                measured_there(winner, m)
            )
            tiles = winner.config.to_dict()["block_m"]
            assert m < winner.m or -(-m // tiles) == -(-winner.m // tiles)
            served += 1
    assert served > 5


def measured_there(winner: WinnerRecord, m: int) -> bool:
    """Whether the recorded comparison with the default is also that of m: the same kernels, which
    take the same tiles."""
    chained = winner.protocol is Protocol.CHAINED
    of = {
        size: default_config(winner.problem, H200.arch, size, 132, chained=chained)
        for size in (m, winner.m)
    }
    sizes = [int(config.to_dict()["block_m"]) for config in (winner.config, of[m])]
    same_tiles = all(-(-m // size) == -(-winner.m // size) for size in sizes)
    return of[m] == of[winner.m] and same_tiles


PROBLEM = Problem(4096, 4096)


@pytest.fixture
def tuned(tmp_path: Path) -> str:
    """A database with predicted winners of M = 1, 8 and 16 for the H200, as `make tune` leaves."""
    db = str(tmp_path / "d.db")
    with open_database(db) as database:
        store = Store(database)
        run_id = store.start_run(device_of(GPUS["h200"]), current_toolchain(""))
        for m in (1, 8, 16):
            config = default_config(PROBLEM, H200.arch, m, 132)
            trial_id = store.add_predicted(
                run_id, PROBLEM, m, Protocol.PLAIN, config=config,
                source_digest=emit(PROBLEM, config, H200.arch).digest(),
                outcome=Outcome(Status.PREDICTED, time_us=5.0 + m / 10),
            )  # fmt: skip
            store.set_winner(trial_id, default_us=6.0 + m / 10)
    return db


def best(db: str, *words: str) -> list[dict]:
    result = CliRunner().invoke(
        cli, ["best", "--n", "4096", "--k", "4096", "--gpu", "h200", "--db", db, "--json", *words]
    )
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)["answers"]


def test_a_small_winner_does_not_serve_a_large_batch(tuned: str) -> None:
    asked = (64, 256, 1024, 4096)
    for answer in best(tuned, "--m", ",".join(map(str, asked))):
        default = default_config(PROBLEM, H200.arch, answer["m"], 132)
        assert (answer["level"], answer["winner"]) == ("default", None)
        assert (answer["config"], answer["time_us"]) == (default.to_dict(), None)
        assert "M = 16 on NVIDIA H200 (takes " in answer["message"]
    assert [answer["time_us"] for answer in best(tuned, "--m", "1,8,16")] == [5.1, 5.8, 6.6]


def test_a_table_shows_no_time_of_another_batch(tuned: str) -> None:
    words = ["best", "--n", "4096", "--k", "4096", "--gpu", "h200", "--db", tuned, "--m", "5,8"]
    table = CliRunner().invoke(cli, words).stdout.splitlines()
    (five,) = (line for line in table if line.split("  ")[2:3] == ["5"])
    (eight,) = (line for line in table if line.split("  ")[2:3] == ["8"])
    assert "5.800" in eight
    assert "5.800" not in five
    assert "exact" in five


def test_api_and_bench_give_the_answers_of_best(tuned: str) -> None:
    for m in (3, 8, 200):
        answer = ptxtune.best(n=4096, k=4096, m=m, gpu="h200", db=tuned)
        (listed,) = best(tuned, "--m", str(m))
        assert (answer.config.to_dict(), answer.time_us) == (listed["config"], listed["time_us"])
    gpu = DetectedGpu(0, "NVIDIA H200", (9, 0), "580.95", "GPU-1", 141 << 30, 140 << 30, 700, 132)
    job = make_bench(
        select_layers(LayerOptions(n=4096, k=4096)),
        (8, 200),
        target=resolve_target(None, Detection((gpu,))),
        others=("cublas",),
        db=tuned,
    )
    assert {answer.level.value for answer in job.answers.values()} == {"default"}
