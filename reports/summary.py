"""The summary: geometric-mean speed-up over cuBLAS for each M, over the layers."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, replace

from db.records import Protocol, WinnerRecord
from reports.data import ReportData, floor_share, speedup
from reports.table import Column, Table
from reports.words import ratio_text, share_text, variant_order, variant_text

COLUMNS = (
    Column("variant", numeric=False),
    Column("protocol", numeric=False),
    Column("M"),
    Column("layers"),
    Column("over cuBLAS, geometric mean"),
    Column("lowest"),
    Column("highest"),
    Column("of floor, geometric mean"),
)


@dataclass(frozen=True, slots=True)
class SummaryRow:
    """One variant x protocol x M over its layers.

    Speed-ups are over cuBLAS and None where nothing was measured; layers counts the compared ones.
    """

    variant: str
    protocol: Protocol
    m: int
    layers: int
    speedup: float | None
    lowest: float | None
    highest: float | None
    floor_share: float | None
    predicted: bool


def geometric_mean(values: list[float]) -> float | None:
    """None of an empty list. All values are > 0."""
    if not values:
        return None
    return math.exp(sum(map(math.log, values)) / len(values))


def summarize(data: ReportData) -> tuple[SummaryRow, ...]:
    """Rows by variant, protocol and M of one GPU model; measured and predicted are kept apart."""
    groups: dict[tuple[str, Protocol, int, bool], list[WinnerRecord]] = defaultdict(list)
    for winner in data.winners:
        variant = variant_text(replace(winner.problem, bias=False), winner.batch_invariant)
        groups[variant, winner.protocol, winner.m, winner.predicted].append(winner)
    order = sorted(groups, key=lambda key: (key[3], variant_order(key[0]), *key[1:3]))
    return tuple(_summary_row(key, groups[key]) for key in order)


def _summary_row(key: tuple[str, Protocol, int, bool], winners: list[WinnerRecord]) -> SummaryRow:
    variant, protocol, m, predicted = key
    ratios = [ratio for winner in winners if (ratio := speedup(winner)) is not None]
    shares = [share for winner in winners if (share := floor_share(winner)) is not None]
    return SummaryRow(
        variant=variant,
        protocol=protocol,
        m=m,
        layers=len(ratios) if ratios else len(winners),
        speedup=geometric_mean(ratios),
        lowest=min(ratios, default=None),
        highest=max(ratios, default=None),
        floor_share=geometric_mean(shares),
        predicted=predicted,
    )


def summary_table(data: ReportData) -> Table:
    """The summary as a table; predicted rows are marked in the variant."""
    return Table(
        COLUMNS,
        tuple(
            (
                row.variant + (" (predicted)" if row.predicted else ""),
                str(row.protocol),
                str(row.m),
                str(row.layers),
                ratio_text(row.speedup),
                ratio_text(row.lowest),
                ratio_text(row.highest),
                share_text(row.floor_share),
            )
            for row in summarize(data)
        ),
    )
