"""Tables, summaries and documents say what the records say, and say predicted where it is so."""

import json
import math
import re
from dataclasses import replace

import pytest

from db.records import Protocol
from ptxgen.outcome import Outcome, Status
from ptxgen.problem import Problem
from reports.data import ReportData, floor_share, speedup
from reports.document import outcome_counts, render_markdown, report_document
from reports.figures import best_so_far
from reports.summary import geometric_mean, summarize, summary_table
from reports.table import Column, Table
from reports.winners import winner_table
from reports.words import config_text, time_text, variant_text


def test_text_table_is_aligned() -> None:
    table = Table(
        (Column("name", numeric=False), Column("time", "us")), (("a", "1.5"), ("bcd", "10"))
    )
    assert table.to_text().split("\n") == [
        "name  time (us)",
        "----  ---------",
        "a           1.5",
        "bcd          10",
    ]


def test_markdown_and_html_escape_their_marks() -> None:
    table = Table((Column("x", numeric=False),), (("a|b <script>&",),))
    assert table.to_markdown().split("\n") == ["| x |", "| --- |", "| a\\|b <script>& |"]
    assert "a|b &lt;script&gt;&amp;" in table.to_html()
    assert "<script>" not in table.to_html()


def test_row_of_another_width_is_refused() -> None:
    with pytest.raises(ValueError, match="2 cells for 1"):
        Table((Column("x"),), (("1", "2"),))


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0.0123, "0.0123"), (1.0, "1.000"), (9.87216, "9.872"), (56.658, "56.66"),
     (123.456, "123.5"), (1449.6, "1450"), (28095.4, "28095")],
)  # fmt: skip
def test_time_has_four_digits(value: float | None, text: str) -> None:
    assert time_text(value) == text


def test_variant_names_everything_but_the_size() -> None:
    assert variant_text(Problem(64, 96, 96, "bf16", "int", True)) == "bf16 int gK bias"
    assert variant_text(Problem(64, 64, 64)) == "fp16 sym g64"


def test_config_is_shown_short(measured: ReportData) -> None:
    config = measured.winners[0].config
    assert config_text(config) == "toy bm8 so:acc wf"
    assert config_text(replace(config, weights_first=False)) == "toy bm8 so:acc"


def test_geometric_mean_is_the_nth_root_of_the_product() -> None:
    values = [0.21, 8.9, 1.0, 3.3, 2.75, 0.6, 4.04]
    assert geometric_mean(values) == pytest.approx(math.prod(values) ** (1 / 7))
    assert geometric_mean([]) is None


def test_summary_averages_the_layers_of_one_m(measured: ReportData) -> None:
    rows = {(r.variant, r.protocol, r.m): r for r in summarize(measured)}
    assert len(rows) == 2 * 2 * 3
    row = rows["fp16 sym g128", Protocol.CHAINED, 16]
    ratios = [
        w.cublas_us / w.time_us
        for w in measured.winners
        if (w.problem.dtype, w.protocol, w.m) == ("fp16", Protocol.CHAINED, 16)
    ]
    assert row.layers == len(ratios) == 4
    assert row.speedup == pytest.approx(math.prod(ratios) ** 0.25)
    assert (row.lowest, row.highest) == (min(ratios), max(ratios))
    assert next(iter(rows))[0].startswith("fp16")


def test_measured_and_predicted_are_never_averaged(
    measured: ReportData, predicted: ReportData
) -> None:
    half = len(measured.winners) // 2
    mixed = replace(measured, winners=measured.winners[:half] + predicted.winners[half:])
    for row in summarize(mixed):
        assert (row.speedup is None) == row.predicted


def test_predicted_winners_have_no_speedup_even_with_a_cublas_time(measured: ReportData) -> None:
    winner = replace(measured.winners[0], predicted=True)
    assert winner.cublas_us is not None
    assert speedup(winner) is None


def test_unknown_floor_has_no_share(measured: ReportData) -> None:
    for floor in (None, 0.0):
        assert floor_share(replace(measured.winners[0], floor_us=floor)) is None


def test_winner_table_has_one_row_a_winner(measured: ReportData, predicted: ReportData) -> None:
    table = winner_table(measured)
    assert len(table.rows) == len(measured.winners)
    first = dict(zip([column.title for column in table.columns], table.rows[0], strict=True))
    assert first["layer"] == "qkv, 6144 x 4096"
    assert first["variant"] == "fp16 sym g128"
    assert first["source"] == "measured"
    assert {row[10] for row in winner_table(predicted).rows} == {"predicted"}


def test_layers_are_their_sizes_where_no_model_is_named(measured: ReportData) -> None:
    assert winner_table(replace(measured, layer_names={})).rows[0][0] == "6144 x 4096"


def test_document_is_json_and_agrees_with_the_records(measured: ReportData) -> None:
    document = json.loads(json.dumps(report_document(measured), allow_nan=False))
    assert len(document["winners"]) == len(measured.winners)
    for row, winner in zip(document["winners"], measured.winners, strict=True):
        assert Problem.from_dict(row["problem"]) == winner.problem
        assert row["time_us"] == winner.time_us
        assert row["over_cublas"] == pytest.approx(winner.cublas_us / winner.time_us)
        assert row["source"] == "measured"
    assert document["schema_version"] == 1


def test_outcomes_are_counted_without_baselines(measured: ReportData) -> None:
    counts = outcome_counts(measured)
    assert [row["problem"] for row in counts] == [p.key() for p in dict.fromkeys(
        trial.problem for trial in measured.trials)]  # fmt: skip
    expected = {"compile_error": 6, "ok": 18, "wrong": 6, "crash": 6, "started": 6}
    assert all(row["counts"] == expected for row in counts)


def test_best_so_far_ignores_failures(measured: ReportData) -> None:
    trials = measured.trials[:7]
    best = measured.winners[0].time_us
    assert best_so_far(trials) == [
        None, best * 1.6, best * 1.6, best * 1.2, best, best, best,
    ]  # fmt: skip
    wrong = replace(trials[0], outcome=Outcome(Status.WRONG, time_us=0.1))
    assert best_so_far([wrong]) == [None]


def test_markdown_holds_every_section_and_device(measured: ReportData) -> None:
    text = render_markdown(measured)
    assert re.findall(r"^#+ (.*)$", text, re.M) == [
        "W4A16 kernels on NVIDIA H200 <test>", "Speed-up over cuBLAS", "Winners",
        "Finals", "Conditions", "Failures", "Trials by outcome", "Provenance",
    ]  # fmt: skip
    for word in ("driver 580.1", "NVRTC 13.5", "commit abc1234", "protocol version", "700 W",
                 "read 4480 GB/s", "measured on the device", "budget = quick"):  # fmt: skip
        assert word in text
    assert "redicted" not in text


def test_markdown_says_predicted(predicted: ReportData) -> None:
    text = render_markdown(predicted)
    assert f"{len(predicted.winners)} of {len(predicted.winners)} winners" in text
    assert "(predicted)" in summary_table(predicted).to_text()


def test_empty_report_renders(empty: ReportData) -> None:
    assert "no device" in render_markdown(empty)
    assert report_document(empty)["winners"] == []
