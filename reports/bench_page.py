"""A comparison as one HTML page: geometric means against M, every layer's ratios, all tables."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from reports.bench_row import CUBLAS, OURS, BenchRow
from reports.bench_tables import (
    geometric_mean,
    over_cublas,
    ratios_of,
    series_of,
    slots_of,
    variant_of,
    variants_of,
)
from reports.bench_text import provenance_text, sections
from reports.figures import CUBLAS as CUBLAS_COLOR
from reports.figures import OURS as OURS_COLOR
from reports.figures import OURS_CHAINED, Chart
from reports.layout import Page
from reports.words import size_text

OTHERS = ("#8b7fd1", "#c9a227", "#a04fb8", "#2f9e62", "#d94f70", "#8a8f98")
"""Colours of the other contenders in the order of their columns."""


def render_bench_page(rows: Sequence[BenchRow]) -> str:
    """The whole page.

    Args:
        rows: of one comparison; one at least.
    """
    page = Page()
    charts = [means_chart(rows, variant) for variant in variants_of(rows)]
    page.charts("means", "Geometric means over the layers", [chart for chart in charts if chart])
    for index, variant in enumerate(variants_of(rows)):
        page.charts(f"ratios-{index}", f"Ratios, {variant}", ratio_charts(rows, variant))
    for index, (title, table) in enumerate(sections(rows)):
        page.table(f"table-{index}", title, table)
    device = rows[0].host.device
    return page.render(
        title=f"ptxtune bench on {device}",
        heading=f"W4A16 kernels compared on {device}",
        subtitle=provenance_text(rows),
        notice="",
        tiles="",
    )


def means_chart(rows: Sequence[BenchRow], variant: str) -> Chart | None:
    """Geometric mean over cuBLAS against M, a line a contender; None where nothing was timed.

    A point stands for all layers of its M: where a contender misses one, it has no point there.
    """
    mine = [row for row in rows if variant_of(row.problem) == variant]
    batches = sorted({row.m for row in mine})
    figure = go.Figure()
    for name, color in _colors(series_of(mine)).items():
        points = []
        for m in batches:
            slots = slots_of(row for row in mine if row.m == m)
            ratios = ratios_of(slots, name)
            if ratios and len(ratios) == len(slots):
                points.append((m, geometric_mean(ratios)))
        if points:
            figure.add_scatter(
                x=[m for m, _ in points],
                y=[ratio for _, ratio in points],
                name=name,
                mode="lines+markers",
                line={"color": color, "width": 2},
                hovertemplate="M = %{x}: %{y:.2f}x<extra>" + name + "</extra>",
            )
    if not figure.data:
        return None
    figure.add_hline(y=1, line={"color": CUBLAS_COLOR, "width": 2})
    figure.update_xaxes(title_text="M (tokens)", type="log", tickvals=batches, ticktext=batches)
    figure.update_yaxes(title_text="speed-up over cuBLAS (x)", rangemode="tozero")
    caption = "Over all layers, each pair timed in the same rounds; the line at 1 is cuBLAS."
    return Chart(variant, caption, figure, wide=True)


def ratio_charts(rows: Sequence[BenchRow], variant: str) -> list[Chart]:
    """Speed-up over cuBLAS of every contender and layer, one chart an M."""
    mine = [row for row in rows if variant_of(row.problem) == variant]
    charts = []
    for m in sorted({row.m for row in mine}):
        slots = slots_of(row for row in mine if row.m == m)
        layers = [size_text(next(iter(slot.values())).problem) for slot in slots]
        figure = go.Figure()
        for name, color in _colors(series_of(mine)).items():
            ratios = [over_cublas(slot.get(name)) for slot in slots]
            if any(ratio is not None for ratio in ratios):
                figure.add_bar(
                    x=layers,
                    y=ratios,
                    name=name,
                    marker={"color": color},
                    hovertemplate=f"{name}, M = {m}: %{{y:.2f}}x<extra>%{{x}}</extra>",
                )
        if not figure.data:
            continue
        figure.add_hline(y=1, line={"color": CUBLAS_COLOR, "width": 2})
        figure.update_layout(barmode="group")
        figure.update_yaxes(title_text="speed-up over cuBLAS (x)", rangemode="tozero")
        figure.update_xaxes(title_text="layer (N x K)")
        charts.append(Chart(f"M = {m}", "A missing bar: not timed; the table says why.", figure))
    return charts


def _colors(series: Sequence[str]) -> dict[str, str]:
    """A colour for each column but cuBLAS, which is the line at 1."""
    others = [name for name in series if name.split()[0] not in (OURS, CUBLAS)]
    colors = {name: OTHERS[index % len(OTHERS)] for index, name in enumerate(others)}
    ours = {OURS: OURS_COLOR, f"{OURS} chained": OURS_CHAINED}
    return {
        name: ours.get(name) or colors[name] for name in series if name in ours or name in colors
    }
