"""The roofline table: how close each winner is to the floor, and what keeps it from it."""

from __future__ import annotations

from ptxgen.roofline import Roofline
from reports.data import ReportData
from reports.table import Column, Table
from reports.winners import SOURCE, source_text
from reports.words import SLOT_COLUMNS, share_text, time_text

ROOFLINE_COLUMNS = (
    Column("time", "us"),
    Column("of floor"),
    Column("binds", numeric=False),
    Column("read", "GB/s"),
    Column("TFLOP/s"),
    Column("in flight", "KB an SM"),
    Column("CTAs an SM"),
    Column("warps an SM"),
    Column("waves"),
    Column("model", "us"),
)


def roofline_table(data: ReportData) -> Table:
    """One row a winner whose roofline is known."""
    rows = (
        (
            *data.slot_cells(winner),
            *roofline_cells(winner.time_us, data.rooflines[winner.trial_id]),
            source_text(winner),
        )
        for winner in data.ordered_winners()
        if winner.trial_id in data.rooflines
    )
    return Table((*SLOT_COLUMNS, *ROOFLINE_COLUMNS, SOURCE), tuple(rows))


def roofline_cells(time_us: float, found: Roofline) -> tuple[str, ...]:
    """Cells of ROOFLINE_COLUMNS."""
    return (
        time_text(time_us),
        share_text(found.floor_share),
        found.bound.value,
        f"{found.read_gbps:.0f}",
        f"{found.tflops:.1f}",
        f"{found.in_flight_bytes / 1024:.0f}",
        str(found.ctas_per_sm),
        f"{found.warps_per_sm} ({found.occupancy:.0%})",
        f"{found.waves:.2f}",
        time_text(found.model_us),
    )


def explanation(time_us: float, found: Roofline) -> str:
    """The roofline of one winner in words, for the console."""
    parts = ", ".join(f"{name} {time_text(us)}" for name, us in found.parts_us.items() if us)
    limits = ", ".join(f"{name} {time_text(us)}" for name, us in found.limits_us.items())
    return (
        f"{time_text(time_us)} us is {share_text(found.floor_share)} of the floor, which is "
        f"{found.floor_bound.value}: {found.read_gbps:.0f} GB/s, {found.tflops:.1f} TFLOP/s.\n"
        f"What binds: {found.bound.value}.\n"
        f"{found.ctas} CTAs in {found.waves:.2f} waves; an SM holds {found.ctas_per_sm} of them, "
        f"{found.warps_per_sm} warps ({found.occupancy:.0%}), with "
        f"{found.in_flight_bytes / 1024:.0f} KB in flight.\n"
        f"The model gives {time_text(found.model_us)} us: {parts}.\n"
        f"A full wave by each limit alone: {limits}."
    )
