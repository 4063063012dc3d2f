"""Measured numbers of README.md are those of the committed rows, wherever they are stated."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text(encoding="utf-8")
RESULTS = ROOT / "reports" / "results"
INDEX = (RESULTS / "README.md").read_text(encoding="utf-8")
H200 = RESULTS / "nvidia-h200"
BUCKETS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192]
SMALL_MODEL = {(6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)}
"""The layers of 8B; the others are those of 70B."""

Rows = dict[tuple[str, int, int, int], dict[str, Any]]
LINES = [[cell.strip() for cell in line.split("|")[1:-1]] for line in README.splitlines()]


def rows_of(name: str) -> Rows:
    """(contender, N, K, M) -> row of one launch mode."""
    lines = (H200 / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    rows = map(json.loads, lines)
    return {(row["contender"], row["n"], row["k"], row["m"]): row for row in rows}


PLAIN, CHAINED = rows_of("fp16-sym-g128"), rows_of("fp16-sym-g128-chained")
INT, BESIDE_INT = rows_of("fp16-int-g128"), rows_of("fp16-sym-g128-beside-int")
BF16, BESIDE_BF16 = rows_of("bf16-sym-g128"), rows_of("fp16-sym-g128-beside-bf16")


def geometric_mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def paired(rows: Rows, key: tuple[str, int, int, int]) -> float:
    """Times faster than cuBLAS: the median of the turns of one window."""
    return float(rows[key]["proof"]["over_cublas"]["median"])


def over_cublas(rows: Rows, m: int, layers: set[tuple[int, int]] | None = None) -> float:
    """Geometric mean of the layers' paired ratios; of all layers where none are named."""
    mine = [key for key in rows if key[0] == "ptxtune" and key[3] == m]
    return geometric_mean(
        [paired(rows, key) for key in mine if layers is None or key[1:3] in layers]
    )


def longer_percent(rows: Rows, beside: Rows, m: int) -> float:
    """By how much more time the rows take than symmetric FP16, of the same card where it was."""
    mine = [key for key in rows if key[0] == "ptxtune" and key[3] == m]
    other = beside if m <= 16 else PLAIN
    ratios = [rows[key]["time_us"] / other[key]["time_us"] for key in mine]
    return 100 * (geometric_mean(ratios) - 1)


def close(stated: str, exact: float, tolerance: float = 0.5) -> bool:
    """Whether a stated number is that one, rounded to its digits."""
    digits = len(stated.partition(".")[2])
    return abs(float(stated.replace(",", "")) - exact) <= tolerance * 10**-digits + 1e-9


def table_after(heading: str) -> tuple[list[str], list[list[str]]]:
    """Header and body of the table whose header's first cell is that, in order of the page."""
    at = next(number for number, cells in enumerate(LINES) if cells[:1] == [heading])
    body = []
    for cells in LINES[at + 2 :]:
        if not cells:
            break
        body.append(cells)
    return LINES[at], body


def layer_cells() -> list[tuple[str, int, int, int, str, str]]:
    """(launches, N, K, M, time, over cuBLAS) of every cell of the two tables of layers."""
    found = []
    for number, cells in enumerate(LINES):
        if cells[:1] != ["layer (N x K)"] or "M = 1" not in cells:
            continue
        launches = "chained" if found else "plain"
        batches = [int(cell.replace("M = ", "").replace(",", "")) for cell in cells[1:]]
        for row in LINES[number + 2 :]:
            if not row:
                break
            n, k = map(int, re.findall(r"(\d+) x (\d+)", row[0])[0])
            for m, cell in zip(batches, row[1:], strict=True):
                time_us, ratio = re.fullmatch(r"(\S+) \((\S+)x\)", cell).groups()  # type: ignore[union-attr]
                found.append((launches, n, k, m, time_us, ratio))
    return found


def test_times_and_ratios_of_layers() -> None:
    cells = layer_cells()
    assert len(cells) == 8 * 9 + 8 * 5
    for launches, n, k, m, time_us, ratio in cells:
        rows = PLAIN if launches == "plain" else CHAINED
        key = ("ptxtune", n, k, m)
        exact = rows[key]["time_us"]
        assert close(time_us, exact, 1.0 if exact > 1000 else 0.5), (launches, n, k, m)
        assert close(ratio, paired(rows, key)), (launches, n, k, m)


def test_geometric_means() -> None:
    header, body = table_after("geometric mean over cuBLAS")
    batches = [int(cell.replace("M = ", "").replace(",", "")) for cell in header[1:]]
    assert batches == BUCKETS
    for label, *cells in body:
        rows = CHAINED if "chained" in label else PLAIN
        layers = SMALL_MODEL if label.endswith("8B") else None
        for m, cell in zip(batches, cells, strict=True):
            measured = any(key[3] == m for key in rows)
            assert (cell != "-") == measured
            if measured:
                assert close(cell.rstrip("x"), over_cublas(rows, m, layers)), (label, m)


@pytest.mark.parametrize(
    ("row", "launches", "batches"),
    [
        ("M = 1 to 8, plain", "plain", [4, 1]),
        ("M = 16, plain", "plain", [16]),
        ("M = 1, chained", "chained", [1]),
        ("M = 8, chained", "chained", [8]),
        ("M = 16, chained", "chained", [16]),
        ("M = 32, plain", "plain", [32]),
        ("M = 32 and 64, chained", "chained", [32, 64]),
        ("M = 64, plain", "plain", [64]),
        ("M = 128, plain", "plain", [128]),
        ("M = 256, plain", "plain", [256]),
        ("M = 512 to 8,192, plain", "plain", [512, 1024, 2048, 4096, 8192]),
    ],
)
def test_what_is_said_of_the_aims_is_the_table(row: str, launches: str, batches: list[int]) -> None:
    _, body = table_after("geometric mean over cuBLAS")
    means = next(cells for cells in body if cells[0] == f"fp16, {launches}, eight layers")
    stated = re.findall(r"(\d\.\d\d)x", aim(row).partition(";")[0])
    assert stated == [means[1 + BUCKETS.index(m)].rstrip("x") for m in batches]


def aim(row: str) -> str:
    """What the table of aims says of now."""
    _, body = table_after("")
    return next(cells[2] for cells in body if cells[0] == row)


def stated_after(words: str) -> list[tuple[str, str]]:
    """(percentage, M) pairs of the text behind those words."""
    return re.findall(r"(\d\.\d) % \((?:M = )?(\d+)\)", README[README.index(words) :])


def test_zero_points_are_said_alike_everywhere() -> None:
    exact = {m: longer_percent(INT, BESIDE_INT, m) for m in (1, 8, 16, 32, 64)}
    in_text = re.findall(r"(\d\.\d) % \((?:M = )?(\d+)\)", README[README.index("Integer zero") :])[
        :5
    ]
    assert {int(m) for _, m in in_text} == exact.keys()
    for stated, m in in_text:
        assert close(stated, exact[int(m)]), m
    assert re.findall(r"(\d\.\d) %", aim("zero points")) == [stated for stated, _ in in_text]
    early, late = (
        re.search(r"zero points ([\d., and]+) %\. At", INDEX),
        re.search(r"less, zero points (\S+) and (\S+) % more", INDEX),
    )
    assert early is not None
    assert late is not None
    listed = re.findall(r"\d\.\d", early[1]) + list(late.groups())
    assert listed == [stated for stated, _ in in_text]


def test_bf16_is_said_alike_everywhere() -> None:
    exact = {m: longer_percent(BF16, BESIDE_BF16, m) for m in (1, 8, 16)}
    in_text = stated_after("BF16 takes")[:3]
    assert [int(m) for _, m in in_text] == [1, 8, 16]
    for stated, m in in_text:
        assert close(stated, exact[int(m)]), m
    assert re.findall(r"(\d\.\d) %", aim("BF16")) == [stated for stated, _ in in_text]
    found = re.search(
        r"BF16 takes (\S+) % longer at M = 1, (\S+) % at\s+8 and (\S+) % at 16", INDEX
    )
    assert found is not None
    assert list(found.groups()) == [stated for stated, _ in in_text]
    assert all(-2 < longer_percent(BF16, BESIDE_BF16, m) < 0 for m in (32, 64))  # "1 % less"
