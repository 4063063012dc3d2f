"""Answer: the ladder against a reference that spells it out, and both kinds of staleness."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from itertools import product

import pytest
from db_samples import (
    A100,
    H100,
    H100_PCIE,
    H200,
    PROBLEM,
    SM90A,
    TOOLCHAIN,
    FakeConfig,
)
from hypothesis import given
from hypothesis import strategies as st

from db import query
from db.answer import choose
from db.records import PROTOCOL_VERSION, Answer, DeviceRecord, Level, Protocol, WinnerRecord
from ptxgen.arch import ARCHS
from ptxgen.errors import ProblemError
from ptxgen.families import FAMILIES
from ptxgen.families.mma import MMA
from ptxgen.problem import M_BUCKETS, bucket_of
from ptxgen.weights.layout import LAYOUT_VERSION

CONFIG = FakeConfig(16, False)
STORED = (1, 8, 64)


@pytest.fixture(autouse=True)
def _fake(family):
    """Every test here runs on the fake family."""


def winner(
    m: int,
    *,
    predicted: bool = False,
    device: DeviceRecord = H200,
    protocol: Protocol = Protocol.PLAIN,
    config: FakeConfig = CONFIG,
    **rest: object,
) -> WinnerRecord:
    digest = FAMILIES["fake"].emit(PROBLEM, config, SM90A).digest()
    values = {
        "trial_id": m,
        "device": device,
        "toolchain": TOOLCHAIN,
        "problem": PROBLEM,
        "m": m,
        "protocol": protocol,
        "config": config,
        "source_digest": digest,
        "time_us": 5.0,
        "spread": 0.01,
        "rel_err": 1e-4,
        "floor_us": 2.0,
        "default_us": 6.0,
        "cublas_us": 9.0,
        "predicted": predicted,
        "measured_at": datetime(2026, 1, 2, tzinfo=UTC),
    }
    return WinnerRecord(**(values | rest))


def always(config: FakeConfig, _resources: object, _m: int, _protocol: Protocol) -> float:
    """A model to which every winner here is twice as fast as any default."""
    return 1.0 if config == CONFIG else 2.0


def ask(winners, m: int = 8, **rest: object) -> Answer:
    values = {
        "problem": PROBLEM,
        "m": m,
        "device": H200,
        "protocol": Protocol.PLAIN,
        "toolchain": TOOLCHAIN,
        "arch": SM90A,
        "num_sms": 132,
        "model": always,
    }
    return choose(winners, **(values | rest))


def tiles(m: int) -> int:
    """Tiles of tokens of a kernel of the fake family, which takes 8 at a time."""
    return max(1, (m + 7) // 8)


def reference(kinds: dict[int, str], m: int) -> tuple[Level, int | None, bool]:
    """The ladder in words: kinds maps a stored M to "", "m", "p" or "mp"."""
    bucket = bucket_of(m)
    if kinds.get(bucket):
        return Level.EXACT, bucket, "m" not in kinds[bucket]
    for kind in "mp":
        found = [stored for stored in STORED if kind in kinds[stored]]
        up = [stored for stored in found if stored >= m]
        down = [stored for stored in found if stored < m and tiles(m) <= tiles(stored)]
        if up or down:
            return Level.NEAREST_BUCKET, min(up) if up else max(down), kind == "p"
    return Level.DEFAULT, None, False


def test_every_combination_of_stored_buckets_gives_the_reference_answer():
    for kinds_of in product(("", "m", "p", "mp"), repeat=len(STORED)):
        kinds = dict(zip(STORED, kinds_of, strict=True))
        winners = [winner(m) for m in STORED if "m" in kinds[m]]
        winners += [winner(m, predicted=True) for m in STORED if "p" in kinds[m]]
        for m in (0, 1, 2, 7, 8, 9, 40, 64, 65, 9000):
            answer = ask(winners, m)
            stored = answer.winner.m if answer.winner else None
            assert (answer.level, stored, answer.predicted) == reference(kinds, m), (kinds, m)


def test_the_default_of_a_chain_is_made_for_it():
    """Weights first, and one successor at a time; the order of sums stays the same."""
    plain, chained = (
        ask([], protocol=protocol, batch_invariant=True).config
        for protocol in (Protocol.PLAIN, Protocol.CHAINED)
    )
    assert chained == plain.chained() != plain
    assert MMA.summation_key(PROBLEM, chained) == MMA.summation_key(PROBLEM, plain)


@given(st.sets(st.sampled_from(M_BUCKETS)), st.integers(0, 20000))
def test_a_bucket_that_is_stored_is_exact_and_any_other_is_not(stored, m):
    answer = ask([winner(bucket) for bucket in sorted(stored)], m)
    serving = {bucket for bucket in stored if tiles(m) <= tiles(bucket)}
    assert (answer.level is Level.EXACT) == (bucket_of(m) in serving)
    assert (answer.level is Level.DEFAULT) == (not serving)


def test_an_exact_answer_is_complete():
    stored = winner(8)
    answer = ask([stored], 8)
    assert answer == Answer(
        level=Level.EXACT,
        problem=PROBLEM,
        m=8,
        config=CONFIG,
        winner=stored,
        predicted=False,
        message="measured for M = 8 on NVIDIA H200.",
    )
    assert answer.time_us == stored.time_us


@pytest.mark.parametrize(
    ("stored", "m", "level"),
    [(64, 8, Level.NEAREST_BUCKET), (1, 8, Level.NEAREST_BUCKET), (8, 5, Level.EXACT)],
)
def test_the_time_of_another_batch_is_not_the_answers(stored, m, level):
    answer = ask([winner(stored)], m)
    assert answer.level is level
    assert answer.time_us is None
    assert answer.differs == (f"M = {stored}, asked for {m}",)
    assert f"for M = {stored} on NVIDIA H200, 5 us in plain launches" in answer.message
    assert answer.differs[0] in answer.message


def test_a_batch_size_that_was_tuned_itself_goes_before_its_bucket():
    assert ask([winner(8), winner(7)], 7).winner.m == 7
    assert ask([winner(8), winner(7)], 6).winner.m == 8


def test_a_prediction_is_said_to_be_one():
    answer = ask([winner(8, predicted=True)])
    assert answer.predicted
    assert "predicted by the model, never run" in answer.message


def test_another_device_of_the_capability_is_the_rung_below():
    near = winner(8, device=replace(H100, num_sms=130))
    far = winner(8, device=H100_PCIE)
    answer = ask([far, near])
    assert (answer.level, answer.winner) == (Level.SAME_FAMILY, near)
    assert "H100" in answer.message
    assert answer.differs == ("NVIDIA H100 80GB HBM3, asked for NVIDIA H200",)
    assert answer.time_us is None
    assert ask([far, near, winner(1)]).level is Level.NEAREST_BUCKET


def test_another_capability_is_never_served():
    answer = ask([winner(8, device=A100)])
    assert answer.level is Level.DEFAULT
    assert "compute capability 8.0, now 9.0" in answer.message


def test_a_config_that_is_illegal_on_the_asked_arch_is_never_served():
    big = FakeConfig(200, False)
    ada, rtx = ARCHS["sm_89"], replace(H200, name="RTX 4090", capability="8.9", num_sms=128)
    digest = FAMILIES["fake"].emit(PROBLEM, CONFIG, ada).digest()
    legal = winner(8, device=replace(rtx, name="L40S", num_sms=142), source_digest=digest)
    answer = ask([replace(legal, config=big)], device=rtx, arch=ada)
    assert answer.level is Level.DEFAULT
    assert "tile 200 > 99" in answer.message
    assert ask([legal], device=rtx, arch=ada).level is Level.SAME_FAMILY


def test_nothing_stored_gives_the_families_default():
    assert ask([], num_sms=132).config == FakeConfig(1, True)
    assert ask([], num_sms=80).config == FakeConfig(1, False)
    answer = ask([])
    assert (answer.level, answer.winner, answer.predicted) == (Level.DEFAULT, None, False)
    assert "not tuned" in answer.message


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"source_digest": "0" * 64}, "another source"),
        ({"layout_version": LAYOUT_VERSION + 1}, "packed layout"),
        ({"toolchain": replace(TOOLCHAIN, nvrtc="12.9.1")}, "NVRTC 12.9.1, now 13.0.88"),
    ],
)
def test_a_hard_mismatch_is_never_served(change, reason):
    fresh, broken = winner(64), replace(winner(8), **change)
    answer = ask([broken, fresh])
    assert (answer.level, answer.winner) == (Level.NEAREST_BUCKET, fresh)
    assert reason in answer.message
    alone = ask([broken])
    assert alone.level is Level.DEFAULT
    assert reason in alone.message


def test_an_emitter_that_changed_makes_its_winners_unserved(family):
    stored = winner(8)
    family.emitter_version = 2
    assert ask([stored]).level is Level.DEFAULT


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"toolchain": replace(TOOLCHAIN, driver="560.0")}, "driver 560.0, now 580.1"),
        ({"toolchain": replace(TOOLCHAIN, nvrtc="13.1.2")}, "NVRTC 13.1.2, now 13.0.88"),
        ({"protocol_version": PROTOCOL_VERSION + 1}, f"version {PROTOCOL_VERSION + 1}, now"),
    ],
)
def test_a_soft_mismatch_is_served_with_its_reason(change, reason):
    stored = replace(winner(8), **change)
    answer = ask([stored])
    assert (answer.level, answer.winner) == (Level.EXACT, stored)
    assert len(answer.stale) == 1
    assert reason in answer.stale[0]


@pytest.mark.parametrize(
    ("won", "asked"), [(Protocol.PLAIN, Protocol.CHAINED), (Protocol.CHAINED, Protocol.PLAIN)]
)
def test_other_launches_are_neither_exact_nor_stale(won, asked):
    answer = ask([winner(8, protocol=won)], protocol=asked)
    assert (answer.level, answer.stale) == (Level.OTHER_PROTOCOL, ())
    assert answer.differs == (f"{won.value} launches, asked for {asked.value}",)
    assert answer.time_us is None
    both = ask([winner(64, protocol=won)], protocol=asked)
    assert both.level is Level.NEAREST_BUCKET
    assert len(both.differs) == 2


@pytest.mark.parametrize("field", ["driver", "nvrtc"])
def test_an_unknown_version_is_not_held_against_a_winner(field):
    unknown = replace(TOOLCHAIN, **{field: ""})
    assert ask([replace(winner(8), toolchain=unknown)]).stale == ()
    assert ask([winner(8)], toolchain=unknown).stale == ()


def test_the_asked_protocol_goes_first_but_measured_goes_before_it():
    plain, chained = winner(8), winner(8, protocol=Protocol.CHAINED)
    for protocol, expected in ((Protocol.PLAIN, plain), (Protocol.CHAINED, chained)):
        answer = ask([plain, chained], protocol=protocol)
        assert (answer.winner, answer.stale) == (expected, ())
    predicted = winner(8, predicted=True)
    assert ask([predicted, chained], protocol=Protocol.PLAIN).winner == chained


def test_a_long_list_of_refusals_is_cut():
    broken = [replace(winner(m), source_digest="0" * 64) for m in M_BUCKETS]
    message = ask(broken).message
    assert message.count("another source") == 3
    assert f"and {len(M_BUCKETS) - 3} more" in message


def test_a_batch_size_is_checked_by_the_query(database):
    with pytest.raises(ProblemError, match="M = -1"):
        query.best(database, PROBLEM, -1, H200, Protocol.PLAIN, toolchain=TOOLCHAIN, arch=SM90A)
