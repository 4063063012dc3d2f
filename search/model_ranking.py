"""How well the model ranks: its order of recorded trials against their measured order.

python -m search.model_ranking tests/data/recorded-h200.jsonl.gz \\
    > reports/results/nvidia-h200/model-ranking.json
and the same for recorded-h200-one-fma.jsonl.gz and recorded-h200-m32-up.jsonl.gz, whose tables are
model-ranking-one-fma.json and model-ranking-m32-up.json.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from db.records import Protocol
from ptxgen.config import KernelConfig
from search.events import Task
from search.model import MODEL_VERSION
from search.ranking import Ranker, gpu_spec_of
from search.replay import Recording, load_recording

TOP = (1, 8)
"""Regrets are of the best of so many configs that the model puts first."""


@dataclass(frozen=True, slots=True)
class RankQuality:
    """The model's order of one task's recorded configs.

    Attributes:
        problem: key of the problem.
        m: batch size.
        protocol: how launches followed each other.
        configs: recorded, with a time.
        spearman: rank correlation of predicted and measured times; 1 is the same order.
        regret_top1: measured time of the model's first config over the best time, minus 1.
        regret_top8: the same for the best of its first eight.
    """

    problem: str
    m: int
    protocol: str
    configs: int
    spearman: float
    regret_top1: float
    regret_top8: float


def rank_quality(recording: Recording) -> list[RankQuality]:
    """One row for each recorded task, in the order of the recording."""
    families = recording.families()
    rows = []
    for task in recording.tasks:
        ranker = Ranker(task, recording.arch, gpu_spec_of(recording.device), families)
        rows.append(quality_of(recording, task, ranker.predicted_us))
    return rows


def quality_of(
    recording: Recording, task: Task, predicted_us: Callable[[KernelConfig], float]
) -> RankQuality:
    """The quality of any prediction of one task's times."""
    trials = [trial for trial in recording.tasks[task].values() if trial.time_us is not None]
    measured = np.array([trial.time_us for trial in trials], dtype=np.float64)
    predicted = np.array([predicted_us(trial.config) for trial in trials], dtype=np.float64)
    order = np.argsort(predicted, kind="stable")
    regrets = [float(measured[order[:top]].min() / measured.min() - 1) for top in TOP]
    return RankQuality(
        problem=task.problem.key(),
        m=task.m,
        protocol=task.protocol.value,
        configs=len(trials),
        spearman=spearman(predicted, measured),
        regret_top1=regrets[0],
        regret_top8=regrets[1],
    )


def spearman(left: NDArray[np.float64], right: NDArray[np.float64]) -> float:
    """Rank correlation, ties at their mean rank; 0 where one side is constant."""
    a, b = _ranks(left), _ranks(right)
    a, b = a - a.mean(), b - b.mean()
    norm = float(np.sqrt((a * a).sum() * (b * b).sum()))
    return float((a * b).sum()) / norm if norm else 0.0


def summary(rows: Sequence[RankQuality], recording: Recording) -> dict[str, Any]:
    """JSON-friendly: where it comes from, medians by protocol, and every row."""
    groups = {"all": list(rows)}
    for protocol in Protocol:
        chosen = [row for row in rows if row.protocol == protocol.value]
        if chosen:
            groups[protocol.value] = chosen
    environment = recording.environment
    return {
        "device": environment.device.name,
        "driver": environment.toolchain.driver,
        "nvrtc": environment.toolchain.nvrtc,
        "model_version": MODEL_VERSION,
        "configs": sum(row.configs for row in rows),
        "tasks": len(rows),
        "groups": {name: _medians(chosen) for name, chosen in groups.items()},
        "rows": [
            {key: round(v, 4) if isinstance(v, float) else v for key, v in asdict(row).items()}
            for row in rows
        ],
    }


def _medians(rows: Sequence[RankQuality]) -> dict[str, float]:
    regret = [row.regret_top8 for row in rows]
    return {
        "spearman_median": round(median(row.spearman for row in rows), 4),
        "spearman_least": round(min(row.spearman for row in rows), 4),
        "regret_top1_median": round(median(row.regret_top1 for row in rows), 4),
        "regret_top8_median": round(median(regret), 4),
        "regret_top8_mean": round(sum(regret) / len(regret), 4),
        "regret_top8_most": round(max(regret), 4),
    }


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    means: NDArray[np.float64] = (2 * ends - counts + 1) / 2
    return means[inverse]


def main() -> None:
    """Prints the summary of the recording named by the first argument."""
    recording = load_recording(Path(sys.argv[1]))
    print(json.dumps(summary(rank_quality(recording), recording), indent=1))


if __name__ == "__main__":
    main()
