"""The winner table: one row a winner, with what it was compared with."""

from __future__ import annotations

from db.records import WinnerRecord
from reports.data import ReportData, floor_share, speedup
from reports.table import Column, Table
from reports.words import (
    SLOT_COLUMNS,
    config_text,
    ratio_text,
    share_text,
    time_text,
)

SOURCE = Column("source", numeric=False)
GPU = Column("GPU", numeric=False)

COLUMNS = (
    *SLOT_COLUMNS,
    Column("time", "us"),
    Column("default", "us"),
    Column("cuBLAS", "us"),
    Column("over cuBLAS"),
    Column("dequantized", "us"),
    Column("of floor"),
    SOURCE,
    Column("config", numeric=False),
)


def winner_table(data: ReportData) -> Table:
    """Winners ordered by variant, layer, protocol and M."""
    return Table(COLUMNS, tuple(_row(data, winner) for winner in data.ordered_winners()))


def gpu_winner_table(data: ReportData) -> Table:
    """The winner table of several GPU models: one after the other, each row with its name."""
    rows = ((name, *row) for name, part in data.gpus().items() for row in winner_table(part).rows)
    return Table((GPU, *COLUMNS), tuple(rows))


def source_text(winner: WinnerRecord) -> str:
    """Whether a GPU ran it."""
    return "predicted" if winner.predicted else "measured"


def _row(data: ReportData, winner: WinnerRecord) -> tuple[str, ...]:
    return (
        *data.slot_cells(winner),
        time_text(winner.time_us),
        time_text(winner.default_us),
        time_text(winner.cublas_us),
        ratio_text(speedup(winner)),
        time_text(winner.dequantized_us),
        share_text(floor_share(winner)),
        source_text(winner),
        config_text(winner.config),
    )
