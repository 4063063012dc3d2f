"""What lets a reader doubt a report: intervals, ties, conditions, failures, pinned configs."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace

import pytest

from ptxgen.evidence import Evidence, GpuLimits, GpuReading
from ptxgen.outcome import Outcome, Resources, Status
from ptxgen.proof import Proof
from reports.conditions import conditions_table, conditions_text
from reports.data import ReportData
from reports.document import render_markdown, report_document, winner_document
from reports.failures import failure_table, failures
from reports.finals import finals_table
from reports.page import render_page
from reports.table import Table


def first_row(table: Table) -> dict[str, str]:
    return dict(zip([column.title for column in table.columns], table.rows[0], strict=True))


def test_finals_show_interval_ratios_and_ties(measured: ReportData) -> None:
    row = first_row(finals_table(measured))
    assert (row["layer"], row["M"]) == ("qkv, 6144 x 4096", "1")
    winner = measured.ordered_winners()[0]
    assert winner.proof is not None
    low, high = (float(part) for part in row["95 % interval"].split(" to "))
    assert low == pytest.approx(winner.proof.time_us.low, rel=1e-3)
    assert high == pytest.approx(winner.proof.time_us.high, rel=1e-3)
    assert row["over default"] == "1.25x (1.125 to 1.375)"
    assert row["over cuBLAS"] == "2.50x (2.400 to 2.600)"
    assert row["over previous winner"] == "-"
    assert row["rounds"] == "11"
    assert row["ties with"] == "toy bm8 so:wei"  # the winner itself is not listed
    assert len(finals_table(measured).rows) == len(measured.winners)


def test_finals_that_were_no_rounds_say_so(measured: ReportData) -> None:
    winner = measured.winners[0]
    assert winner.proof is not None
    alone = replace(winner, proof=replace(winner.proof, rounds=0, over_default=None))
    row = first_row(finals_table(replace(measured, winners=(alone,))))
    assert (row["rounds"], row["over default"]) == ("one by one", "-")


def test_conditions_show_clock_state_limits_and_neighbours(measured: ReportData) -> None:
    row = first_row(conditions_table(measured))
    assert row["state"] == "sustained"
    assert row["lowest SM clock"] == "1485 of 1980"
    assert row["memory clock"] == "3201"
    assert row["temperature"] == "64"
    assert row["power"] == "690 of 700"
    assert row["clock limited by"] == "gpu_idle, sw_power_cap"
    assert row["other processes"] == "815, 4711"
    assert row["sample sets dropped"] == "1"


def test_conditions_without_nvml_are_not_called_clean(measured: ReportData) -> None:
    nothing = Evidence.of(GpuReading(), GpuReading(), GpuLimits())
    winner = replace(measured.winners[0], evidence=nothing)
    row = first_row(conditions_table(replace(measured, winners=(winner,))))
    assert row["state"] == "unknown"
    assert row["lowest SM clock"] == "-"
    assert row["clock limited by"] == row["other processes"] == "not visible"


def test_provenance_counts_states_and_names_who_else_was_there(measured: ReportData) -> None:
    text = conditions_text(measured)
    timed = sum(trial.outcome.evidence is not None for trial in measured.trials)
    assert f"{timed} timed trials: {timed} sustained" in text
    assert f"{timed} with sw_power_cap" in text
    assert f"{timed} sample sets dropped and repeated" in text
    assert f"other processes computed on the GPU during {timed} of them (815, 4711)" in text
    assert conditions_text(replace(measured, trials=())) == "no GPU readings"


def test_a_gpu_that_was_ours_alone_is_said_to_be(measured: ReportData) -> None:
    calm = GpuReading(1980, 3201, (), 40, 120.0, ())
    outcome = Outcome(Status.OK, time_us=1.0, evidence=Evidence.of(calm, calm, GpuLimits(1980)))
    (trial, *_) = measured.trials
    text = conditions_text(replace(measured, trials=(replace(trial, outcome=outcome),)))
    assert "1 cool" in text
    assert "no other process computed on the GPU" in text


def test_the_ledger_names_the_worst_of_each_class_and_how_to_repeat_it(
    measured: ReportData,
) -> None:
    (trial, *_) = measured.trials
    trials = [
        replace(trial, id=1, outcome=Outcome(Status.WRONG, "small", rel_err=0.1)),
        replace(trial, id=2, outcome=Outcome(Status.WRONG, "nan", rel_err=float("nan"))),
        replace(trial, id=3, outcome=Outcome(Status.WRONG, "large", rel_err=9.0)),
        replace(trial, id=4, outcome=Outcome(Status.SPILLED, "8", resources=Resources(255, 8, 0))),
        replace(
            trial, id=5, outcome=Outcome(Status.SPILLED, "64", resources=Resources(255, 64, 0))
        ),
        replace(trial, id=6, outcome=Outcome(Status.OK, time_us=1.0)),
        replace(trial, id=7, outcome=Outcome(Status.STARTED)),
    ]
    trials = [replace(item, source_digest=str(item.id)) for item in trials]
    found = failures(replace(measured, trials=tuple(trials)))
    assert [(item["status"], item["count"], item["trial_id"]) for item in found] == [
        ("spilled", 2, 5),
        ("wrong", 3, 2),
    ]
    words = shlex.split(found[1]["reproduce"])
    assert words[:2] == ["ptxtune", "one"]
    assert json.loads(words[words.index("--config") + 1]) == trial.config.to_dict()
    assert words[words.index("--m") + 1] == str(trial.m)


def test_a_long_log_is_cut_in_the_table_and_whole_in_the_document(measured: ReportData) -> None:
    (trial, *_) = measured.trials
    log = "line\n" * 500
    data = replace(measured, trials=(replace(trial, outcome=Outcome(Status.COMPILE_ERROR, log)),))
    (row,) = failure_table(data).rows
    assert len(row[3]) <= 120
    assert "\n" not in row[3]
    assert report_document(data)["failures"][0]["message"] == log


def test_every_form_of_the_report_has_all_of_it(measured: ReportData) -> None:
    page, text = render_page(measured), render_markdown(measured)
    for title in ("Finals", "Conditions", "Failures"):
        assert f"<h2>{title}</h2>" in page
        assert f"## {title}" in text
    for words in ("sustained", "1485 of 1980", "815, 4711", "ptxtune one --n 6144", "1.25x (1.125"):
        assert words in page
        assert words in text
    document = json.loads(json.dumps(report_document(measured), allow_nan=False))
    winner = measured.winners[0]
    assert Proof.from_dict(document["winners"][0]["proof"]) == winner.proof
    assert Evidence.from_dict(document["winners"][0]["evidence"]) == winner.evidence
    assert {item["status"] for item in document["failures"]} == {"compile_error", "wrong", "crash"}


def test_a_pinned_config_is_in_every_report(measured: ReportData) -> None:
    pin = '{"family": "toy", "block_m": 8} <b>'
    pinned = replace(measured, pinned=pin)
    page = render_page(pinned)
    assert "Pinned:" in page
    assert "&lt;b&gt;" in page
    assert "<b>{" not in page
    assert f"**Pinned:** {pin} (by PTXTUNE_PIN)" in render_markdown(pinned)
    assert report_document(pinned)["pinned"] == pin
    assert "Pinned:" not in render_page(measured)
    assert "| pinned config | none |" in render_markdown(measured)
    assert report_document(measured)["pinned"] is None


def test_predicted_winners_have_neither_finals_nor_conditions(predicted: ReportData) -> None:
    assert finals_table(predicted).rows == conditions_table(predicted).rows == ()
    assert winner_document(predicted.winners[0])["proof"] is None
