"""The winner table: one row a winner, with what it was compared with."""

from __future__ import annotations

from db.records import WinnerRecord
from reports.data import ReportData, floor_share, speedup
from reports.table import Column, Table
from reports.words import config_text, ratio_text, share_text, time_text, variant_text

COLUMNS = (
    Column("layer", "N x K", numeric=False),
    Column("variant", numeric=False),
    Column("M"),
    Column("protocol", numeric=False),
    Column("time", "us"),
    Column("default", "us"),
    Column("cuBLAS", "us"),
    Column("over cuBLAS"),
    Column("of floor"),
    Column("source", numeric=False),
    Column("config", numeric=False),
)


def winner_table(data: ReportData) -> Table:
    """Winners ordered by variant, layer, protocol and M."""
    order = {problem: index for index, problem in enumerate(data.problems())}
    ordered = sorted(data.winners, key=lambda w: (order[w.problem], w.protocol, w.m))
    return Table(COLUMNS, tuple(_row(data, winner) for winner in ordered))


def source_text(winner: WinnerRecord) -> str:
    """Whether a GPU ran it."""
    return "predicted" if winner.predicted else "measured"


def _row(data: ReportData, winner: WinnerRecord) -> tuple[str, ...]:
    return (
        data.layer(winner.problem),
        variant_text(winner.problem),
        str(winner.m),
        str(winner.protocol),
        time_text(winner.time_us),
        time_text(winner.default_us),
        time_text(winner.cublas_us),
        ratio_text(speedup(winner)),
        share_text(floor_share(winner)),
        source_text(winner),
        config_text(winner.config),
    )
