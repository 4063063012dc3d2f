"""The soak of random shapes draws what is legal and awkward, can be repeated, and finds faults."""

from __future__ import annotations

import itertools
import random
import shlex
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import search_fakes
from search_fakes import BASE, FakeFamily

from ptxgen.arch import ArchSpec, arch_named
from ptxgen.compile import SERIALIZED
from ptxgen.config import KernelConfig
from ptxgen.errors import DriverError
from ptxgen.families import FAMILIES, violations
from ptxgen.outcome import Outcome, Status
from ptxgen.problem import Problem
from ptxgen.source import KernelSource
from ptxtune.config_text import read_config
from ptxtune.selection import select_problems
from search.gpu_lock import GpuLock
from search.shape_report import is_refusal
from search.shape_soak import ShapeJob, soak_shapes
from search.shapes import (
    MAX_ELEMENTS,
    MAX_M,
    MAX_WEIGHTS,
    MAX_WORKSPACE_BYTES,
    draw_m,
    draw_problem,
    draw_round,
)

HOPPER, AMPERE = arch_named("sm_90a"), arch_named("sm_80")
WRONG = replace(BASE, block_n=32, num_stages=2, split_k=1)
KILLER = replace(BASE, block_n=64, num_stages=3, split_k=2)
STUCK = replace(BASE, block_n=128, num_stages=4, split_k=4)


# ---- what is drawn ------------------------------------------------------------------------------


def test_problems_and_batches_are_of_every_kind() -> None:
    rng = random.Random(0)  # noqa: S311 (no secret)
    problems = [draw_problem(rng) for _ in range(3000)]
    for problem in problems:
        assert problem.n * problem.k <= MAX_WEIGHTS
        for m in (draw_m(rng, problem) for _ in range(3)):
            assert 1 <= m <= MAX_M
            assert m * max(problem.n, problem.k) <= MAX_ELEMENTS
    kinds = {(p.group_size, p.dtype, p.zero, p.bias) for p in problems if not p.whole_k}
    assert len(kinds) == 3 * 2 * 2 * 2
    assert len({(p.dtype, p.zero, p.bias) for p in problems if p.whole_k}) == 8
    tails = [p.n % 64 != 0 for p in problems]
    assert 0.3 < sum(tails) / len(tails) < 0.9
    assert sum(p.n * p.k < 100_000 for p in problems) > 100
    assert sum(p.n * p.k > 20_000_000 for p in problems) > 300


def test_batches_are_small_just_off_a_tile_or_anything() -> None:
    rng = random.Random(0)  # noqa: S311 (no secret)
    small = Problem(64, 64, 64)
    counts = Counter(draw_m(rng, small) for _ in range(20_000))
    assert set(range(1, 66)) <= counts.keys()
    assert {127, 128, 129, 255, 256, 257, 4095, 4097} <= counts.keys()
    assert max(counts) > 4000
    assert sum(count for m, count in counts.items() if m <= 65) > 8000


@pytest.mark.parametrize("arch", [HOPPER, AMPERE], ids=lambda arch: arch.name)
def test_configs_are_legal_and_of_all_families(arch: ArchSpec) -> None:
    rounds = [draw_round(3, number, arch, FAMILIES) for number in range(4)]
    for drawn in rounds:
        for config in drawn.configs:
            assert violations(drawn.problem, config, arch) == []
            plan = FAMILIES[config.family].plan(drawn.problem, config, arch)
            assert plan.workspace_bytes(max(drawn.batches)) <= MAX_WORKSPACE_BYTES
        assert len(set(drawn.configs)) == len(drawn.configs)
    families = Counter(config.family for drawn in rounds for config in drawn.configs)
    assert families.keys() == ({"mma"} if arch is AMPERE else FAMILIES.keys())
    assert min(families.values()) > 10


def test_some_configs_are_not_among_the_candidates_of_any_batch() -> None:
    unoffered = offered = 0
    for number in range(3):
        drawn = draw_round(3, number, HOPPER, FAMILIES)
        found = {
            config
            for m in drawn.batches
            for config in FAMILIES["wgmma_tma"].candidates(drawn.problem, HOPPER, m)
        }
        tma = [config for config in drawn.configs if config.family == "wgmma_tma"]
        offered += sum(config in found for config in tma)
        unoffered += sum(config not in found for config in tma)
    assert offered > 0.4 * unoffered > 0


def test_a_round_depends_on_nothing_but_its_number_and_the_seed() -> None:
    families = search_fakes.families()
    forward = [draw_round(7, number, HOPPER, families) for number in range(20)]
    backward = [draw_round(7, number, HOPPER, families) for number in reversed(range(20))]
    assert forward == backward[::-1]
    assert len({drawn.problem for drawn in forward}) == 20
    assert draw_round(8, 0, HOPPER, families) != forward[0]


# ---- what is checked ----------------------------------------------------------------------------


MakeJob = Callable[..., tuple[ShapeJob, Path]]


@pytest.fixture
def soaked(tmp_path: Path) -> MakeJob:
    """Makes a job over fakes, and the file where its evaluator will log problem, M and config."""

    def make(name: str = "a", **fields: Any) -> tuple[ShapeJob, Path]:
        log = tmp_path / f"{name}.log"
        behaviour = fields.pop("behaviour", {})
        options = {"log": str(log), "behaviour": behaviour, **fields.pop("options", {})}
        job = ShapeJob(
            **{
                "cache_root": tmp_path,
                "seconds": 1e9,
                "rounds": 6,
                "families": search_fakes.families(),
                "evaluator": "shape_evaluator:create",
                "evaluator_options": options,
                "limits": search_fakes.PATIENT,
                "compile_workers": 1,
                "compile_handler": "search_fakes:make_compiler",
                "lock_folder": tmp_path,
                **fields,
            }
        )
        return job, log

    return make


def lines(log: Path) -> list[list[str]]:
    return [line.split(" ") for line in log.read_text().splitlines()]


def test_wrong_results_and_dead_workers_are_found_and_the_soak_goes_on(soaked: MakeJob) -> None:
    behaviour = {WRONG.key(): "wrong", KILLER.key(): "segv", STUCK.key(): "hang"}
    limits = replace(search_fakes.PATIENT, measure_s=2, shrunk_min_s=2)
    job, log = soaked(behaviour=behaviour, rounds=12, limits=limits)
    report = soak_shapes(job)
    found = {(each.config, each.status) for each in report.failures}
    assert found == {
        (WRONG, Status.WRONG),
        (KILLER, Status.CRASH),
        (STUCK, Status.HANG),
    }
    assert not report.passed
    assert report.restarts >= 2
    asked = lines(log)
    wrong = [each for each in report.failures if each.config == WRONG]
    told = [[each.problem.key(), str(each.m), each.config.key()] for each in wrong]
    assert told == [line for line in asked if line[2] == WRONG.key()]
    # A killer is not run at the other batches of its round; everything else comes after it.
    killers = Counter(line[0] for line in asked if line[2] == KILLER.key())
    assert set(killers.values()) == {1}
    first = next(place for place, line in enumerate(asked) if line[2] == KILLER.key())
    assert len(asked) - first > 30
    assert report.checks["mma", Status.OK] > 30


def test_a_reproducer_names_the_same_problem_batch_and_config(soaked: MakeJob) -> None:
    job, _ = soaked(behaviour={WRONG.key(): "wrong"}, rounds=8)
    failures = soak_shapes(job).failures
    assert failures
    for failure in failures:
        words = shlex.split(failure.reproduce)
        assert words[:2] == ["ptxtune", "one"]
        value = dict(itertools.pairwise(words))
        (problem,) = select_problems(
            n=int(value["--n"]),
            k=int(value["--k"]),
            group=int(value["--group"]),
            dtype=value["--dtype"],
            zero=value["--zero"],  # type: ignore[arg-type]
            bias="--bias" in words or None,
        ).problems
        assert problem == failure.problem
        assert int(value["--m"]) == failure.m
        assert read_config(value["--config"], "--config") == failure.config


@pytest.mark.deep
def test_the_same_seed_gives_the_same_checks_without_a_time(soaked: MakeJob) -> None:
    first, log = soaked("first", seed=5)
    again, other = soaked("again", seed=5)
    report = soak_shapes(first)
    soak_shapes(again)
    assert lines(log) == lines(other)
    assert len(lines(log)) > 20
    assert report.passed
    assert report.checks == {("mma", Status.OK): len(lines(log))}


def test_refusals_are_no_failures_but_alone_they_are_no_proof(soaked: MakeJob) -> None:
    job, log = soaked(families=search_fakes.families(mark="spills"))
    report = soak_shapes(job)
    assert report.failures == ()
    assert report.refused["mma", Status.SPILLED] > 5
    assert not log.exists()
    assert not report.passed


class Unemittable(FakeFamily):
    """Its emitter has a fault."""

    def emit(self, problem: Problem, config: KernelConfig, arch: ArchSpec) -> KernelSource:
        raise KeyError("warps")


def test_a_legal_config_that_cannot_be_emitted_or_compiled_is_a_failure(soaked: MakeJob) -> None:
    families = {"mma": Unemittable(search_fakes.SMALL)}
    for fields, status in (
        ({"families": families}, Status.INVALID),
        ({"families": search_fakes.families(mark="refused")}, Status.COMPILE_ERROR),
    ):
        job, _ = soaked(**fields)
        report = soak_shapes(job)
        assert {failure.status for failure in report.failures} == {status}
        assert report.total == 0


@pytest.mark.parametrize(
    ("outcome", "refused"),
    [
        (Outcome(Status.SPILLED, "spills 8 bytes"), True),
        (Outcome(Status.COMPILE_TIMEOUT, "not compiled within 60 s"), True),
        (Outcome(Status.COMPILE_ERROR, f"Potential Performance Loss: {SERIALIZED} due to"), True),
        (Outcome(Status.COMPILE_ERROR, "error: identifier undefined"), False),
        (Outcome(Status.INVALID, "the emitter failed"), False),
    ],
)
def test_what_the_search_expects_of_a_compiler(outcome: Outcome, refused: bool) -> None:
    assert is_refusal(outcome) is refused


def test_a_gpu_that_died_ends_the_soak(soaked: MakeJob, tmp_path: Path) -> None:
    job, _ = soaked(
        evaluator="search_fakes:create_dying",
        options={"starts": str(tmp_path / "starts")},
        behaviour={KILLER.key(): "segv"},
        rounds=1000,
    )
    report = soak_shapes(job)
    assert "does not work any more" in report.stopped
    assert [failure.config for failure in report.failures] == [KILLER]
    assert not report.passed


def test_it_waits_for_another_tuner_on_the_gpu_and_still_ends(
    soaked: MakeJob, tmp_path: Path
) -> None:
    told: list[str] = []
    job, log = soaked(seconds=1.5, clock=lambda: 2.0 * len(told))
    with GpuLock(search_fakes.DEVICE.uuid, tmp_path).held():
        report = soak_shapes(job, told.append)
    assert report.total == 0
    assert told == ["another tuning run measures on this GPU; waiting for it"]
    assert not log.exists()


def test_without_a_gpu_there_is_an_error_and_no_report(soaked: MakeJob) -> None:
    job, _ = soaked(evaluator="search_fakes:no_gpu")
    with pytest.raises(DriverError, match="no CUDA device"):
        soak_shapes(job)
