"""The wgmma_tma model against recorded trials, by hand, and against a count of what fits an SM."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import isfinite
from pathlib import Path
from statistics import median
from typing import Literal

import pytest

from db.records import Protocol
from ptxgen.arch import gpu_named
from ptxgen.families import FAMILIES
from ptxgen.families.wgmma_tma.config import WgmmaTmaConfig
from ptxgen.families.wgmma_tma.shape import TmaShape
from ptxgen.outcome import Resources
from ptxgen.problem import Problem
from search.events import Task
from search.model import estimate_resources, take_apart
from search.model_tma import ctas_per_sm, estimate_registers
from search.prediction import Prediction
from search.ranking import Ranker, gpu_spec_of
from search.replay import Recording, load_recording
from search.roofline import roofline
from search.space import Space

H200 = gpu_named("h200")
DATA = Path(__file__).parents[2] / "data"
FITTED = {(6144, 4096), (8192, 28672), (28672, 4096)}
"""Layers (N, K) that the constants were fitted to."""

TOP = 5
LARGE_CELL = 16
"""Configs of a cell among which five are a choice."""
WIDE = Problem(28672, 4096)
SQUARE = Problem(4096, 4096)
BASE = WgmmaTmaConfig(64, 128, 2, 4, 2, 1, 1, 1, 0)


@pytest.fixture(scope="module")
def recording() -> Recording:
    return load_recording(DATA / "recorded-h200-wgmma-tma.jsonl.gz")


@pytest.fixture(scope="module")
def todays() -> Recording:
    return load_recording(DATA / "recorded-h200-m32-up.jsonl.gz")


def taken_apart(
    config: WgmmaTmaConfig,
    problem: Problem = WIDE,
    m: int = 64,
    protocol: Protocol = Protocol.PLAIN,
) -> Prediction:
    plan = FAMILIES["wgmma_tma"].plan(problem, config, H200.spec)
    resources = estimate_resources(problem, config, plan)
    found = take_apart(problem, config, plan, resources, m, gpu=H200, protocol=protocol)
    assert found is not None
    return found


def pairs(
    recording: Recording, task: Task, zero: Literal["sym", "int"] = "int"
) -> list[tuple[float, float]]:
    """(predicted, measured) microseconds of a task's configs.

    The first recording is of symmetric layers, whose kernels had 13 instructions for 8 weights,
    as those with zero points still have: with these they are compared.
    """
    as_now = replace(task, problem=replace(task.problem, zero=zero))
    ranker = Ranker(as_now, recording.arch, gpu_spec_of(recording.device), recording.families())
    trials = recording.tasks[task].values()
    return [(ranker.predicted_us(item.config), item.time_us or 0.0) for item in trials]


def regret_of_first(cell: list[tuple[float, float]]) -> float:
    """The best of the TOP configs that the model puts first, over the best of all, minus 1."""
    first = sorted(cell, key=lambda pair: pair[0])[:TOP]
    return min(measured for _, measured in first) / min(measured for _, measured in cell) - 1


def held_out(recording: Recording) -> list[Task]:
    return [task for task in recording.tasks if (task.problem.n, task.problem.k) not in FITTED]


def test_half_of_the_layers_were_held_out(recording: Recording) -> None:
    held = held_out(recording)
    assert len(held) >= 12
    assert {(task.problem.n, task.problem.k) for task in recording.tasks} >= FITTED
    assert sum(len(recording.tasks[task]) for task in held) > 0.35 * 849


def test_held_out_times_are_met(recording: Recording) -> None:
    ratios = [
        predicted / measured
        for task in held_out(recording)
        for predicted, measured in pairs(recording, task)
    ]
    assert 0.97 < median(ratios) < 1.03
    assert median(abs(ratio - 1) for ratio in ratios) < 0.04
    assert all(0.7 < ratio < 1.4 for ratio in ratios)


@pytest.mark.parametrize("held", [True, False])
def test_the_first_five_hold_a_config_near_the_best(recording: Recording, held: bool) -> None:
    regrets = []
    for task in recording.tasks:
        fitted = (task.problem.n, task.problem.k) in FITTED
        if fitted == held or len(recording.tasks[task]) < LARGE_CELL:
            continue
        regrets.append(regret_of_first(pairs(recording, task)))
    assert len(regrets) >= 9
    assert median(regrets) < 0.01
    assert max(regrets) < 0.06


def test_times_of_the_kernels_of_one_fma_are_met() -> None:
    """What searches tried, turns and rings of two too; one constant was fitted to them."""
    recording = load_recording(DATA / "recorded-h200-one-fma.jsonl.gz")
    cells = [pairs(recording, task, "sym") for task in recording.tasks]
    ratios = [predicted / measured for cell in cells for predicted, measured in cell]
    assert len(cells) == 24
    assert len(ratios) > 1200
    assert 0.98 < median(ratios) < 1.02
    assert median(abs(ratio - 1) for ratio in ratios) < 0.08
    regrets = [regret_of_first(cell) for cell in cells]
    assert median(regrets) < 0.01
    assert max(regrets) < 0.13


@pytest.mark.parametrize("held", [True, False])
def test_times_of_todays_kernels_are_met(todays: Recording, held: bool) -> None:
    """What searches tried; what an exchange in a cluster costs was fitted to three layers."""
    cells = {
        task: pairs(todays, task, "sym")
        for task in todays.tasks
        if ((task.problem.n, task.problem.k) not in FITTED) == held
    }
    plain = [task for task in cells if task.protocol is Protocol.PLAIN and task.m <= 2048]
    ratios = [predicted / measured for task in plain for predicted, measured in cells[task]]
    assert len(ratios) > 1200
    assert 0.97 < median(ratios) < 1.03
    assert median(abs(ratio - 1) for ratio in ratios) < 0.05
    regrets = [regret_of_first(cell) for cell in cells.values() if len(cell) >= LARGE_CELL]
    assert len(regrets) >= 25
    assert median(regrets) < 0.005
    assert sum(regrets) / len(regrets) < 0.015
    assert max(regrets) < 0.08


@pytest.mark.parametrize("split_k", [2, 4])
def test_a_split_of_k_is_neither_favoured_nor_held_back(todays: Recording, split_k: int) -> None:
    """Times of splits beside those of whole K, in the median of all cells."""
    ratios: dict[int, list[float]] = {1: [], split_k: []}
    for task in todays.tasks:
        splits = [item.config.to_dict()["split_k"] for item in todays.tasks[task].values()]
        for split, (predicted, measured) in zip(splits, pairs(todays, task, "sym"), strict=True):
            if split in ratios and task.m <= 256:
                ratios[int(split)].append(predicted / measured)
    assert len(ratios[split_k]) > 150
    assert abs(median(ratios[split_k]) / median(ratios[1]) - 1) < 0.03


@pytest.mark.parametrize(
    ("problem", "m"), list(product((WIDE, SQUARE, Problem(10240, 8192)), (17, 32, 64, 128, 2048)))
)
def test_every_candidate_has_a_time_above_the_floor(problem: Problem, m: int) -> None:
    task = Task(problem, m, Protocol.PLAIN)
    ranker = Ranker(task, H200.spec, H200, FAMILIES)
    times = [
        ranker.predicted_us(config)
        for config in FAMILIES["wgmma_tma"].candidates(problem, H200.spec, m)
    ]
    dense_tflops = 4096 * H200.num_sms * 1.98e-3  # FLOP a clock and SM, at the highest clock
    floor = max(
        problem.bytes_moved(m) / (H200.read_gbps * 1e3), problem.flops(m) / (dense_tflops * 1e6)
    )
    assert times
    assert all(isfinite(time_us) and time_us > floor + H200.launch_us for time_us in times)


@pytest.mark.parametrize("problem", [WIDE, SQUARE], ids=["wide", "square"])
def test_across_families_it_comes_first_at_64_tokens_and_is_absent_at_16(
    problem: Problem,
) -> None:
    best: dict[int, dict[str, float]] = {}
    for m in (16, 64):
        ranker = Ranker(Task(problem, m, Protocol.PLAIN), H200.spec, H200, FAMILIES)
        found = best.setdefault(m, {})
        for config in Space(problem, H200.spec, m, FAMILIES):
            time_us = ranker.predicted_us(config)
            found[config.family] = min(time_us, found.get(config.family, time_us))
    assert best[64]["wgmma_tma"] < 0.9 * best[64]["mma"]
    assert set(best[16]) == {"mma"}


@pytest.mark.parametrize("m", [8, 32, 64, 256])
def test_seeds_are_of_every_family_in_reach(m: int) -> None:
    problem = Problem(8192, 8192)
    ranker = Ranker(Task(problem, m, Protocol.PLAIN), H200.spec, H200, FAMILIES)
    space = Space(problem, H200.spec, m, FAMILIES)
    seeds = ranker.seeds(space)
    assert len({config.key() for config in seeds}) == len(seeds) == 12
    of_all = ranker.best(space, 1)[0]
    assert seeds[0] == of_all
    times = {config.key(): ranker.predicted_us(config) for config in space}
    for name in {config.family for config in space}:
        own = [config for config in space if config.family == name]
        best = min(times[config.key()] for config in own)
        chosen = [config for config in seeds if config.family == name]
        if best <= 1.5 * times[of_all.key()]:
            assert len(chosen) >= 4
            # Of a space of over 4,000 configs a sample is ranked.
            assert min(times[config.key()] for config in chosen) <= 1.02 * best
        else:
            assert chosen == []


def test_what_fits_an_sm_is_what_a_count_by_quarters_says() -> None:
    """CTAs one after the other, each warp to the quarter with the fewest warps."""
    for warpgroups, registers in product((1, 2, 4), range(32, 256, 8)):
        config = replace(BASE, block_m=16, block_n=64 * warpgroups, warpgroups=warpgroups)
        shape = TmaShape(WIDE, replace(config, num_stages=2))
        warps = shape.threads // 32
        quarters, ctas = [0, 0, 0, 0], 0
        while True:
            for _ in range(warps):
                quarters[quarters.index(min(quarters))] += registers
            if max(quarters) > 512:  # 16,384 registers of a quarter over 32 lanes
                break
            ctas += 1
        by_smem = H200.spec.smem_per_sm // (shape.smem_bytes + 1024)
        by_warps = H200.spec.max_warps_per_sm // warps
        found = ctas_per_sm(shape, Resources(registers, 0, shape.smem_bytes), H200.spec)
        assert found == min(ctas, by_smem, by_warps)


def test_a_producer_that_gives_registers_away_starts_with_an_equal_share() -> None:
    large = replace(BASE, block_m=128, block_n=256, num_stages=3)
    shape = TmaShape(WIDE, large)
    assert shape.moves_registers
    assert estimate_registers(shape) == 168  # 65,536 / 384 threads, down to a multiple of 8
    assert taken_apart(large, m=128).ctas_per_sm == 1
    small = TmaShape(WIDE, BASE)
    assert estimate_registers(small) <= small.even_registers


def test_limits_by_hand() -> None:
    """28672 / 128 = 224 CTAs, two an SM: 100 KB and 5 x 112 registers of the 512 of a quarter."""
    found = taken_apart(BASE)
    assert (found.ctas, found.ctas_per_sm, found.slots) == (224, 2, 264)
    stages, cycle_us = 32, 1 / 1750
    copied = 2 * 64 * 128 + 2 * (4096 + 128)  # tokens; two strips of weights and their scales
    issue = 2 * 180 + 2 * 38  # of a quarter: two row blocks, a warp of either warpgroup
    limits = found.limits
    assert found.in_flight_bytes == 2 * 4 * copied
    assert limits.memory == pytest.approx(WIDE.bytes_moved(64) / 4480e3)
    assert limits.l2 == pytest.approx(2 * stages * copied / 126e3)
    assert limits.in_flight == pytest.approx(stages * 0.325 / 4)
    assert limits.tensor == pytest.approx(2 * stages * 2 * 8 * 32 * cycle_us)
    assert limits.issue == pytest.approx(2 * stages * issue * cycle_us)
    assert limits.chain == pytest.approx(stages * (1.53 * (180 + 38) + 4 * 4) * cycle_us)
    assert found.split_us == found.tail_us == 0.0
    assert found.total_us == pytest.approx(
        found.launch_us + found.fill_us + found.main_us + found.epilogue_us
    )


def test_waves_shares_and_clusters() -> None:
    ten = Problem(10240, 8192)
    alone = replace(BASE, block_n=256, num_stages=5)  # one CTA an SM
    walk, shared = replace(alone, max_ctas=132), replace(alone, max_ctas=132, stream_k=True)
    two, one = taken_apart(alone, WIDE, 128), taken_apart(alone, WIDE, 64)
    assert (two.ctas, one.ctas, two.slots) == (224, 112, 132)
    assert two.tail_us > 0 == one.tail_us
    assert taken_apart(walk, WIDE, 128).fill_us < two.fill_us
    parts = taken_apart(shared, ten, 64)  # 40 tiles for 132 CTAs
    assert parts.main_us < 0.5 * taken_apart(alone, ten, 64).main_us
    assert 3 < parts.split_us < 16
    even = taken_apart(replace(shared, block_n=128), Problem(128 * 132, 4096), 64)
    assert even.split_us == 0.0  # nothing is left to share
    pair, four = (taken_apart(replace(BASE, split_k=k), SQUARE) for k in (2, 4))
    assert 0.5 < pair.split_us < 1  # 16 KB of sums
    assert pair.slots % 132 == 0
    assert four.slots % 120 == 0  # 30 clusters of 4 at once


def test_a_chain_hides_the_launch_unless_there_is_room_for_the_successor() -> None:
    full, roomy = replace(BASE, block_n=256, num_stages=5), replace(BASE, max_ctas=132)
    plain, chained = (
        taken_apart(full, m=128, protocol=word) for word in (Protocol.PLAIN, Protocol.CHAINED)
    )
    assert chained.launch_us == pytest.approx(0.1 * plain.launch_us)
    assert chained.fill_us == pytest.approx(plain.fill_us - 0.9)  # half of 1.8 us
    assert chained.main_us == plain.main_us
    crowded = taken_apart(roomy, protocol=Protocol.CHAINED)  # one CTA an SM, and room for two
    assert crowded.fill_us == pytest.approx(0.9 + 3.0 / 2)


def test_its_roofline_has_the_same_parts() -> None:
    config = replace(BASE, block_m=256, num_stages=3)
    plan = FAMILIES["wgmma_tma"].plan(WIDE, config, H200.spec)
    resources = estimate_resources(WIDE, config, plan)
    found = roofline(
        WIDE, config, plan, resources, 256, gpu=H200, protocol=Protocol.PLAIN, time_us=90.0
    )
    assert found is not None
    assert found.model_us == pytest.approx(sum(found.parts_us.values()))
    assert found.limits_us["tensor"] > found.limits_us["memory"]
    assert found.ctas_per_sm == 1
