"""The console's side of trust: neighbours on the GPU, --strict, intervals, conditions, pins."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from db.records import Protocol, ToolchainRecord
from ptxgen import env
from ptxgen.bootstrap import Interval
from ptxgen.evidence import Evidence, GpuLimits, GpuReading
from ptxgen.families import default_config
from ptxgen.outcome import Outcome, Status
from ptxgen.problem import Problem
from ptxgen.proof import Proof
from ptxtune.detect import DetectedGpu, Detection
from ptxtune.neighbours import BusyGpuError, check_neighbours
from ptxtune.outcomes import outcome_document, outcome_text
from ptxtune.summary import summary_document, summary_text
from ptxtune.target import resolve_target
from ptxtune.tuning import make_job
from search.events import Task, TaskEnded
from search.job import TuneSummary

H200 = DetectedGpu(0, "NVIDIA H200", (9, 0), "580.95", "GPU-aaaa-1", 150 << 30, 140 << 30, 700, 132)
PROBLEM = Problem(4096, 4096)
TARGET = resolve_target(None, Detection((H200,)))
CONFIG = default_config(PROBLEM, TARGET.arch, 8, 132)
HOT = GpuReading(1485, 3201, ("sw_power_cap",), 64, 690.4, (4711,))
EVIDENCE = Evidence.of(HOT, HOT, GpuLimits(1980, 700))
PROOF = Proof(11, Interval(5.0, 4.9, 5.1, 11), 6.0, 10.0, None, Interval(1.2, 1.15, 1.25, 11), None)


def summary(**changes: object) -> TuneSummary:
    task = TaskEnded(
        Task(PROBLEM, 8, Protocol.PLAIN), CONFIG, 5.0, 6.0, 10.0, 2.5,
        proof=PROOF, evidence=EVIDENCE, ties=(CONFIG,),
    )  # fmt: skip
    toolchain = ToolchainRecord("580.95", "13.5", "0.1.0", "2.11")
    return TuneSummary(7, TARGET.device, toolchain, (replace(task, **changes),))


def test_other_processes_are_warned_of_and_strict_refuses_them() -> None:
    busy = resolve_target(None, Detection((replace(H200, compute_pids=(12, 4711)),)))
    assert "2 other processes (12, 4711)" in check_neighbours(busy, strict=False)
    with pytest.raises(BusyGpuError, match=r"2 other processes \(12, 4711\).*--device"):
        check_neighbours(busy, strict=True)
    for free in (TARGET, resolve_target("a100", Detection((H200,)))):
        assert check_neighbours(free, strict=True) == ""


@pytest.mark.parametrize("strict", [False, True])
def test_strict_reaches_the_evaluator(strict: bool) -> None:
    job = make_job([PROBLEM], [8], target=TARGET, strict=strict)
    assert job.evaluator_options["strict"] is strict


def test_the_summary_shows_interval_ratio_and_conditions() -> None:
    text = summary_text(summary(), {})
    for words in ("4.900 to 5.100", "1.20x (1.150 to 1.250)", "sustained", "1485 of 1980", "4711"):
        assert words in text
    bare = summary_text(summary(proof=None, evidence=None, ties=()), {})
    assert "interval" not in bare
    assert "SM clock" not in bare


def test_the_summary_as_json_has_proof_and_evidence() -> None:
    document = json.loads(json.dumps(summary_document(summary()), allow_nan=False))
    (result,) = document["results"]
    assert Proof.from_dict(result["proof"]) == PROOF
    assert Evidence.from_dict(result["evidence"]) == EVIDENCE
    assert result["ties"] == [CONFIG.to_dict()]


def test_a_pinned_config_is_shown_with_the_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    assert summary_document(summary())["pinned"] is None
    pin = json.dumps(CONFIG.to_dict())
    monkeypatch.setenv(env.PIN.name, pin)
    assert f"Pinned by PTXTUNE_PIN, and served before these winners: {pin}" in summary_text(
        summary(), {}
    )
    assert summary_document(summary())["pinned"] == pin


def test_one_config_alone_shows_its_conditions() -> None:
    outcome = Outcome(Status.OK, time_us=5.0, evidence=EVIDENCE)
    text = outcome_text(outcome)
    assert "state sustained, lowest SM clock 1485 of 1980" in text
    assert "other processes 4711" in text
    document = outcome_document(PROBLEM, 8, "plain", CONFIG, outcome)
    assert Evidence.from_dict(document["evidence"]) == EVIDENCE
    assert outcome_document(PROBLEM, 8, "plain", CONFIG, Outcome(Status.HANG))["evidence"] is None
