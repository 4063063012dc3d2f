"""Tables of a comparison: times and ratios, geometric means over the layers, who is missing."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from ptxgen.problem import Problem
from reports.bench_row import CUBLAS, OURS, BenchRow
from reports.table import Column, Table
from reports.words import MISSING, ratio_text, size_text, time_text, variant_order, variant_text

Slot = tuple[Problem, int]
"""What the contenders of one window computed: problem and M."""

MISSING_COLUMNS = (
    Column("contender", numeric=False),
    Column("verdict", numeric=False),
    Column("cases"),
    Column("reason", numeric=False),
)


def geometric_mean(values: Sequence[float]) -> float:
    """The geometric mean of positive numbers, one at least."""
    return math.exp(sum(map(math.log, values)) / len(values))


def series_of(rows: Iterable[BenchRow]) -> list[str]:
    """Names of the columns: ours, ours chained, cuBLAS, then the others as they come."""
    found = dict.fromkeys(row.series for row in rows)
    first = [name for name in found if name.split()[0] == OURS] + [CUBLAS]
    return [name for name in dict.fromkeys([*sorted(first[:-1]), CUBLAS, *found]) if name in found]


def variants_of(rows: Iterable[BenchRow]) -> list[str]:
    """Variants such as "fp16 sym g128", fp16 first; a bias is no variant of its own."""
    return sorted({variant_of(row.problem) for row in rows}, key=variant_order)


def variant_of(problem: Problem) -> str:
    """A problem's variant without its bias."""
    return variant_text(problem).removesuffix(" bias")


def times_table(rows: Sequence[BenchRow], variant: str) -> Table:
    """One row a layer and M of a variant: every contender's time, and what ours makes of it."""
    mine = [row for row in rows if variant_of(row.problem) == variant]
    series = series_of(mine)
    ours = [name for name in series if name.split()[0] == OURS]
    columns = [Column("layer", "N x K", numeric=False), Column("M")]
    columns += [Column(name, "us") for name in series]
    columns += [Column(f"{name} over cuBLAS") for name in ours]
    columns += [Column("best other", numeric=False), Column("over it")]
    columns.append(Column("our config", numeric=False))
    return Table(
        tuple(columns),
        tuple(_times_row(slot, series, ours) for slot in slots_of(mine)),
    )


def slots_of(rows: Iterable[BenchRow]) -> list[dict[str, BenchRow]]:
    """The rows of each window by their column, in the order they were run."""
    found: dict[Slot, dict[str, BenchRow]] = defaultdict(dict)
    for row in rows:
        found[row.problem, row.m][row.series] = row
    return list(found.values())


def _times_row(
    slot: dict[str, BenchRow], series: Sequence[str], ours: Sequence[str]
) -> tuple[str, ...]:
    any_row = next(iter(slot.values()))
    layer = f"{any_row.layer} {size_text(any_row.problem)}".strip()
    times = [_time_cell(slot.get(name)) for name in series]
    ratios = [ratio_text(over_cublas(slot.get(name))) for name in ours]
    sources = dict.fromkeys(slot[name].source for name in ours if name in slot)
    return (layer, str(any_row.m), *times, *ratios, *_best_other(slot), " / ".join(sources))


def _time_cell(row: BenchRow | None) -> str:
    """A time, or in a word why there is none."""
    if row is None:
        return MISSING
    if row.time_us is not None:
        return time_text(row.time_us)
    return row.verdict.replace("_", " ")


def over_cublas(row: BenchRow | None) -> float | None:
    """cuBLAS' time over this row's; None where either is missing."""
    return row.over_cublas.median if row is not None and row.over_cublas is not None else None


def _best_other(slot: dict[str, BenchRow]) -> tuple[str, str]:
    """The fastest of the others, and its time over our plain one (chained where plain is not)."""
    others = [
        (row.time_us, name)
        for name, row in slot.items()
        if row.contender != OURS and row.time_us is not None
    ]
    mine = [
        row.time_us for row in slot.values() if row.contender == OURS and row.protocol == "plain"
    ]
    if not others:
        return MISSING, MISSING
    time_us, name = min(others)
    ratio = time_us / mine[0] if mine and mine[0] is not None else None
    return name, ratio_text(ratio)


def means_table(rows: Sequence[BenchRow]) -> Table:
    """Geometric means over the layers of cuBLAS' time over each contender's, for each M."""
    series = [name for name in series_of(rows) if name != CUBLAS]
    columns = (Column("variant", numeric=False), Column("M"), Column("layers"))
    cells = []
    for variant in variants_of(rows):
        mine = [row for row in rows if variant_of(row.problem) == variant]
        for m in sorted({row.m for row in mine}):
            slots = slots_of(row for row in mine if row.m == m)
            means = (mean_cell(slots, name) for name in series)
            cells.append((variant, str(m), str(len(slots)), *means))
    return Table((*columns, *map(Column, series)), tuple(cells))


def mean_cell(slots: Sequence[dict[str, BenchRow]], name: str) -> str:
    """The mean, with the number of its layers where it is not of all of them."""
    ratios = ratios_of(slots, name)
    if not ratios:
        return MISSING
    text = ratio_text(geometric_mean(ratios))
    return text if len(ratios) == len(slots) else f"{text} ({len(ratios)} of {len(slots)})"


def ratios_of(slots: Iterable[dict[str, BenchRow]], name: str) -> list[float]:
    """cuBLAS' time over a contender's, of the layers where both were timed."""
    found = (over_cublas(slot.get(name)) for slot in slots)
    return [ratio for ratio in found if ratio is not None]


def missing_table(rows: Iterable[BenchRow]) -> Table:
    """Everyone who was not timed, how often, and why."""
    counts = Counter((row.series, row.verdict, row.reason) for row in rows if row.time_us is None)
    return Table(
        MISSING_COLUMNS,
        tuple(
            (name, verdict.replace("_", " "), str(count), reason)
            for (name, verdict, reason), count in counts.items()
        ),
    )
