"""What becomes a time and what becomes NOISY; evidence and proof as JSON."""

from __future__ import annotations

import json

import pytest
from fake_gpu import LIMITS, reading

from db.records import DeviceRecord
from ptxgen.arch import gpu_named
from ptxgen.bootstrap import Interval
from ptxgen.evidence import Evidence, GpuLimits, GpuReading
from ptxgen.outcome import Outcome, Status
from ptxgen.problem import Problem
from ptxgen.proof import Proof
from ptxgen.timing import Timing
from search.messages import MessageError, outcome_from_dict, outcome_to_dict
from search.model import floor_us, least_us
from search.timed import timed_outcome

EVIDENCE = Evidence.of(
    reading(),
    reading(1400, ("sw_power_cap",), 690.5, (12,)),
    LIMITS,
    ["the GPU was throttled (hw_slowdown)"],
)
NOTHING = Evidence.of(GpuReading(), GpuReading(), GpuLimits())
CHECKED = Outcome(Status.OK, floor_us=6.0, rel_err=1e-4)
LEAST_US = 5.0
PROOF = Proof(11, Interval(5.0, 4.9, 5.1, 11), 6.0, 9.0, None, Interval(1.2, 1.1, 1.3, 11))


def test_a_good_measurement_keeps_samples_and_evidence() -> None:
    outcome = timed_outcome(CHECKED, Timing.of([6.0, 5.5, 6.5]), EVIDENCE, "", LEAST_US)
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
        (3.99, "faster than 80% of the 5.00 us that memory and tensor cores need"),
    ],
)
def test_an_impossible_time_is_noisy_and_no_time(time_us: float, reason: str) -> None:
    outcome = timed_outcome(CHECKED, Timing.of([time_us] * 3), NOTHING, "", LEAST_US)
    assert (outcome.status, outcome.time_us) == (Status.NOISY, None)
    assert reason in outcome.message


def test_on_the_edge_is_possible() -> None:
    outcome = timed_outcome(CHECKED, Timing.of([4.0]), NOTHING, "", LEAST_US)
    assert outcome.status is Status.OK


def test_a_cool_gpu_may_pass_the_floor_which_is_a_sustained_rate() -> None:
    """Measured on an H200: 590 us for 28672 x 4096 at M = 2,048, whose floor was 742 us."""
    problem, h200 = Problem(28672, 4096), gpu_named("h200")
    device = DeviceRecord(
        "NVIDIA H200", "9.0", 132, 232448, 60 << 20, read_gbps=4529.0, tensor_tflops=648.0
    )
    floor = floor_us(problem, 2048, device.read_gbps, device.tensor_tflops)
    least = least_us(problem, 2048, device, 1980)
    assert floor == pytest.approx(742, abs=1)
    assert least == pytest.approx(2 * 2048 * 28672 * 4096 / (989.4e6 * 1980 / 1830), rel=1e-3)
    assert h200.num_sms == device.num_sms
    checked = Outcome(Status.OK, floor_us=floor)
    for time_us, status in ((590.4, Status.OK), (0.79 * least, Status.NOISY)):
        outcome = timed_outcome(checked, Timing.of([time_us]), NOTHING, "", least)
        assert outcome.status is status


@pytest.mark.parametrize(
    ("gpu", "sms", "mhz", "tflops"),
    [  # dense fp16 of the datasheets
        ("a100", 108, 1410, 311.9),
        ("rtx3090", 82, 1695, 142.3),
        ("rtx4090", 128, 2520, 330.3),
        ("h100", 132, 1830, 989.4),
        ("h100-pcie", 114, 1755, 819.5),
    ],
)
def test_the_peak_is_the_datasheets(gpu: str, sms: int, mhz: int, tflops: float) -> None:
    spec = gpu_named(gpu)
    major, minor = spec.spec.capability
    device = DeviceRecord(gpu, f"{major}.{minor}", sms, 0, 0)
    problem = Problem(8192, 8192)
    expected = problem.flops(8192) / (tflops * 1e6)
    assert least_us(problem, 8192, device, mhz) == pytest.approx(expected, rel=2e-3)
    assert least_us(problem, 8192, device, None) < expected
    assert spec.num_sms == sms


def test_at_decode_reading_bounds() -> None:
    problem = Problem(8192, 8192)
    device = DeviceRecord("x", "8.0", 108, 0, 0, read_gbps=1000.0)
    assert least_us(problem, 1, device, None) == problem.bytes_moved(1) / 1e6


def test_a_throttled_measurement_is_noisy_with_its_reason() -> None:
    fault = "the GPU was throttled (x)"
    outcome = timed_outcome(CHECKED, Timing.of([6.0]), EVIDENCE, fault, LEAST_US)
    assert (outcome.status, outcome.time_us) == (Status.NOISY, None)
    assert outcome.message == "the GPU was throttled (x)"


def test_a_wrong_result_stays_wrong_however_it_was_timed() -> None:
    checked = Outcome(Status.WRONG, "relative error 0.5", floor_us=5.0)
    for samples, fault in (([6.0], ""), ([1.0], ""), ([6.0], "throttled")):
        outcome = timed_outcome(checked, Timing.of(samples), NOTHING, fault, LEAST_US)
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
