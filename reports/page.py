"""The HTML report of the stored results: its sections, notices and tiles."""

from __future__ import annotations

import html
from collections.abc import Sequence

from ptxgen.counted import counted
from reports.conditions import conditions_table
from reports.data import ReportData
from reports.failures import failure_table
from reports.figures import (
    Chart,
    convergence_charts,
    outcome_chart,
    speedup_charts,
    time_charts,
)
from reports.finals import finals_table
from reports.layout import Page
from reports.provenance import device_title, pin_text, provenance_table
from reports.roofline import roofline_table
from reports.seeds import seeds_table
from reports.summary import SummaryRow, summarize, summary_table
from reports.table import Table
from reports.winners import winner_table

MAX_TILES = 8
SEEDS = "Imported seeds, not measured here"


def render_page(data: ReportData) -> str:
    """The whole page. Text from the database is escaped; charts carry their data as JSON."""
    page = Page()
    parts = data.gpus()
    for index, (gpu, part) in enumerate(parts.items()):
        several = len(parts) > 1
        _add_sections(page, part, f"gpu{index}-" if several else "", f"{gpu}: " if several else "")
    page.table("provenance", "Provenance", provenance_table(data))
    device = device_title(data)
    return page.render(
        title=f"ptxtune on {device}",
        heading=f"W4A16 kernels on {device}",
        subtitle=_subtitle(data),
        notice=_notice(data) + _pin_notice(data),
        tiles="".join(
            _tiles(summarize(part), f"{gpu}, " if len(parts) > 1 else "")
            for gpu, part in parts.items()
        ),
    )


def _add_sections(page: Page, data: ReportData, anchor: str, title: str) -> None:
    """The sections of one GPU model; anchor and title begin with what tells it from others."""

    def table(name: str, words: str, content: Table) -> None:
        page.table(anchor + name, title + words, content)

    def charts(name: str, words: str, content: Sequence[Chart]) -> None:
        page.charts(anchor + name, title + words, content)

    table("summary", "Speed-up over cuBLAS", summary_table(data))
    charts("speedups", "Speed-up by layer", speedup_charts(data))
    charts("times", "Time against M", time_charts(data))
    table("winners", "Winners", winner_table(data))
    table("roofline", "Roofline", roofline_table(data))
    table("finals", "Finals", finals_table(data))
    table("conditions", "Conditions", conditions_table(data))
    outcome = outcome_chart(data)
    charts("trials", "Trials by outcome", () if outcome is None else (outcome,))
    table("failures", "Failures", failure_table(data))
    table("seeds", SEEDS, seeds_table(data))
    charts("convergence", "Convergence", convergence_charts(data))


def _subtitle(data: ReportData) -> str:
    return (
        f"{counted(len(data.problems()), 'problem')}, {counted(len(data.winners), 'winner')}, "
        f"{counted(len(data.attempts), 'trial')}; "
        f"generated {data.generated_at.isoformat(timespec='minutes')}"
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


def _tiles(rows: Sequence[SummaryRow], gpu: str) -> str:
    """The first rows with a speed-up, as large numbers; gpu begins what is said of them."""
    tiles = [
        f'<div class="tile"><b>{row.speedup:.2f}x</b><span>{html.escape(gpu)}M = {row.m}, '
        f"{html.escape(row.variant)}<br>over cuBLAS, {row.protocol}</span></div>"
        for row in rows
        if row.speedup is not None
    ]
    return f'<div class="tiles">{"".join(tiles[:MAX_TILES])}</div>' if tiles else ""
