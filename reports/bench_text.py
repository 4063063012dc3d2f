"""A comparison as console text and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from reports.bench_row import BenchRow
from reports.bench_tables import means_table, missing_table, times_table, variants_of
from reports.table import Table

MEANS_TITLE = "Geometric mean over the layers of cuBLAS' time over each contender's"
MISSING_TITLE = "Not timed"


def sections(rows: Sequence[BenchRow]) -> list[tuple[str, Table]]:
    """Titles and tables in reading order; empty tables are left out."""
    found = [(f"Times, {variant}", times_table(rows, variant)) for variant in variants_of(rows)]
    found += [(MEANS_TITLE, means_table(rows)), (MISSING_TITLE, missing_table(rows))]
    return [(title, table) for title, table in found if table.rows]


def bench_text(rows: Sequence[BenchRow]) -> str:
    """All tables for the console."""
    return "\n\n".join(f"{title}\n{table.to_text()}" for title, table in sections(rows))


def bench_markdown(rows: Sequence[BenchRow]) -> str:
    """All tables and the provenance as a Markdown document."""
    parts = [f"# W4A16 kernels compared on {rows[0].host.device}", provenance_text(rows)]
    for title, table in sections(rows):
        parts += [f"## {title}", table.to_markdown()]
    return "\n\n".join(parts) + "\n"


def provenance_text(rows: Sequence[BenchRow]) -> str:
    """Device, toolchain and the contenders' versions in one paragraph."""
    host = rows[0].host
    versions = dict.fromkeys(f"{row.contender}: {row.version}" for row in rows if row.version)
    commit = f", commit {host.commit}" if host.commit else ""
    return (
        f"{host.device}, driver {host.driver}, NVRTC {host.nvrtc}, torch {host.torch}, "
        f"{host.date}{commit}. Cold L2, CUDA graphs, contenders in turns; every result was checked "
        f"against FP32 first. {'; '.join(versions)}."
    )
