"""The model against recorded trials: the measure by hand, the quality, the committed table."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from db.records import Protocol
from search.events import Task
from search.model_ranking import quality_of, rank_quality, spearman, summary
from search.replay import Recording, load_recording

ROOT = Path(__file__).parents[3]
TABLES = ROOT / "reports/results/nvidia-h200"
HELD_OUT = ("n6144", "n10240", "n28672")
"""Layers that the constants of the model were not fitted to."""


@pytest.fixture(scope="module")
def recording() -> Recording:
    return load_recording(ROOT / "tests/data/recorded-h200.jsonl.gz")


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_spearman_without_ties_is_the_textbook_formula(order: tuple[int, ...]) -> None:
    left = np.array([1.0, 2.0, 4.0, 8.0])
    right = np.array(order, dtype=np.float64)
    squares = sum((i - rank) ** 2 for i, rank in enumerate(order))
    assert spearman(left, right) == pytest.approx(1 - 6 * squares / (4 * (16 - 1)))


def test_spearman_with_ties_and_constants() -> None:
    # Ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4: 4.5 / sqrt(4.5 * 5).
    left, right = np.array([1.0, 5.0, 5.0, 9.0]), np.array([1.0, 2.0, 3.0, 4.0])
    assert spearman(left, right) == pytest.approx(4.5 / np.sqrt(4.5 * 5.0))
    assert spearman(np.ones(3), np.arange(3.0)) == 0.0


def a_task(recording: Recording) -> Task:
    return next(task for task in recording.tasks if task.m == 8)


def test_a_perfect_and_a_reversed_model(recording: Recording) -> None:
    task = a_task(recording)
    times = {key: trial.time_us or 0.0 for key, trial in recording.tasks[task].items()}
    perfect = quality_of(recording, task, lambda config: times[config.key()])
    assert (perfect.spearman, perfect.regret_top1) == (pytest.approx(1.0), 0.0)
    reverse = quality_of(recording, task, lambda config: -times[config.key()])
    known = sorted(time for time in times.values() if time)
    assert reverse.spearman == pytest.approx(-1.0)
    assert reverse.regret_top1 == pytest.approx(known[-1] / known[0] - 1)
    assert reverse.regret_top8 == pytest.approx(known[-8] / known[0] - 1)


def test_the_model_ranks_what_was_measured(recording: Recording) -> None:
    rows = rank_quality(recording)
    assert len(rows) == len(recording.tasks) >= 50
    assert sum(row.configs for row in rows) > 11000
    held_out = [row for row in rows if row.problem.startswith(HELD_OUT)]
    for chosen in (rows, held_out):
        assert np.median([row.spearman for row in chosen]) > 0.78
        assert min(row.spearman for row in chosen) > 0.6
        assert np.mean([row.regret_top8 for row in chosen]) < 0.025
    plain = [row.regret_top8 for row in rows if row.protocol == Protocol.PLAIN.value]
    assert np.mean(plain) < 0.01


@pytest.mark.parametrize("suffix", ["", "-one-fma", "-m32-up"])
def test_the_committed_table_is_what_the_command_writes(suffix: str) -> None:
    recording = load_recording(ROOT / f"tests/data/recorded-h200{suffix}.jsonl.gz")
    committed = json.loads((TABLES / f"model-ranking{suffix}.json").read_text(encoding="utf-8"))
    fresh = summary(rank_quality(recording), recording)
    assert committed.keys() == fresh.keys()
    for key in ("device", "driver", "nvrtc", "model_version", "configs", "tasks"):
        assert committed[key] == fresh[key]
    for old, new in zip(committed["rows"], fresh["rows"], strict=True):
        for key, value in new.items():
            close = isinstance(value, float)
            assert old[key] == (pytest.approx(value, abs=2e-3) if close else value)
