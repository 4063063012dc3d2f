"""The roofline in tables, words, JSON, Markdown and HTML."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ptxgen.roofline import Bound, Roofline
from reports.data import ReportData
from reports.document import render_markdown, report_document
from reports.page import render_page
from reports.roofline import ROOFLINE_COLUMNS, explanation, roofline_table

FOUND = Roofline(
    floor_bound=Bound.MEMORY,
    floor_share=0.493,
    read_gbps=2207.4,
    tflops=67.11,
    in_flight_bytes=32768.0,
    ctas_per_sm=5,
    warps_per_sm=20,
    occupancy=0.3125,
    ctas=128,
    waves=0.1939,
    bound=Bound.IN_FLIGHT,
    model_us=6.262,
    parts_us={"launch": 1.7, "main loop": 2.713, "split": 0.0},
    limits_us={"memory": 1.946, "latency": 1.761},
)
CELLS = ("49%", "bytes in flight", "2207", "67.1", "32", "5", "20 (31%)", "0.19", "6.262")


@pytest.fixture
def data(measured: ReportData) -> ReportData:
    """One winner has a roofline, the others have none."""
    return replace(measured, rooflines={measured.ordered_winners()[0].trial_id: FOUND})


def test_one_row_a_known_roofline(data: ReportData) -> None:
    (row,) = roofline_table(data).rows
    assert row[-len(CELLS) - 1 :] == (*CELLS, "measured")
    assert len(row) == 4 + len(ROOFLINE_COLUMNS) + 1
    assert row[:4] == ("qkv, 6144 x 4096", "fp16 sym g128", "1", "chained")


def test_json_has_it_for_each_winner(data: ReportData) -> None:
    document = json.loads(json.dumps(report_document(data)))
    known = [item["roofline"] for item in document["winners"] if item["roofline"]]
    assert len(known) == 1
    assert (known[0]["bound"], known[0]["floor_bound"]) == ("bytes in flight", "memory")
    assert known[0]["limits_us"] == {"memory": 1.946, "latency": 1.761}
    assert len(document["winners"]) == len(data.winners)


def test_markdown_and_page_have_the_table(data: ReportData, measured: ReportData) -> None:
    markdown, page = render_markdown(data), render_page(data)
    assert "## Roofline" in markdown
    assert "bytes in flight" in markdown
    assert "bytes in flight" in page
    assert "20 (31%)" in page
    assert "## Roofline" not in render_markdown(measured)


def test_it_is_told_in_words() -> None:
    text = explanation(3.977, FOUND)
    for words in (
        "3.977 us is 49% of the floor, which is memory: 2207 GB/s, 67.1 TFLOP/s.",
        "What binds: bytes in flight.",
        "128 CTAs in 0.19 waves; an SM holds 5 of them, 20 warps (31%), with 32 KB in flight.",
        "The model gives 6.262 us: launch 1.700, main loop 2.713.",
        "A full wave by each limit alone: memory 1.946, latency 1.761.",
    ):
        assert words in text
