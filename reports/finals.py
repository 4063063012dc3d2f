"""The finals table: how sure each winner is, what it beats and by how much, and its ties."""

from __future__ import annotations

from collections.abc import Sequence

from ptxgen.bootstrap import Interval
from ptxgen.config import KernelConfig
from ptxgen.proof import Proof
from reports.data import ReportData
from reports.table import Column, Table
from reports.words import MISSING, SLOT_COLUMNS, config_text, ratio_text, time_text

FINALS_COLUMNS = (
    Column("time", "us"),
    Column("95 % interval", "us"),
    Column("over default"),
    Column("over cuBLAS"),
    Column("over previous winner"),
    Column("rounds"),
    Column("ties with", numeric=False),
)


def finals_table(data: ReportData) -> Table:
    """One row a measured winner that has a proof."""
    rows = (
        (
            *data.slot_cells(winner),
            *finals_cells(winner.proof, winner.ties, winner.config),
        )
        for winner in data.ordered_winners()
        if winner.proof is not None
    )
    return Table((*SLOT_COLUMNS, *FINALS_COLUMNS), tuple(rows))


def finals_cells(
    proof: Proof, ties: Sequence[KernelConfig], winner: KernelConfig
) -> tuple[str, ...]:
    """Cells of FINALS_COLUMNS; ratios are of the same round, with their intervals."""
    others = [config_text(config) for config in ties if config != winner]
    return (
        time_text(proof.time_us.median),
        f"{time_text(proof.time_us.low)} to {time_text(proof.time_us.high)}",
        _ratio(proof.over_default),
        _ratio(proof.over_cublas),
        _ratio(proof.over_previous),
        str(proof.rounds) if proof.rounds else "one by one",
        "; ".join(others) or "none",
    )


def _ratio(ratio: Interval | None) -> str:
    if ratio is None:
        return MISSING
    return f"{ratio_text(ratio.median)} ({ratio.low:.3f} to {ratio.high:.3f})"
