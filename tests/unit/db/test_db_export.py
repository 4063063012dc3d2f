"""Export rows: winners and their baselines, flat, with provenance."""

from __future__ import annotations

import json

from db_samples import EVIDENCE, H100_PCIE, PROBLEM, FakeConfig, ok

from db import query
from db.export_rows import export_rows, to_json_lines
from db.records import PROTOCOL_VERSION, Protocol
from ptxgen.bootstrap import Interval
from ptxgen.outcome import Outcome, Status
from ptxgen.problem import Problem
from ptxgen.proof import Proof


def test_a_winner_and_its_baseline_are_two_rows(writer, store, database):
    writer.baseline(9.5)
    writer.baseline(9.0)
    writer.baseline(1.0, m=64)
    best = ok(5.0, spread=0.02, rel_err=2e-4, floor_us=2.5, clock_mhz=1830, evidence=EVIDENCE)
    proof = Proof(11, Interval(5.0, 4.9, 5.1, 11), 6.0, 9.0)
    trial_id = writer.trial(best, config=FakeConfig(16, True))
    store.set_winner(trial_id, cublas_us=9.0, ties=[FakeConfig(8, True)], proof=proof)
    ours, cublas = export_rows(database)
    shared = {
        "device": "NVIDIA H200",
        "driver": "580.1",
        "nvrtc": "13.0.88",
        "commit": "abc123",
        "date": query.trial(database, trial_id).ended_at.date().isoformat(),
        "protocol": "plain",
        "protocol_version": PROTOCOL_VERSION,
        "dtype": "fp16",
        "zero": "sym",
        "bias": False,
        "group": 128,
        "n": 4096,
        "k": 4096,
        "m": 8,
        "predicted": False,
    }
    assert ours == shared | {
        "contender": "ptxtune",
        "time_us": 5.0,
        "spread": 0.02,
        "floor_us": 2.5,
        "rel_err": 2e-4,
        "config": {"family": "fake", "tile": 16, "split": True},
        "clock_mhz": 1830,
        "state": "sustained",
        "throttle": ["sw_power_cap"],
        "other_processes": 1,
        "proof": proof.to_dict(),
        "ties": [{"family": "fake", "tile": 8, "split": True}],
    }
    assert cublas == shared | {
        "contender": "cublas",
        "time_us": 9.0,
        "spread": 0.01,
        "floor_us": None,
        "rel_err": None,
        "config": None,
        "clock_mhz": None,
        "state": None,
        "throttle": None,
        "other_processes": None,
    }


def test_a_baseline_of_another_run_or_that_failed_is_no_row(writer, store, database):
    writer.baseline(9.0)
    failed = store.start_trial(
        writer.run(H100_PCIE), PROBLEM, 8, Protocol.PLAIN, contender="cublas"
    )
    store.end_trial(failed, Outcome(Status.NOISY, "unstable"))
    store.set_winner(writer.trial(ok(5.0), device=H100_PCIE))
    assert [row["contender"] for row in export_rows(database)] == ["ptxtune"]


def test_predicted_rows_are_asked_for_and_marked(writer, store, database):
    store.set_winner(writer.trial(Outcome(Status.PREDICTED, time_us=3.0)))
    assert export_rows(database) == []
    (row,) = export_rows(database, predicted=True)
    assert (row["predicted"], row["time_us"]) == (True, 3.0)


def test_rows_can_be_narrowed(writer, store, database):
    other = Problem(64, 64, group_size=64)
    for variant in ({}, {"problem": other}, {"protocol": Protocol.CHAINED}, {"device": H100_PCIE}):
        store.set_winner(writer.trial(ok(5.0), **variant))
    assert len(export_rows(database)) == 4
    assert [row["n"] for row in export_rows(database, problem=other)] == [64]
    assert len(export_rows(database, protocol=Protocol.CHAINED)) == 1
    assert [row["device"] for row in export_rows(database, device=H100_PCIE)] == [H100_PCIE.name]


def test_lines_are_json_objects(writer, store, database):
    for m in (1, 8):
        store.set_winner(writer.trial(ok(float(m)), m=m))
    text = to_json_lines(export_rows(database))
    assert text.endswith("\n")
    assert [json.loads(line) for line in text.splitlines()] == export_rows(database)
    assert to_json_lines([]) == ""
