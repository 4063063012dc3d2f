"""The page: self-contained, honest about predictions, and drawn by a real browser."""

import html.parser
import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from db.records import Protocol
from ptxgen.outcome import Status
from reports.data import ReportData
from reports.figures import (
    STATUS_COLORS,
    convergence_charts,
    outcome_chart,
    speedup_charts,
    time_charts,
)
from reports.page import render_page

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
FETCHING = {"src", "href", "data", "srcset", "poster"}


class Resources(html.parser.HTMLParser):
    """Collects what a browser would fetch for a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value or "" for name, value in attrs if name in FETCHING]


def figures_of(page: str) -> dict[str, dict]:
    found = re.search(r'<script type="application/json" id="figures">(.*?)</script>', page, re.S)
    return json.loads(found.group(1))


def test_nothing_is_fetched(measured: ReportData) -> None:
    resources = Resources()
    resources.feed(render_page(measured))
    assert resources.found
    assert all(item.startswith(("#", "data:,")) for item in resources.found)


def test_every_problem_and_protocol_has_its_charts(measured: ReportData) -> None:
    figures = figures_of(render_page(measured))
    counts: dict[str, int] = {}
    for name in figures:
        kind = name.rpartition("-")[0]
        counts[kind] = counts.get(kind, 0) + 1
    assert counts == {"speedups": 4, "times": 8, "trials": 1, "convergence": 8}


def test_time_chart_shows_winners_baselines_and_floor(measured: ReportData) -> None:
    chart = time_charts(measured)[0]
    lines = {trace.name: list(zip(trace.x, trace.y, strict=True)) for trace in chart.figure.data}
    problem = measured.problems()[0]
    plain = [w for w in measured.winners if w.problem == problem and w.protocol is Protocol.PLAIN]
    assert lines["ptxtune, plain"] == [(w.m, w.time_us) for w in plain]
    assert lines["cuBLAS"] == [(w.m, w.cublas_us) for w in plain]
    assert lines["physical floor"] == [(w.m, w.floor_us) for w in plain]
    assert set(lines) == {
        "ptxtune, plain", "ptxtune, chained", "default config", "cuBLAS", "physical floor",
    }  # fmt: skip
    assert "µs" in chart.figure.layout.yaxis.title.text


def test_ticks_of_the_log_axis_surround_the_times(measured: ReportData) -> None:
    for chart in time_charts(measured):
        values = [value for trace in chart.figure.data for value in trace.y]
        ticks = chart.figure.layout.yaxis.tickvals
        assert min(ticks) <= min(values)
        assert max(ticks) >= max(values)


def test_unknown_floor_is_not_drawn(measured: ReportData) -> None:
    blind = replace(measured, winners=tuple(replace(w, floor_us=0.0) for w in measured.winners))
    names = {trace.name for chart in time_charts(blind) for trace in chart.figure.data}
    assert "physical floor" not in names


def test_speedup_bars_are_the_ratios(measured: ReportData) -> None:
    chart = speedup_charts(measured)[0]
    assert chart.title == "fp16 sym g128, chained"
    for bar in chart.figure.data:
        m = int(bar.name.removeprefix("M = "))
        expected = [
            w.cublas_us / w.time_us
            for w in measured.winners
            if (w.problem.dtype, w.protocol, w.m) == ("fp16", Protocol.CHAINED, m)
        ]
        assert list(bar.y) == pytest.approx(expected)


def test_every_status_has_a_colour_of_its_own() -> None:
    assert set(STATUS_COLORS) == set(Status)
    assert len(set(STATUS_COLORS.values())) == len(Status)


def test_outcome_bars_add_up_to_the_trials(measured: ReportData) -> None:
    chart = outcome_chart(measured)
    assert sum(sum(bar.x) for bar in chart.figure.data) == len(measured.attempts)


def test_convergence_ends_at_one_and_never_rises(measured: ReportData) -> None:
    charts = convergence_charts(measured)
    assert len(charts) == 8
    for trace in (trace for chart in charts for trace in chart.figure.data):
        values = [value for value in trace.y if value is not None]
        assert values == sorted(values, reverse=True)
        assert values[-1] == 1


def test_predictions_are_called_so_everywhere(predicted: ReportData, measured: ReportData) -> None:
    page = render_page(predicted)
    assert "Predicted, not measured" in page
    names = {
        t["name"] for f in figures_of(page).values() for t in f["data"] if "ptxtune" in t["name"]
    }
    assert names == {"ptxtune, plain, predicted", "ptxtune, chained, predicted"}
    assert "Predicted, not measured" not in render_page(measured)


def test_stored_text_cannot_become_markup(measured: ReportData) -> None:
    evil = "</script><img src=x onerror=alert(1)>"
    names = dict.fromkeys(measured.layer_names, evil)
    page = render_page(replace(measured, layer_names=names))
    resources = Resources()
    resources.feed(page)
    assert "x" not in resources.found
    assert any(evil in chart.title for chart in time_charts(replace(measured, layer_names=names)))


def test_empty_page_renders(empty: ReportData) -> None:
    assert figures_of(render_page(empty)) == {}


def dump_dom(page: Path, tmp_path: Path) -> tuple[str, str]:
    """(DOM after the scripts ran, console messages) in headless Chromium."""
    done = subprocess.run(
        [BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
         f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=20000", "--dump-dom",
         page.as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return done.stdout, "\n".join(console)


@pytest.mark.skipif(not BROWSER, reason="no Chromium here (apt-get install chromium)")
@pytest.mark.parametrize("kind", ["measured", "predicted", "empty"])
def test_a_browser_draws_every_chart_without_errors(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    page = render_page(request.getfixturevalue(kind))
    file = tmp_path / "report.html"
    file.write_text(page, encoding="utf-8")
    dom, console = dump_dom(file, tmp_path)
    assert console == ""
    drawn = re.search(r'data-charts="(\d+)"', dom)
    assert drawn is not None
    assert int(drawn.group(1)) == len(figures_of(page))
    assert dom.count('class="main-svg"') >= len(figures_of(page))


@pytest.mark.skipif(not BROWSER, reason="no Chromium here (apt-get install chromium)")
def test_the_browser_check_notices_an_error(measured: ReportData, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    broken = render_page(measured).replace("draw();\ndark", "undefined_name();\ndark")
    file.write_text(broken, encoding="utf-8")
    dom, console = dump_dom(file, tmp_path)
    assert "undefined_name" in console
    assert "data-charts" not in dom.partition("<body>")[0]
