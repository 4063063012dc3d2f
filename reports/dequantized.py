"""Dequantize + matmul in a report: where that way is faster than the winner, and how it is said."""

from __future__ import annotations

from reports.data import ReportData
from reports.table import Column, Table
from reports.words import SLOT_COLUMNS, ratio_text, time_text

COLUMNS = (
    *SLOT_COLUMNS,
    Column("dequantize + matmul", "us"),
    Column("winner", "us"),
    Column("over winner"),
)


def dequantized_table(data: ReportData) -> Table:
    """One row a winner that dequantize + matmul beats at its M, beyond doubt."""
    rows = (
        (
            *data.slot_cells(winner),
            time_text(winner.dequantized_us),
            time_text(winner.time_us),
            ratio_text(winner.time_us / winner.dequantized_us),
        )
        for winner in data.ordered_winners()
        if winner.dequantize_first and winner.dequantized_us is not None
    )
    return Table(COLUMNS, tuple(rows))


def dequantized_text(dequantized_us: float, winner_us: float, faster: bool) -> str:
    """How dequantize + matmul compares with a winner, in one sentence."""
    times = f"{time_text(dequantized_us)} us against {time_text(winner_us)} us"
    verdict = "faster" if faster else "not faster"
    return f"dequantize + matmul is {verdict}: {times}."
