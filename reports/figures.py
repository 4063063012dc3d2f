"""The charts of the report as Plotly figures; colours of text and grid are left to the page."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import plotly.graph_objects as go

from db.records import Protocol, TrialRecord, WinnerRecord
from ptxgen.outcome import Status
from ptxgen.problem import Problem
from reports.data import ReportData, speedup
from reports.words import variant_order, variant_text

# Mid-lightness hues that hold 3:1 contrast on white and on near-black.
OURS, OURS_CHAINED, CUBLAS, DEFAULT, FLOOR = "#3b82c4", "#0f9d8a", "#d9722e", "#8b7fd1", "#8a8f98"
SEQUENCE = ("#5aa9d6", "#3b82c4", "#5b6fd0", "#7d5fc9", "#a04fb8", "#c2489a", "#d94f70", "#d9722e")
STATUS_COLORS = {
    Status.OK: "#2f9e62",
    Status.PREDICTED: "#3b82c4",
    Status.INVALID: "#8a8f98",
    Status.COMPILE_ERROR: "#c9a227",
    Status.COMPILE_TIMEOUT: "#a3841f",
    Status.SPILLED: "#d9a05b",
    Status.LOAD_ERROR: "#8b7fd1",
    Status.LAUNCH_ERROR: "#a04fb8",
    Status.CRASH: "#d64545",
    Status.HANG: "#a83279",
    Status.WRONG: "#e0567a",
    Status.NOISY: "#6c8fa8",
    Status.STARTED: "#5c6470",
}
_Series = tuple[int, Protocol, bool]
"""M, protocol, and whether the model made the times: what one line of convergence is about."""

DASHES = ("solid", "dash", "dot", "dashdot", "longdash")


@dataclass(frozen=True, slots=True)
class Chart:
    """One figure of the page: title and what it shows in words, for readers without the chart."""

    title: str
    caption: str
    figure: go.Figure
    wide: bool = False


def time_charts(data: ReportData) -> tuple[Chart, ...]:
    """Time against M of each problem, with the default, cuBLAS and the physical floor.

    Of one GPU model; batch-invariant winners have charts of their own.
    """
    kinds = dict.fromkeys((w.problem, w.batch_invariant) for w in data.ordered_winners())
    return tuple(_time_chart(data, problem, invariant) for problem, invariant in kinds)


def _time_chart(data: ReportData, problem: Problem, batch_invariant: bool) -> Chart:
    figure = go.Figure()
    mine = [w for w in data.winners if (w.problem, w.batch_invariant) == (problem, batch_invariant)]
    winners = sorted(mine, key=lambda w: w.m)
    for protocol, color in ((Protocol.PLAIN, OURS), (Protocol.CHAINED, OURS_CHAINED)):
        for predicted in (False, True):
            mine = [w for w in winners if w.protocol == protocol and w.predicted == predicted]
            name = f"ptxtune, {protocol}" + (", predicted" if predicted else "")
            dash = "dot" if predicted else "solid"
            _line(figure, name, color, dash, ((w.m, w.time_us) for w in mine))
    plain = [w for w in winners if w.protocol == Protocol.PLAIN] or winners
    for predicted in (False, True):
        defaults = ((w.m, w.default_us) for w in plain if w.predicted == predicted)
        name = "default config, predicted" if predicted else "default config"
        _line(figure, name, DEFAULT, "dashdot" if predicted else "dash", defaults)
    _line(figure, "cuBLAS", CUBLAS, "solid", ((w.m, w.cublas_us) for w in plain))
    _line(figure, "physical floor", FLOOR, "dot", ((w.m, w.floor_us) for w in winners))
    ticks = sorted({w.m for w in winners})
    figure.update_xaxes(title_text="M (tokens)", type="log", tickvals=ticks, ticktext=ticks)
    ticks_us = _log_ticks([value for trace in figure.data for value in trace.y])
    figure.update_yaxes(title_text="time (µs)", type="log", tickvals=ticks_us, ticktext=ticks_us)
    title = f"{data.layer(problem)}, {variant_text(problem, batch_invariant)}"
    return Chart(title, _time_caption(winners), figure)


def _time_caption(winners: Iterable[WinnerRecord]) -> str:
    kinds = {winner.predicted for winner in winners}
    parts = ["Median time of one launch with a cold L2 cache"] if False in kinds else []
    parts += ["predicted by the roofline model: no GPU ran it"] if True in kinds else []
    if len(parts) == 2:
        parts[1] = f"what is called predicted is {parts[1]}"
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}; both axes are logarithmic."


def _log_ticks(values: list[float]) -> list[float]:
    """1, 2, 5, 10, ...: Plotly's own labels of a log axis leave out the decade."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return [digit * 10**power for power in range(low, high + 1) for digit in (1, 2, 5)]


def _line(
    figure: go.Figure,
    name: str,
    color: str,
    dash: str,
    points: Iterable[tuple[int, float | None]],
) -> None:
    known = sorted({m: value for m, value in points if value}.items())  # a floor of 0 is unknown
    if not known:
        return
    figure.add_scatter(
        x=[m for m, _ in known],
        y=[value for _, value in known],
        name=name,
        mode="lines+markers" if dash != "dot" or name.startswith("ptxtune") else "lines",
        line={"color": color, "dash": dash, "width": 2},
        marker={"size": 7},
        hovertemplate="M = %{x}: %{y:.4g} µs<extra>" + name + "</extra>",
    )


def speedup_charts(data: ReportData) -> tuple[Chart, ...]:
    """Speed-up over cuBLAS, grouped by layer, one figure a variant x protocol."""
    groups: dict[tuple[str, Protocol], list[WinnerRecord]] = defaultdict(list)
    for winner in data.winners:
        if speedup(winner) is not None:
            variant = variant_text(replace(winner.problem, bias=False), winner.batch_invariant)
            groups[variant, winner.protocol].append(winner)
    return tuple(_speedup_chart(data, key, groups[key]) for key in sorted(groups, key=_by_variant))


def _by_variant(key: tuple[str, Protocol]) -> tuple[tuple[bool, str], Protocol]:
    return variant_order(key[0]), key[1]


def _speedup_chart(
    data: ReportData, key: tuple[str, Protocol], winners: list[WinnerRecord]
) -> Chart:
    figure = go.Figure()
    for index, m in enumerate(sorted({winner.m for winner in winners})):
        rows = [winner for winner in winners if winner.m == m]
        figure.add_bar(
            x=[data.layer(winner.problem) for winner in rows],
            y=[speedup(winner) for winner in rows],
            name=f"M = {m}",
            marker={"color": SEQUENCE[index % len(SEQUENCE)]},
            hovertemplate=f"M = {m}: %{{y:.2f}}x<extra>%{{x}}</extra>",
        )
    figure.add_hline(y=1, line={"color": CUBLAS, "width": 2})
    figure.update_layout(barmode="group", bargap=0.25, bargroupgap=0.06)
    figure.update_yaxes(title_text="speed-up over cuBLAS (x)", rangemode="tozero")
    figure.update_xaxes(title_text="layer (N x K)")
    caption = "cuBLAS' time over ptxtune's, measured in the same run; the line at 1 is cuBLAS."
    return Chart(f"{key[0]}, {key[1]}", caption, figure, wide=True)


def outcome_chart(data: ReportData) -> Chart | None:
    """Trials of each problem by outcome; None where there are none."""
    counts: dict[Status, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for trial in data.attempts:
        counts[trial.outcome.status][data.label(trial.problem)] += 1
    if not counts:
        return None
    labels = list(dict.fromkeys(data.label(trial.problem) for trial in data.attempts))
    figure = go.Figure()
    for status in (status for status in STATUS_COLORS if status in counts):
        figure.add_bar(
            y=labels,
            x=[counts[status][label] for label in labels],
            name=status.value,
            orientation="h",
            marker={"color": STATUS_COLORS[status]},
            hovertemplate="%{x} " + status.value + "<extra>%{y}</extra>",
        )
    figure.update_layout(barmode="stack", height=170 + 34 * len(labels))
    figure.update_xaxes(title_text="trials")
    figure.update_yaxes(autorange="reversed", automargin=True)
    return Chart("", "Every attempt is stored with its outcome.", figure, wide=True)


def convergence_charts(data: ReportData) -> tuple[Chart, ...]:
    """Best time so far per trial, as a multiple of the best found, one figure a problem."""
    groups: dict[Problem, dict[_Series, list[TrialRecord]]] = defaultdict(dict)
    predicting = {run.id for run in data.runs if run.settings.get("predicted") is True}
    for trial in data.attempts:
        key = (trial.m, trial.protocol, trial.run_id in predicting)
        groups[trial.problem].setdefault(key, []).append(trial)
    charts = (_convergence_chart(data, problem, series) for problem, series in groups.items())
    return tuple(chart for chart in charts if chart is not None)


def best_so_far(trials: Iterable[TrialRecord]) -> list[float | None]:
    """After each trial the least time until then; None before the first timed one."""
    best: float | None = None
    line: list[float | None] = []
    for trial in trials:
        time_us = trial.outcome.time_us
        if time_us is not None and trial.outcome.status in (Status.OK, Status.PREDICTED):
            best = time_us if best is None else min(best, time_us)
        line.append(best)
    return line


def _convergence_chart(
    data: ReportData, problem: Problem, series: dict[_Series, list[TrialRecord]]
) -> Chart | None:
    figure = go.Figure()
    styles = list(dict.fromkeys(key[1:] for key in sorted(series)))
    buckets = sorted({m for m, _, _ in series})
    for m, protocol, predicted in sorted(series):
        line = best_so_far(series[m, protocol, predicted])
        if not line or line[-1] is None:
            continue
        figure.add_scatter(
            x=list(range(1, len(line) + 1)),
            y=[None if value is None else value / line[-1] for value in line],
            customdata=line,
            name=f"M = {m}, {protocol}" + (", predicted" if predicted else ""),
            mode="lines",
            line={
                "shape": "hv",
                "width": 2,
                "color": SEQUENCE[buckets.index(m) % len(SEQUENCE)],
                "dash": DASHES[styles.index((protocol, predicted)) % len(DASHES)],
            },
            hovertemplate="trial %{x}: %{customdata:.4g} µs<extra></extra>",
        )
    if not figure.data:
        return None
    figure.update_xaxes(title_text="trial")
    figure.update_yaxes(title_text="best so far / best found (x)")
    return Chart(data.label(problem), "1 is the best time that was found.", figure)


def figure_json(figure: go.Figure) -> dict[str, Any]:
    """Data and layout of a figure without Plotly's default template, which the page replaces."""
    plain: dict[str, Any] = figure.to_plotly_json()
    plain["layout"].pop("template", None)
    return {"data": plain["data"], "layout": plain["layout"]}
