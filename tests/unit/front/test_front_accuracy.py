"""The accuracy table: what is measured, what it says, and that a wrong kernel fails it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from torch import Tensor

from ptxgen.problem import Problem
from ptxgen.weights.pack import unpack
from ptxgen.weights.quantize import TORCH_DTYPES, dequantize
from ptxtune.accuracy_text import accuracy_document, accuracy_text
from ptxtune.cli import cli
from search.accuracy import BATCHES, RATIOS
from search.accuracy_child import measured

PROBLEM = Problem(16, 256, 32, "fp16", "int")


def rounded_once(problem: Problem, x: Tensor, packed: Tensor) -> tuple[Tensor, str]:
    dtype = TORCH_DTYPES[problem.dtype]
    weight = dequantize(unpack(packed, problem), problem, torch.float32).to(dtype)
    return (x.double() @ weight.double().t()).to(dtype), "rounded"


def in_the_unit_of_the_row(problem: Problem, x: Tensor, packed: Tensor) -> tuple[Tensor, str]:
    """The largest scale of a row comes to 2^-8 before weights are rounded, as it once did."""
    weight = unpack(packed, problem)
    unit = (weight.scales.double().amax(dim=1, keepdim=True) * 2**8).log2().ceil().exp2()
    small = (dequantize(weight, problem, torch.float64) / unit).half().double() * unit
    return (x.double() @ small.t()).half(), "unit"


def test_one_rounding_of_the_weights_passes_at_every_spread_and_batch() -> None:
    rows = list(measured(PROBLEM, rounded_once, "cpu", 0))
    assert [(row.ratio, row.m) for row in rows] == [(r, m) for r in RATIOS for m in BATCHES]
    assert all(row.passed and row.rel_err > 0 for row in rows)
    assert "All are within it." in accuracy_text(PROBLEM, rows, {"device": "a GPU"})
    assert accuracy_document(PROBLEM, rows, {"device": "a GPU"})["passed"] is True


def test_a_unit_that_is_too_large_fails_where_scales_spread() -> None:
    rows = list(measured(PROBLEM, in_the_unit_of_the_row, "cpu", 0))
    assert {row.ratio for row in rows if not row.passed} >= {1e4, 1e5}
    assert all(row.passed for row in rows if row.ratio == 1)
    assert max(row.rel_err for row in rows if row.ratio == 1e5) > 0.05
    text = accuracy_text(PROBLEM, rows, {"device": "a GPU"})
    assert "FAILED" in text
    assert accuracy_document(PROBLEM, rows, {})["passed"] is False


def test_a_nan_fails() -> None:
    def broken(problem: Problem, x: Tensor, packed: Tensor) -> tuple[Tensor, str]:
        y, family = rounded_once(problem, x, packed)
        return y.index_fill(1, torch.tensor([3]), torch.nan), family

    rows = list(measured(PROBLEM, broken, "cpu", 0))
    assert not any(row.passed for row in rows)


@pytest.mark.parametrize(("dtype", "unit"), [("fp16", "2^-11"), ("bf16", "2^-8")])
def test_best_explain_tells_the_promise(tmp_path: Path, dtype: str, unit: str) -> None:
    words = ["best", "--n", "1024", "--k", "512", "--m", "17", "--dtype", dtype, "--explain"]
    (tmp_path / "none.db").touch()
    words += ["--gpu", "h200", "--db", str(tmp_path / "none.db")]
    done = CliRunner().invoke(cli, words)
    told = [line for line in done.stdout.splitlines() if line.startswith("Numbers: ")]
    assert len(told) == 1
    assert f"rounded once to {dtype}" in told[0]
    assert f"|y - exact| <= {unit} (" in told[0]
    found = json.loads(CliRunner().invoke(cli, [*words, "--json"]).stdout)
    assert f"Numbers: {found['answers'][0]['numbers']}." == told[0]
