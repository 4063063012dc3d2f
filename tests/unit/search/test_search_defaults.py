"""The built-in defaults beside what an H200 measured: without a search one gets most of it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from statistics import mean

import pytest

from db.records import Protocol
from ptxgen.arch import gpu_named
from ptxgen.families import default_config
from search.events import Task
from search.replay import Recording, load_recording

DATA = Path(__file__).parents[2] / "data"
H200 = gpu_named("h200")
TILE = ("block_m", "block_n", "warp_n", "warps_k", "block_k", "num_stages", "split_k")
"""Knobs of an mma default that matter most; of the others the recording has some choice."""


def over_the_best(recording: Recording, task: Task, knobs: tuple[str, ...]) -> float | None:
    """The default's time over the fastest one's of a recorded cell; None where it was not tried."""
    chained = task.protocol is Protocol.CHAINED
    default = default_config(
        task.problem, H200.spec, task.m, H200.num_sms, chained=chained
    ).to_dict()
    times, own = [], []
    for trial in recording.tasks[task].values():
        config = trial.config.to_dict()
        if trial.time_us is None:
            continue
        times.append(trial.time_us)
        if config["family"] == default["family"] and all(
            config[knob] == default[knob] for knob in knobs
        ):
            own.append(trial.time_us)
    return min(own) / min(times) if own else None


@cache
def recorded(name: str) -> Recording:
    return load_recording(DATA / name)


def ratios(name: str, m: int, protocol: Protocol) -> Iterator[float]:
    recording = recorded(name)
    for task in recording.tasks:
        if task.m == m and task.protocol is protocol:
            some = next(iter(recording.tasks[task].values())).config
            knobs = TILE if some.family == "mma" else some.knob_names()
            found = over_the_best(recording, task, tuple(knobs))
            if found is not None:
                yield found


@pytest.mark.parametrize(
    ("m", "cells", "in_the_mean", "at_most"),
    [(1, 6, 1.025, 1.05), (8, 6, 1.025, 1.07), (16, 5, 1.015, 1.04)],
)
def test_decode_defaults_are_near_the_best(
    m: int, cells: int, in_the_mean: float, at_most: float
) -> None:
    found = list(ratios("recorded-h200.jsonl.gz", m, Protocol.PLAIN))
    assert len(found) >= cells
    assert mean(found) < in_the_mean
    assert max(found) < at_most


@pytest.mark.parametrize("protocol", Protocol)
@pytest.mark.parametrize("m", [32, 64])
def test_defaults_of_small_batches_are_near_the_best(m: int, protocol: Protocol) -> None:
    found = list(ratios("recorded-h200-m32-up.jsonl.gz", m, protocol))
    # The default of 28672 x 4096 at M = 32 is younger than the recording, which lacks it.
    assert len(found) == (7 if m == 32 else 8)
    assert mean(found) < 1.03
    assert max(found) < 1.08


@pytest.mark.parametrize(
    ("m", "cells", "in_the_mean", "at_most"),
    [
        (128, 8, 1.01, 1.02),
        (256, 8, 1.01, 1.02),
        (512, 6, 1.015, 1.05),
        (1024, 5, 1.01, 1.02),
        (2048, 6, 1.015, 1.03),
        (4096, 7, 1.01, 1.02),
        (8192, 8, 1.01, 1.02),
    ],
)
def test_defaults_of_large_batches_are_near_the_best(
    m: int, cells: int, in_the_mean: float, at_most: float
) -> None:
    """Where they were measured: screening took some for impossible (kernel log, 57)."""
    found = list(ratios("recorded-h200-m32-up.jsonl.gz", m, Protocol.PLAIN))
    assert len(found) >= cells
    assert mean(found) < in_the_mean
    assert max(found) < at_most
