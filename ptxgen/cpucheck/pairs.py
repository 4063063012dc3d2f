"""Pairwise covering arrays: few rows in which every legal pair of values occurs. Pure and seeded.

Knows nothing of kernels: factors are tuples of values and a predicate counts what is wrong with a
full row. For each pair a legal row is searched for: by repairing a legal row that has half of the
pair, then among the rows that differ from the lowest one (first values, which should be the least
demanding) in two more factors. A pair without one counts as illegal. Rows are then built greedily.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, combinations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

Row = tuple[int, ...]
"""One value index for each factor."""

Pair = tuple[int, int, int, int]
"""(factor, value, another factor, value): factors and values by index, factors in order."""

CANDIDATES = 8
"""Rows built for each row that is taken: the one that covers most goes in."""

REPAIRS = 6
"""Legal rows with half of a pair that are repaired before the pair counts as hard to find."""

CLASH_ROWS = 20
"""Random rows that one and the same reason must reject, for a pair to count as illegal at once."""


@dataclass(slots=True)
class PairSearch:
    """The factors, the predicate, and what is known so far.

    Attributes:
        factors: values of each factor.
        reasons: what is wrong with a row of values; empty where it is legal.
        seed: of every random choice.
        legal: rows known to be legal, for pairs that are hard to find.
    """

    factors: Sequence[Sequence[Any]]
    reasons: Callable[[tuple[Any, ...]], list[str]]
    seed: int = 0
    legal: Sequence[tuple[Any, ...]] = ()
    _known: dict[Row, int] = field(default_factory=dict)

    def rows(self) -> list[tuple[Any, ...]]:
        """Rows that hold every legal pair, in the order in which they were found."""
        rng = random.Random(self.seed)  # noqa: S311 (no secret)
        witnesses = self.witnesses(rng)
        table = _Table([len(values) for values in self.factors])
        for pair in witnesses:
            table.add(pair)
        taken: list[Row] = []
        while (open_pair := table.any_open(rng)) is not None:
            witness = witnesses[open_pair]
            built = [self._built(witness, open_pair, table, rng) for _ in range(CANDIDATES)]
            best = max(built, key=table.gain)
            table.close(best)
            taken.append(best)
        return [self._values(row) for row in _without_idle(taken)]

    def witnesses(self, rng: random.Random) -> dict[Pair, Row]:
        """A legal row for each pair (factor, value, factor, value) that has one."""
        found: dict[Pair, Row] = {}
        legal: dict[tuple[int, int], list[Row]] = {}

        def keep(row: Row) -> None:
            for item in enumerate(row):
                legal.setdefault(item, []).append(row)
            for other in pairs_of(row):
                found.setdefault(other, row)

        for values in self.legal:
            row = tuple(own.index(value) for own, value in zip(self.factors, values, strict=True))
            if self._wrong(row) == 0:
                keep(row)
        for pair in self._all_pairs():
            witness = None if pair in found else self._witness(pair, legal, rng)
            if witness is not None:
                keep(witness)
        return found

    def _all_pairs(self) -> Iterator[Pair]:
        for i, j in combinations(range(len(self.factors)), 2):
            for a, b in product(range(len(self.factors[i])), range(len(self.factors[j]))):
                yield i, a, j, b

    def _witness(
        self, pair: Pair, legal: Mapping[tuple[int, int], list[Row]], rng: random.Random
    ) -> Row | None:
        """A legal row with the pair: near a legal row with half of it, or near the lowest row."""
        i, a, j, b = pair
        near = [rows for rows in (legal.get((i, a)), legal.get((j, b))) if rows]
        for attempt, rows in enumerate(near * REPAIRS):
            if attempt == len(near) and self._clash(pair, rng):
                return None
            start = list(rng.choice(rows))
            start[i], start[j] = a, b
            row = self._repaired(tuple(start), {i, j}, rng)
            if row is not None:
                return row
        lowest = [0] * len(self.factors)
        lowest[i], lowest[j] = a, b
        return self._within_two_changes(tuple(lowest), {i, j})

    def _within_two_changes(self, row: Row, fixed: set[int]) -> Row | None:
        """The first legal row that differs from this one in at most two other factors."""
        moves = self._moves(row, fixed)
        changed = [row, *(_with(row, *move) for move in moves)]
        both = (
            _with(_with(row, *first), *second)
            for first, second in combinations(moves, 2)
            if first[0] != second[0]
        )
        return next((found for found in chain(changed, both) if self._wrong(found) == 0), None)

    def _moves(self, row: Row, fixed: set[int]) -> list[tuple[int, int]]:
        return [
            (index, value)
            for index in range(len(row))
            if index not in fixed
            for value in range(len(self.factors[index]))
            if value != row[index]
        ]

    def _clash(self, pair: Pair, rng: random.Random) -> bool:
        """True where the very same reason rejects every one of some random rows with the pair."""
        i, a, j, b = pair
        common: set[str] | None = None
        for _ in range(CLASH_ROWS):
            row = self._random_row(rng)
            row[i], row[j] = a, b
            found = set(self.reasons(self._values(tuple(row))))
            common = found if common is None else common & found
            if not common:
                return False
        return True

    def _random_row(self, rng: random.Random) -> list[int]:
        return [rng.randrange(len(values)) for values in self.factors]

    def _repaired(self, row: Row, fixed: set[int], rng: random.Random) -> Row | None:
        """A legal row near this one, or None where no single change helps any more."""
        left = self._wrong(row)
        while left:
            moves = self._moves(row, fixed)
            rng.shuffle(moves)
            changed = (_with(row, *move) for move in moves)
            better = next((item for item in changed if self._wrong(item) < left), None)
            if better is None:
                return None
            row, left = better, self._wrong(better)
        return row

    def _built(self, row: Row, pair: Pair, table: _Table, rng: random.Random) -> Row:
        """Climbs from a pair's witness to a row that covers many open pairs."""
        free = [index for index in range(len(row)) if index not in (pair[0], pair[2])]
        improved = True
        while improved:
            improved = False
            rng.shuffle(free)
            for index in free:
                better = self._better_value(row, index, table)
                if better is not None:
                    row, improved = better, True
        return row

    def _better_value(self, row: Row, index: int, table: _Table) -> Row | None:
        gains = table.gains(row, index)
        for value in np.argsort(-gains, kind="stable"):
            if gains[value] <= gains[row[index]]:
                return None
            moved = _with(row, index, int(value))
            if self._wrong(moved) == 0:
                return moved
        return None

    def _wrong(self, row: Row) -> int:
        if row not in self._known:
            self._known[row] = len(self.reasons(self._values(row)))
        return self._known[row]

    def _values(self, row: Row) -> tuple[Any, ...]:
        return tuple(values[index] for values, index in zip(self.factors, row, strict=True))


def pairs_of(row: Row) -> list[Pair]:
    """Every pair (factor, value, factor, value) of a row."""
    return [(i, row[i], j, row[j]) for i in range(len(row)) for j in range(i + 1, len(row))]


class _Table:
    """Which pairs are still open, as a symmetric matrix over all values of all factors."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._offsets = np.concatenate(([0], np.cumsum(sizes)))
        self._sizes = sizes
        total = int(self._offsets[-1])
        self._open: NDArray[np.int64] = np.zeros((total, total), dtype=np.int64)

    def add(self, pair: Pair) -> None:
        x, y = self._offsets[pair[0]] + pair[1], self._offsets[pair[2]] + pair[3]
        self._open[x, y] = self._open[y, x] = 1

    def any_open(self, rng: random.Random) -> Pair | None:
        """An open pair of the value that has most of them, or None."""
        counts = self._open.sum(axis=1)
        x = int(counts.argmax())
        if counts[x] == 0:
            return None
        y = rng.choice(np.flatnonzero(self._open[x]).tolist())
        x, y = min(x, y), max(x, y)
        i, j = (int(np.searchsorted(self._offsets, v, side="right")) - 1 for v in (x, y))
        return i, x - int(self._offsets[i]), j, y - int(self._offsets[j])

    def gains(self, row: Row, index: int) -> NDArray[np.int64]:
        """Open pairs that each value of one factor would cover together with the rest of a row."""
        others = np.delete(self._ids(row), index)
        first = int(self._offsets[index])
        found: NDArray[np.int64] = self._open[first : first + self._sizes[index], others].sum(
            axis=1
        )
        return found

    def gain(self, row: Row) -> int:
        ids = self._ids(row)
        return int(self._open[np.ix_(ids, ids)].sum()) // 2

    def close(self, row: Row) -> None:
        ids = self._ids(row)
        self._open[np.ix_(ids, ids)] = 0

    def _ids(self, row: Row) -> NDArray[np.int64]:
        return np.asarray(self._offsets[:-1] + np.array(row), dtype=np.int64)


def _with(row: Row, index: int, value: int) -> Row:
    return (*row[:index], value, *row[index + 1 :])


def _without_idle(rows: list[Row]) -> list[Row]:
    """Drops rows whose pairs all occur in others, oldest first."""
    counts: dict[Pair, int] = {}
    for row in rows:
        for pair in pairs_of(row):
            counts[pair] = counts.get(pair, 0) + 1
    kept = []
    for row in rows:
        pairs = pairs_of(row)
        if all(counts[pair] > 1 for pair in pairs):
            for pair in pairs:
                counts[pair] -= 1
        else:
            kept.append(row)
    return kept
