"""Serving another question: every stored subset of the buckets, against the rule in words."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from itertools import product

import pytest
from db_samples import H100, H200, PROBLEM, SM90A, TOOLCHAIN, FakeConfig, FakeFamily

from db import serving
from db.answer import choose
from db.records import Answer, Level, Protocol, WinnerRecord
from db.serving import GAIN
from ptxgen import families
from ptxgen.arch import ArchSpec
from ptxgen.config import KernelConfig
from ptxgen.problem import Problem, bucket_of
from ptxgen.source import LaunchPlan

BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
ASKED = (*BUCKETS, 3, 5, 11, 31, 40, 65, 100, 200, 300, 1000, 3000, 8000, 9000)
TILES = (1, 8, 16, 64, 128)


def tile_of(m: int) -> int:
    """Tokens that the fake kernels of a bucket take at a time: all of them, up to 128."""
    return min(bucket_of(m, BUCKETS), max(TILES))


class TiledFamily(FakeFamily):
    """The fake family with a tile of tokens for each config, and a default for each bucket."""

    def plan(self, problem: Problem, config: KernelConfig, arch: ArchSpec) -> LaunchPlan:
        assert isinstance(config, FakeConfig)
        return LaunchPlan(32, 0, config.tile, 64, 64, 1, False)

    def default_config(
        self, problem: Problem, arch: ArchSpec, m: int, num_sms: int
    ) -> KernelConfig:
        return FakeConfig(tile_of(m), True)


@pytest.fixture(autouse=True)
def _tiled(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = TiledFamily()
    monkeypatch.setitem(families.FAMILIES, fake.name, fake)
    monkeypatch.setattr(serving, "default_config", fake.default_config)


def seeded(text: str) -> random.Random:
    return random.Random(text)  # noqa: S311 (no secret)


@cache
def model(config: FakeConfig, _resources: object, m: int, protocol: Protocol) -> float:
    """Microseconds without rhyme or reason, the same at every call."""
    return seeded(f"{config.key()} {m} {protocol}").uniform(5.0, 10.0)


def winner(m: int, seed: int = 0, **rest: object) -> WinnerRecord:
    """Of a random tile; measured, and faster than its default, if nothing else is said."""
    config = FakeConfig(seeded(f"{m} {seed}").choice(TILES), False)
    values = {
        "trial_id": m,
        "device": H200,
        "toolchain": TOOLCHAIN,
        "problem": PROBLEM,
        "m": m,
        "protocol": Protocol.PLAIN,
        "config": config,
        "source_digest": TiledFamily().emit(PROBLEM, config, SM90A).digest(),
        "time_us": 4.0,
        "spread": None,
        "rel_err": None,
        "floor_us": None,
        "default_us": 5.0,
        "cublas_us": None,
        "predicted": False,
        "measured_at": datetime(2026, 1, 2, tzinfo=UTC),
    }
    return WinnerRecord(**(values | rest))


def ask(winners: list[WinnerRecord], m: int, **rest: object) -> Answer:
    values = {
        "problem": PROBLEM,
        "m": m,
        "device": H200,
        "protocol": Protocol.PLAIN,
        "toolchain": TOOLCHAIN,
        "arch": SM90A,
        "num_sms": 132,
        "buckets": BUCKETS,
        "model": model,
    }
    return choose(winners, **(values | rest))


def tiles(config: FakeConfig, m: int) -> int:
    return (m + config.tile - 1) // config.tile


def may_serve(item: WinnerRecord, m: int) -> bool:
    """The rule for winners of this GPU and protocol, in words."""
    if item.m == m:
        return True
    ours, theirs = tiles(item.config, m), tiles(item.config, item.m)
    if m > item.m and ours > theirs:
        return False
    default = FakeConfig(tile_of(m), True)
    same_default = tile_of(m) == tile_of(item.m) and tiles(default, m) == tiles(default, item.m)
    same_work = ours == theirs and same_default
    if same_work and not item.predicted:
        return True
    share = model(item.config, None, m, Protocol.PLAIN) / model(default, None, m, Protocol.PLAIN)
    return share <= (1.0 if same_work else GAIN)


def nearest(m: int) -> list[int]:
    """Buckets in the order in which they answer: m's own, then up, then down."""
    own = bucket_of(m, BUCKETS)
    others = [bucket for bucket in BUCKETS if bucket != own]
    up = [bucket for bucket in others if bucket >= m]
    return [own, *up, *reversed([bucket for bucket in others if bucket < m])]


def check(answer: Answer, m: int) -> None:
    """What holds of every answer, however it was found."""
    default = FakeConfig(tile_of(m), True)
    if answer.winner is None:
        assert answer.config == default
        return
    assert (answer.time_us is None) == (answer.winner.m != m)
    if answer.winner.m == m:
        return
    assert not (
        answer.winner.m < m and tiles(answer.config, m) > tiles(answer.config, answer.winner.m)
    )
    measured = may_serve(replace(answer.winner, predicted=False), m) and not answer.predicted
    faster = model(answer.config, None, m, Protocol.PLAIN) <= model(
        default, None, m, Protocol.PLAIN
    )
    assert measured or faster


STORED = {
    predicted: {m: winner(m, predicted=predicted) for m in BUCKETS} for predicted in (False, True)
}


def expected(stored: set[int], m: int, allowed: dict[int, bool]) -> int | None:
    return next((bucket for bucket in nearest(m) if bucket in stored and allowed[bucket]), None)


def every_subset(predicted: bool, asked_of: dict[int, tuple[int, ...]]) -> int:
    """Asks of each subset the given Ms; returns how many answers were no winner of the M itself."""
    pool = STORED[predicted]
    allowed = {m: {s: may_serve(pool[s], m) for s in BUCKETS} for m in ASKED}
    elsewhere = 0
    for chosen, asked in asked_of.items():
        stored = {bucket for place, bucket in enumerate(BUCKETS) if chosen >> place & 1}
        winners = [pool[bucket] for bucket in stored]
        for m in asked:
            answer = ask(winners, m)
            check(answer, m)
            found = answer.winner.m if answer.winner else None
            assert found == expected(stored, m, allowed[m]), (sorted(stored), m)
            elsewhere += found is not None and found != m
    return elsewhere


@pytest.mark.parametrize("predicted", [False, True])
def test_every_subset_of_the_buckets_is_asked_one_batch_in_turn(predicted: bool) -> None:
    """A winner may serve or may not whatever else is stored, so each pair stands for all subsets
    that hold it; that it does is asked of every subset, of one M after the other."""
    turns = {chosen: (ASKED[chosen % len(ASKED)],) for chosen in range(1 << len(BUCKETS))}
    assert every_subset(predicted, turns) > 1000


@pytest.mark.deep
@pytest.mark.parametrize("predicted", [False, True])
def test_every_subset_of_the_buckets_is_asked_every_batch(predicted: bool) -> None:
    turns = dict.fromkeys(range(1 << len(BUCKETS)), ASKED)
    assert every_subset(predicted, turns) > 1000


def test_every_pair_and_every_kind_of_winner_keeps_the_rule() -> None:
    refused = served = 0
    for seed, stored, m, predicted in product(range(10), BUCKETS, ASKED, (False, True)):
        item = winner(stored, seed, predicted=predicted)
        answer = ask([item], m)
        check(answer, m)
        assert (answer.level is not Level.DEFAULT) == may_serve(item, m), (item, m)
        refused += answer.level is Level.DEFAULT
        served += answer.level is Level.NEAREST_BUCKET
    assert min(refused, served) > 500


def flat(share: float):
    """A model by which every winner takes that share of every default's time."""

    def predicted(config: FakeConfig, *_: object) -> float:
        return 10.0 if config.split else 10.0 * share

    return predicted


@pytest.mark.parametrize(("share", "served"), [(GAIN, True), (0.97, False), (1.0, False)])
def test_a_gain_within_the_models_error_is_none(share: float, served: bool) -> None:
    answer = ask([winner(1024, predicted=True)], 64, model=flat(share))
    assert (answer.level is Level.NEAREST_BUCKET) == served
    assert served or "M = 1024 on NVIDIA H200 (by the model less than 5% faster" in answer.message


def test_a_winner_slower_than_its_default_is_no_evidence() -> None:
    item = replace(winner(128), config=FakeConfig(128, False))
    item = replace(item, source_digest=TiledFamily().emit(PROBLEM, item.config, SM90A).digest())
    assert ask([item], 100, model=flat(2.0)).level is Level.EXACT
    assert ask([replace(item, default_us=3.9)], 100, model=flat(2.0)).level is Level.DEFAULT


def test_the_slower_of_guessed_and_real_registers_counts() -> None:
    item = winner(1024, resources=TiledFamily)  # any value: the model is told of it
    models = (
        lambda config, known, *_: 10.0 if config.split else 5.0 if known else 11.0,
        lambda config, known, *_: 10.0 if config.split else 11.0 if known else 5.0,
    )
    for either in models:
        answer = ask([item], 64, model=either)
        assert answer.level is Level.DEFAULT
        assert "by the model 10% slower than the default" in answer.message


@pytest.mark.parametrize("protocol", Protocol)
def test_other_launches_serve_only_where_they_beat_the_default(protocol: Protocol) -> None:
    other = next(item for item in Protocol if item is not protocol)
    item = winner(8, protocol=other)
    assert ask([item], 8, protocol=protocol, model=flat(0.97)).level is Level.DEFAULT
    assert ask([item], 8, protocol=protocol, model=flat(0.9)).level is Level.OTHER_PROTOCOL


def test_another_gpu_serves_by_a_clear_measurement_that_the_model_does_not_contradict() -> None:
    item = winner(8, device=H100)
    assert ask([item], 8, model=flat(1.0)).level is Level.SAME_FAMILY
    assert ask([item], 8, model=flat(1.01)).level is Level.DEFAULT
    narrow = replace(item, default_us=4.1)
    assert ask([narrow], 8, model=flat(1.0)).level is Level.DEFAULT
    assert ask([narrow], 8, model=flat(0.9)).level is Level.SAME_FAMILY


def test_without_a_model_only_what_was_measured_at_the_same_work_serves() -> None:
    item = replace(winner(128), config=FakeConfig(128, False))
    item = replace(item, source_digest=TiledFamily().emit(PROBLEM, item.config, SM90A).digest())
    assert ask([item], 100, model=None).level is Level.EXACT
    assert ask([item], 64, model=None).level is Level.DEFAULT
    assert ask([replace(item, predicted=True)], 100, model=None).level is Level.DEFAULT
