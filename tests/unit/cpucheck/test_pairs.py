"""Covering arrays: exhaustive truth on small spaces, sizes near the lower bound, determinism."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, product
from typing import Any

import pytest

from ptxgen.cpucheck.pairs import PairSearch

SMALL = [(0, 1, 2, 3), (0, 1, 2), ("a", "b"), (False, True), (1, 2, 4, 8, 16)]

Reasons = Callable[[tuple[Any, ...]], list[str]]


def anything(_: tuple[Any, ...]) -> list[str]:
    return []


def divides(row: tuple[Any, ...]) -> list[str]:
    """A rule between two factors, and one among three."""
    first, second, letter, _, last = row
    found = []
    if last % (first + 1):
        found.append(f"{first + 1} does not divide {last}")
    if letter == "b" and second + last > 9:
        found.append("too much")
    return found


def truth(factors: list[tuple[Any, ...]], reasons: Reasons) -> set[tuple[int, Any, int, Any]]:
    """Every legal pair, from every row."""
    return {
        (i, row[i], j, row[j])
        for row in product(*factors)
        if not reasons(row)
        for i, j in combinations(range(len(row)), 2)
    }


@pytest.mark.parametrize("reasons", [anything, divides])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_rows_are_legal_and_hold_every_legal_pair(reasons: Reasons, seed: int) -> None:
    rows = PairSearch(SMALL, reasons, seed).rows()
    assert not any(reasons(row) for row in rows)
    held = {(i, row[i], j, row[j]) for row in rows for i, j in combinations(range(len(row)), 2)}
    assert held == truth(SMALL, reasons)


def test_few_rows_are_enough() -> None:
    rows = PairSearch(SMALL, anything).rows()
    assert 5 * 4 <= len(rows) <= 5 * 4 + 4  # the two longest factors need a row for each pair


def test_the_same_seed_gives_the_same_rows() -> None:
    def found(seed: int) -> list[tuple[Any, ...]]:
        return PairSearch(SMALL, divides, seed).rows()

    assert found(3) == found(3)
    assert found(3) != found(4)


def test_nothing_legal_gives_no_rows() -> None:
    assert PairSearch([(0, 1), (0, 1)], lambda row: ["no"]).rows() == []
