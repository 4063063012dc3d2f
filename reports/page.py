"""The HTML report: one self-contained page, with Plotly's script inlined and nothing fetched."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from importlib.resources import files
from string import Template

from plotly.offline import get_plotlyjs

from reports.conditions import conditions_table
from reports.data import ReportData
from reports.failures import failure_table
from reports.figures import (
    Chart,
    convergence_charts,
    figure_json,
    outcome_chart,
    speedup_charts,
    time_charts,
)
from reports.finals import finals_table
from reports.provenance import device_title, pin_text, provenance_table
from reports.summary import SummaryRow, summarize, summary_table
from reports.table import Table
from reports.winners import winner_table

MAX_TILES = 8


def render_page(data: ReportData) -> str:
    """The whole page. Text from the database is escaped; charts carry their data as JSON."""
    page = _Page()
    page.table("summary", "Speed-up over cuBLAS", summary_table(data))
    page.charts("speedups", "Speed-up by layer", speedup_charts(data))
    page.charts("times", "Time against M", time_charts(data))
    page.table("winners", "Winners", winner_table(data))
    page.table("finals", "Finals", finals_table(data))
    page.table("conditions", "Conditions", conditions_table(data))
    outcome = outcome_chart(data)
    page.charts("trials", "Trials by outcome", () if outcome is None else (outcome,))
    page.table("failures", "Failures", failure_table(data))
    page.charts("convergence", "Convergence", convergence_charts(data))
    page.table("provenance", "Provenance", provenance_table(data))
    device = device_title(data)
    template = Template(files("reports").joinpath("page.html").read_text(encoding="utf-8"))
    return template.substitute(
        title=html.escape(f"ptxtune on {device}"),
        heading=html.escape(f"W4A16 kernels on {device}"),
        subtitle=html.escape(_subtitle(data)),
        notice=_notice(data) + _pin_notice(data),
        tiles=_tiles(summarize(data)),
        links=" ".join(page.links),
        sections="\n".join(page.sections),
        plotly=get_plotlyjs(),
        figures=_script_json(page.figures),
    )


class _Page:
    """Collects sections, their links and the figures' data."""

    def __init__(self) -> None:
        self.links: list[str] = []
        self.sections: list[str] = []
        self.figures: dict[str, object] = {}

    def table(self, anchor: str, title: str, table: Table) -> None:
        if table.rows:
            self._section(anchor, title, f'<div class="scroll">{table.to_html()}</div>')

    def charts(self, anchor: str, title: str, charts: Sequence[Chart]) -> None:
        if charts:
            body = "\n".join(
                self._figure(f"{anchor}-{index}", chart) for index, chart in enumerate(charts)
            )
            self._section(anchor, title, f'<div class="grid">{body}</div>')

    def _figure(self, name: str, chart: Chart) -> str:
        self.figures[name] = figure_json(chart.figure)
        wide = ' class="wide"' if chart.wide else ""
        title = f"<h3>{html.escape(chart.title)}</h3>" if chart.title else ""
        caption = f"<figcaption>{html.escape(chart.caption)}</figcaption>"
        return f'<figure{wide}>{title}{caption}<div class="chart" id="{name}"></div></figure>'

    def _section(self, anchor: str, title: str, body: str) -> None:
        self.links.append(f'<a href="#{anchor}">{html.escape(title)}</a>')
        self.sections.append(
            f'<section id="{anchor}"><h2>{html.escape(title)}</h2>{body}</section>'
        )


def _subtitle(data: ReportData) -> str:
    return (
        f"{len(data.problems())} problems, {len(data.winners)} winners, "
        f"{len(data.attempts)} trials; generated {data.generated_at.isoformat(timespec='minutes')}"
    )


def _notice(data: ReportData) -> str:
    predicted = sum(winner.predicted for winner in data.winners)
    if not predicted:
        return ""
    return (
        f'<p class="predicted"><strong>Predicted, not measured:</strong> {predicted} of '
        f"{len(data.winners)} winners come from the roofline model; no GPU ran them. They are "
        f"marked as predicted in every table and chart.</p>"
    )


def _pin_notice(data: ReportData) -> str:
    if not data.pinned:
        return ""
    return (
        f'<p class="predicted"><strong>Pinned:</strong> {html.escape(pin_text(data))} goes before '
        f"every winner below.</p>"
    )


def _tiles(rows: Sequence[SummaryRow]) -> str:
    """The first rows with a speed-up, as large numbers."""
    tiles = [
        f'<div class="tile"><b>{row.speedup:.2f}x</b><span>M = {row.m}, {html.escape(row.variant)}'
        f"<br>over cuBLAS, {row.protocol}</span></div>"
        for row in rows
        if row.speedup is not None
    ]
    return f'<div class="tiles">{"".join(tiles[:MAX_TILES])}</div>' if tiles else ""


def _script_json(value: object) -> str:
    """JSON that cannot end its script element, whatever text it holds."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")
