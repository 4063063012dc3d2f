"""What becomes a time and what becomes NOISY; evidence and proof as JSON."""

from __future__ import annotations

import json

import pytest
from fake_gpu import LIMITS, reading

from ptxgen.bootstrap import Interval
from ptxgen.evidence import Evidence, GpuLimits, GpuReading
from ptxgen.outcome import Outcome, Status
from ptxgen.proof import Proof
from ptxgen.timing import Timing
from search.messages import MessageError, outcome_from_dict, outcome_to_dict
from search.timed import timed_outcome

EVIDENCE = Evidence.of(
    reading(),
    reading(1400, ("sw_power_cap",), 690.5, (12,)),
    LIMITS,
    ["the GPU was throttled (hw_slowdown)"],
)
NOTHING = Evidence.of(GpuReading(), GpuReading(), GpuLimits())
CHECKED = Outcome(Status.OK, floor_us=5.0, rel_err=1e-4)
PROOF = Proof(11, Interval(5.0, 4.9, 5.1, 11), 6.0, 9.0, None, Interval(1.2, 1.1, 1.3, 11))


def test_a_good_measurement_keeps_samples_and_evidence() -> None:
    outcome = timed_outcome(CHECKED, Timing.of([6.0, 5.5, 6.5]), EVIDENCE, "")
    assert (outcome.status, outcome.time_us) == (Status.OK, 6.0)
    assert outcome.samples_us == (6.0, 5.5, 6.5)
    assert outcome.evidence == EVIDENCE
    assert outcome.clock_mhz == 1400
    assert outcome.rel_err == 1e-4


@pytest.mark.parametrize(
    ("time_us", "reason"),
    [
        (0.0, "not a positive number"),
        (-1.0, "not a positive number"),
        (float("nan"), "not a positive number"),
        (float("inf"), "not a positive number"),
        (3.99, "faster than 80% of the floor of 5.00 us"),
    ],
)
def test_an_impossible_time_is_noisy_and_no_time(time_us: float, reason: str) -> None:
    outcome = timed_outcome(CHECKED, Timing.of([time_us] * 3), NOTHING, "")
    assert (outcome.status, outcome.time_us) == (Status.NOISY, None)
    assert reason in outcome.message


def test_on_the_floor_is_possible() -> None:
    assert timed_outcome(CHECKED, Timing.of([4.0]), NOTHING, "").status is Status.OK


def test_a_throttled_measurement_is_noisy_with_its_reason() -> None:
    outcome = timed_outcome(CHECKED, Timing.of([6.0]), EVIDENCE, "the GPU was throttled (x)")
    assert (outcome.status, outcome.time_us) == (Status.NOISY, None)
    assert outcome.message == "the GPU was throttled (x)"


def test_a_wrong_result_stays_wrong_however_it_was_timed() -> None:
    checked = Outcome(Status.WRONG, "relative error 0.5", floor_us=5.0)
    for samples, fault in (([6.0], ""), ([1.0], ""), ([6.0], "throttled")):
        outcome = timed_outcome(checked, Timing.of(samples), NOTHING, fault)
        assert (outcome.status, outcome.time_us) == (Status.WRONG, None)
        assert outcome.message == "relative error 0.5"


@pytest.mark.parametrize("evidence", [EVIDENCE, NOTHING, Evidence.over([EVIDENCE, NOTHING]), None])
def test_evidence_crosses_the_pipe_as_json(evidence: Evidence | None) -> None:
    outcome = Outcome(Status.OK, time_us=6.0, samples_us=(6.0,), evidence=evidence)
    text = json.dumps(outcome_to_dict(outcome), allow_nan=False)
    assert outcome_from_dict(json.loads(text)) == outcome


@pytest.mark.parametrize(
    "change",
    [
        {"state": "lukewarm"},
        {"before": None},
        {"before": {"sm_mhz": "fast"}},
        {"after": {"throttle": "hw_slowdown"}},
        {"after": {"other_pids": ["me"]}},
        {"after": {"unknown": 1}},
        {"lowest_sm_mhz": "slow"},
        {"dropped": [1]},
        {"more": 1},
    ],
)
def test_evidence_of_a_broken_worker_is_refused(change: dict[str, object]) -> None:
    data = outcome_to_dict(Outcome(Status.OK, time_us=6.0, evidence=EVIDENCE))
    data["evidence"] = data["evidence"] | change
    with pytest.raises(MessageError, match="not an outcome"):
        outcome_from_dict(data)


def test_a_proof_survives_json() -> None:
    assert Proof.from_dict(json.loads(json.dumps(PROOF.to_dict(), allow_nan=False))) == PROOF


@pytest.mark.parametrize(
    "change",
    [
        {"rounds": -1},
        {"rounds": 1.5},
        {"time_us": None},
        {"time_us": {"median": 1.0}},
        {"over_default": {"median": "x", "low": 1.0, "high": 1.0, "count": 1}},
        {"default_us": float("nan")},
        {"more": 1},
    ],
)
def test_a_damaged_proof_is_refused(change: dict[str, object]) -> None:
    with pytest.raises((TypeError, KeyError, ValueError)):
        Proof.from_dict(PROOF.to_dict() | change)
