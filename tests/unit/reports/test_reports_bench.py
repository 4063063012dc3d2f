"""A comparison's rows, tables and page against numbers worked out by hand."""

from __future__ import annotations

import json
import math
import re

import pytest

from db.export_rows import to_json_lines
from db.records import PROTOCOL_VERSION
from ptxgen.bootstrap import paired_ratio
from ptxgen.evidence import Evidence, GpuLimits, GpuReading
from ptxgen.outcome import Outcome, Status
from ptxgen.problem import Problem
from reports.bench_page import render_bench_page
from reports.bench_row import BenchHost, BenchRow
from reports.bench_tables import (
    geometric_mean,
    means_table,
    missing_table,
    series_of,
    times_table,
)
from reports.bench_text import bench_markdown, bench_text, sections

HOST = BenchHost("NVIDIA H200 <test>", "580.1", "13.0", "2.11.0", "abc1234", "2026-11-29")
EVIDENCE = Evidence.of(
    GpuReading(1980, 3201, ("gpu_idle",), 40, 120.0, ()),
    GpuReading(1485, 3201, ("sw_power_cap",), 64, 690.4, (4711, 815)),
    GpuLimits(1980, 700),
)
SMALL, LARGE = Problem(4096, 4096), Problem(8192, 8192)


def row(
    name: str,
    problem: Problem,
    m: int,
    time_us: float | None,
    cublas_us: float | None = None,
    **changes: object,
) -> BenchRow:
    """Timed in three rounds, the second of which ran at half the clock for everyone."""
    outcome = ratio = None
    if time_us is not None:
        samples = (time_us, 2 * time_us, time_us)
        outcome = Outcome(Status.OK, "", time_us, 0.1, samples, 3e-4, None, 2.0, 1485, EVIDENCE)
        if cublas_us is not None:
            ratio = paired_ratio((cublas_us, 2 * cublas_us, cublas_us), samples)
    fields: dict[str, object] = {
        "host": HOST,
        "contender": name,
        "version": "torch 2.11.0",
        "protocol": "plain",
        "problem": problem,
        "layer": "qkv" if problem == SMALL else "",
        "m": m,
        "verdict": "ok" if time_us is not None else "unsupported",
        "reason": "" if time_us is not None else "bf16 only",
        "source": "measured" if name == "ptxtune" else "",
        "config": {"family": "mma", "block_m": 8} if name == "ptxtune" else None,
        "outcome": outcome,
        "over_cublas": ratio,
    }
    return BenchRow(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.fixture
def rows() -> list[BenchRow]:
    """cuBLAS 12 and 48 us; ours 4 and 12, chained 3 and 12; marlin 6 on the small layer alone."""
    found = []
    for problem, cublas, ours, chained in ((SMALL, 12.0, 4.0, 3.0), (LARGE, 48.0, 12.0, 12.0)):
        found += [
            row("marlin", problem, 1, 6.0 if problem == SMALL else None, cublas),
            row("cublas", problem, 1, cublas, cublas),
            row("ptxtune", problem, 1, ours, cublas),
            row("ptxtune", problem, 1, chained, cublas, protocol="chained", source="default"),
            row("tinygemm", problem, 1, None),
        ]
    return found


def test_columns_begin_with_ours_and_cublas(rows: list[BenchRow]) -> None:
    assert series_of(rows) == ["ptxtune", "ptxtune chained", "cublas", "marlin", "tinygemm"]


def test_geometric_means_over_the_layers(rows: list[BenchRow]) -> None:
    """Ours: 3x and 4x; chained: 4x and 4x; marlin: 2x on one of two layers."""
    table = means_table(rows)
    (cells,) = (dict(zip((c.title for c in table.columns), r, strict=True)) for r in table.rows)
    assert cells == {
        "variant": "fp16 sym g128",
        "M": "1",
        "layers": "2",
        "ptxtune": f"{math.sqrt(12):.2f}x",
        "ptxtune chained": "4.00x",
        "marlin": "2.00x (1 of 2)",
        "tinygemm": "-",
    }


@pytest.mark.parametrize(
    ("values", "mean"), [([2.0], 2.0), ([1.0, 4.0], 2.0), ([0.5, 2.0, 8.0], 2.0)]
)
def test_geometric_mean(values: list[float], mean: float) -> None:
    assert geometric_mean(values) == pytest.approx(mean)


def test_a_row_a_layer_with_the_best_of_the_others(rows: list[BenchRow]) -> None:
    table = times_table(rows, "fp16 sym g128")
    heads = [column.title for column in table.columns]
    small, large = (dict(zip(heads, cells, strict=True)) for cells in table.rows)
    assert (small["layer"], large["layer"]) == ("qkv 4096 x 4096", "8192 x 8192")
    assert (small["ptxtune"], small["cublas"]) == ("4.000", "12.00")
    assert (small["marlin"], large["marlin"]) == ("6.000", "unsupported")
    assert (small["ptxtune over cuBLAS"], large["ptxtune over cuBLAS"]) == ("3.00x", "4.00x")
    assert small["ptxtune chained over cuBLAS"] == "4.00x"
    assert (small["best other"], small["over it"]) == ("marlin", "1.50x")
    assert (large["best other"], large["over it"]) == ("cublas", "4.00x")
    assert small["our config"] == "measured / default"


def test_variants_and_batches_do_not_mix(rows: list[BenchRow]) -> None:
    zeros = Problem(4096, 4096, zero="int", dtype="bf16")
    more = [row("cublas", zeros, 8, 10.0, 10.0), row("ptxtune", zeros, 8, 5.0, 10.0)]
    titles = [title for title, _ in sections([*rows, *more])]
    assert titles[:2] == ["Times, fp16 sym g128", "Times, bf16 int g128"]
    variants = [cells[:3] for cells in means_table([*rows, *more]).rows]
    assert variants == [("fp16 sym g128", "1", "2"), ("bf16 int g128", "8", "1")]


def test_whoever_is_missing_is_counted_with_the_reason(rows: list[BenchRow]) -> None:
    assert set(missing_table(rows).rows) == {
        ("tinygemm", "unsupported", "2", "bf16 only"),
        ("marlin", "unsupported", "1", "bf16 only"),
    }


SCHEMA = {
    "contender": str,
    "version": str,
    "device": str,
    "driver": str,
    "nvrtc": str,
    "torch": str,
    "commit": str,
    "date": str,
    "protocol": str,
    "protocol_version": int,
    "dtype": str,
    "zero": str,
    "bias": bool,
    "group": int,
    "layer": str,
    "n": int,
    "k": int,
    "m": int,
    "verdict": str,
    "reason": str,
    "source": (str, type(None)),
    "config": (dict, type(None)),
    "variant": (str, type(None)),
    "time_us": (float, type(None)),
    "spread": (float, type(None)),
    "over_cublas": (dict, type(None)),
    "floor_us": (float, type(None)),
    "rel_err": (float, type(None)),
    "clock_mhz": (int, type(None)),
    "state": (str, type(None)),
    "throttle": (list, type(None)),
    "other_processes": (int, type(None)),
    "samples_us": list,
}


def test_json_lines_have_one_schema(rows: list[BenchRow]) -> None:
    lines = to_json_lines(item.to_dict() for item in rows).splitlines()
    documents = [json.loads(line) for line in lines]
    assert len(documents) == len(rows)
    for document in documents:
        assert list(document) == list(SCHEMA)
        for name, kinds in SCHEMA.items():
            assert isinstance(document[name], kinds), name
    ours = documents[2]
    assert ours["protocol_version"] == PROTOCOL_VERSION
    assert ours["samples_us"] == [4.0, 8.0, 4.0]
    assert ours["over_cublas"] == {"median": 3.0, "low": 3.0, "high": 3.0, "count": 3}
    assert (ours["state"], ours["throttle"]) == ("sustained", ["gpu_idle", "sw_power_cap"])
    assert ours["other_processes"] == 2


@pytest.mark.parametrize("verdict", ["wrong", "crashed", "noisy"])
def test_times_of_a_failed_entry_do_not_count(verdict: str) -> None:
    """It may have been timed before it was found out."""
    failed = row("marlin", SMALL, 1, 1.0, verdict=verdict, reason="why")
    assert failed.time_us is None
    document = failed.to_dict()
    assert (document["time_us"], document["spread"], document["samples_us"]) == (None, None, [])
    assert missing_table([failed]).rows == (("marlin", verdict, "1", "why"),)


def test_text_markdown_and_page_hold_all_of_it(rows: list[BenchRow]) -> None:
    text, markdown, page = bench_text(rows), bench_markdown(rows), render_bench_page(rows)
    for shown in (text, markdown, page):
        assert "2.00x (1 of 2)" in shown
        assert "bf16 only" in shown
    assert markdown.startswith("# W4A16 kernels compared on NVIDIA H200 <test>\n")
    assert "commit abc1234" in markdown
    assert "<test>" not in page
    assert "NVIDIA H200 &lt;test&gt;" in page
    found = re.search(r'<script type="application/json" id="figures">(.*?)</script>', page, re.S)
    assert found is not None
    figures = json.loads(found[1])
    lines = {trace["name"]: trace["y"] for trace in figures["means-0"]["data"]}
    assert lines["ptxtune"] == [pytest.approx(math.sqrt(12))]
    assert "marlin" not in lines  # not timed on every layer
    bars = {trace["name"]: trace["y"] for trace in figures["ratios-0-0"]["data"]}
    assert bars["marlin"] == [2.0, None]
