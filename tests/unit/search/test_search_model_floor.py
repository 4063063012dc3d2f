"""The model and the floor: no prediction is below the floor that it is shown with."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from db.records import Protocol
from ptxgen.arch import GPUS
from ptxgen.config import KernelConfig
from ptxgen.families import FAMILIES, default_config
from ptxgen.problem import Problem
from search.above_floor import above_floor
from search.model import estimate_resources, floor_us, take_apart
from search.prediction import Prediction
from search.roofline import roofline

BATCHES = (1, 16, 64, 300, 2048, 16384, 1 << 20)
PROBLEMS = (
    Problem(11008, 4096),
    Problem(4096, 4096, 64, "bf16", "int", bias=True),
    Problem(64, 128),
)


def sampled(problem: Problem, gpu_name: str, m: int) -> list[KernelConfig]:
    """The default, and random candidates of every family."""
    gpu = GPUS[gpu_name]
    found = [default_config(problem, gpu.spec, m, gpu.num_sms)]
    for family in FAMILIES.values():
        legal = list(family.candidates(problem, gpu.spec, min(m, 8192)))
        rng = random.Random(m)  # noqa: S311 (no secret)
        found += rng.sample(legal, min(8, len(legal)))
    return found


def both(
    problem: Problem, config: KernelConfig, m: int, gpu_name: str, protocol: Protocol
) -> tuple[Prediction, Prediction] | None:
    """The prediction as it is shown, and what the model gives for ranking."""
    gpu = GPUS[gpu_name]
    plan = FAMILIES[config.family].plan(problem, config, gpu.spec)
    guess = estimate_resources(problem, config, plan)
    free = take_apart(problem, config, plan, guess, m, gpu=gpu, protocol=protocol)
    return None if free is None else (above_floor(free, problem, m, gpu), free)


@pytest.mark.parametrize("gpu_name", ["h200", "a100", "rtx4090"])
@pytest.mark.parametrize("problem", PROBLEMS, ids=Problem.key)
def test_no_prediction_is_below_the_floor_and_their_order_stays(
    problem: Problem, gpu_name: str
) -> None:
    gpu = GPUS[gpu_name]
    for m in BATCHES:
        floor = floor_us(problem, m, gpu.read_gbps, gpu.tensor_tflops)
        pairs = [
            pair
            for config in sampled(problem, gpu_name, m)
            for protocol in Protocol
            if (pair := both(problem, config, m, gpu_name, protocol))
        ]
        assert pairs
        assert all(held.total_us > floor for held, _ in pairs)
        assert all(held == free for held, free in pairs if free.total_us > 1.02 * floor)
        for (one, free_one), (two, free_two) in pairwise(
            sorted(pairs, key=lambda pair: pair[1].total_us)
        ):
            assert (one.total_us < two.total_us) or free_one.total_us == pytest.approx(
                free_two.total_us, rel=1e-9
            )


def test_a_large_batch_would_fall_below_it_and_is_shown_at_it() -> None:
    problem, m, gpu = Problem(11008, 4096), 16384, GPUS["h200"]
    config = default_config(problem, gpu.spec, m, gpu.num_sms)
    found = both(problem, config, m, "h200", Protocol.PLAIN)
    assert found is not None
    held, free = found
    assert free.total_us < floor_us(problem, m, gpu.read_gbps, gpu.tensor_tflops)
    plan = FAMILIES[config.family].plan(problem, config, gpu.spec)
    guess = estimate_resources(problem, config, plan)
    shown = roofline(
        problem, config, plan, guess, m,
        gpu=gpu, protocol=Protocol.PLAIN, time_us=held.total_us,
    )  # fmt: skip
    assert shown is not None
    assert 0.99 < shown.floor_share < 1.0
    assert sum(shown.parts_us.values()) == pytest.approx(held.total_us)
