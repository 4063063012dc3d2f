"""The HTML report of the stored results: its sections, notices and tiles."""

from __future__ import annotations

import html
from collections.abc import Sequence

from reports.conditions import conditions_table
from reports.data import ReportData
from reports.failures import failure_table
from reports.figures import (
    convergence_charts,
    outcome_chart,
    speedup_charts,
    time_charts,
)
from reports.finals import finals_table
from reports.layout import Page
from reports.provenance import device_title, pin_text, provenance_table
from reports.roofline import roofline_table
from reports.summary import SummaryRow, summarize, summary_table
from reports.winners import winner_table

MAX_TILES = 8


def render_page(data: ReportData) -> str:
    """The whole page. Text from the database is escaped; charts carry their data as JSON."""
    page = Page()
    page.table("summary", "Speed-up over cuBLAS", summary_table(data))
    page.charts("speedups", "Speed-up by layer", speedup_charts(data))
    page.charts("times", "Time against M", time_charts(data))
    page.table("winners", "Winners", winner_table(data))
    page.table("roofline", "Roofline", roofline_table(data))
    page.table("finals", "Finals", finals_table(data))
    page.table("conditions", "Conditions", conditions_table(data))
    outcome = outcome_chart(data)
    page.charts("trials", "Trials by outcome", () if outcome is None else (outcome,))
    page.table("failures", "Failures", failure_table(data))
    page.charts("convergence", "Convergence", convergence_charts(data))
    page.table("provenance", "Provenance", provenance_table(data))
    device = device_title(data)
    return page.render(
        title=f"ptxtune on {device}",
        heading=f"W4A16 kernels on {device}",
        subtitle=_subtitle(data),
        notice=_notice(data) + _pin_notice(data),
        tiles=_tiles(summarize(data)),
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
