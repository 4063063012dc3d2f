"""The self-test vector: exact, as documented, and sharp enough."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from bundle_helpers import plan, small_bundle

from ptxgen.bundle import selftest
from ptxgen.bundle.words import SELF_TEST
from ptxgen.problem import Problem
from ptxgen.weights.quantize import dequantize

PROBLEMS = [
    Problem(n=40, k=k, group_size=group, dtype=dtype, zero=zero, bias=bias)
    for (k, group), dtype, zero, bias in itertools.product(
        [(160, 32), (256, 128), (160, 160)], ["fp16", "bf16"], ["sym", "int"], [False, True]
    )
]
MASK = 0xFFFFFFFF


def documented_hash(stream: int, index: int) -> int:
    """words.SELF_TEST["hash"], in Python integers."""
    h = (index * 0x9E3779B1 + stream * 0x85EBCA77 + 1) & MASK
    h ^= h >> 16
    h = h * 0x7FEB352D & MASK
    h ^= h >> 15
    h = h * 0x846CA68B & MASK
    return h ^ h >> 16


def documented_y(p: Problem, row: int, n: int) -> float:
    """One output of the formula, element by element; every step is exact in a Python float."""
    groups = p.num_groups
    y = ((documented_hash(5, n) & 63) - 32) / 16 if p.bias else 0.0
    for k in range(p.k):
        g = n * groups + k // p.group_size
        q = documented_hash(1, n * (p.k // 8) + k // 8) >> (4 * (k % 8)) & 15
        scale = (8 + (documented_hash(2, g) & 7)) / 1024
        zero = documented_hash(3, g) & 15 if p.zero == "int" else 8
        x = ((documented_hash(4, row % 5 * p.k + k) & 31) - 16) / 16
        y += x * (q - zero) * scale
    return y


def test_documented_constants_are_the_codes() -> None:
    for constant in ("0x9E3779B1", "0x85EBCA77", "0x7FEB352D", "0x846CA68B"):
        assert constant in SELF_TEST["hash"]


@pytest.mark.parametrize("problem", PROBLEMS, ids=Problem.key)
def test_expected_output_is_the_documented_formula(problem: Problem) -> None:
    rows = selftest.expected(problem, selftest.self_test(problem))
    assert rows.shape == (5, problem.n)
    for row, n in [(0, 0), (1, 39), (4, 7), (3, 20)]:
        assert rows[row, n] == documented_y(problem, row, n)


@pytest.mark.parametrize("problem", PROBLEMS, ids=Problem.key)
def test_expected_output_is_what_the_weights_package_dequantizes(problem: Problem) -> None:
    test = selftest.self_test(problem)
    y = test.x.double() @ dequantize(test.weight, problem, torch.float64).T
    if test.bias is not None:
        y += test.bias.double()
    assert torch.equal(y.float(), torch.from_numpy(selftest.expected(problem, test)))


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_sums_are_exact_in_fp32_in_any_order(dtype: str) -> None:
    problem = Problem(n=64, k=8192, dtype=dtype, zero="int", bias=True)
    test = selftest.self_test(problem)
    weight = dequantize(test.weight, problem, torch.float32)
    assert torch.equal(weight, weight.to(test.x.dtype).float())  # dequantizing loses nothing
    order = torch.randperm(problem.k, generator=torch.Generator().manual_seed(1))
    y = torch.zeros(5, problem.n)
    for part in order.split(513):
        y += test.x.float()[:, part] @ weight[:, part].T
    assert test.bias is not None
    wanted = torch.from_numpy(selftest.expected(problem, test))
    assert torch.equal(y + test.bias.float(), wanted)


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_rounding_passes_and_one_wrong_weight_does_not(dtype: str) -> None:
    problem = Problem(n=64, k=512, dtype=dtype)
    test = selftest.self_test(problem)
    limits = selftest.info(problem)
    rows = torch.from_numpy(selftest.expected(problem, test))
    y = rows[torch.arange(8) % 5].to(test.x.dtype)
    assert selftest.worst_excess(y, rows, limits) <= 0
    wrong = test.weight.q.clone()
    wrong[17, 100] ^= 8
    spoilt = selftest.SelfTest(
        type(test.weight)(wrong, test.weight.scales, test.weight.zeros), test.x, test.bias
    )
    y = torch.from_numpy(selftest.expected(problem, spoilt)).to(test.x.dtype)
    assert selftest.worst_excess(y, rows, limits) > 0


def test_hash_is_spread_evenly() -> None:
    codes = selftest.self_test(Problem(n=512, k=512)).weight.q.numpy()
    counts = np.bincount(codes.ravel(), minlength=16)
    assert counts.size == 16
    assert abs(counts / codes.size * 16 - 1).max() < 0.03


@pytest.mark.parametrize(
    ("block_m", "m_max", "below", "m"),
    [(8, 1, 0, 1), (8, 8, 1, 8), (16, 64, 8, 39), (64, 8192, 256, 383), (128, 200, 64, 200)],
)
def test_batch_reaches_its_own_bucket(block_m: int, m_max: int, below: int, m: int) -> None:
    made = plan(Problem(n=64, k=128), block_m, 32, 1)
    found = selftest.batch_for(made, m_max, below)
    assert found == m
    assert below < found <= m_max


def test_the_file_holds_the_expected_rows(tmp_path: Path) -> None:
    problem = Problem(n=72, k=128, bias=True)
    folder = small_bundle(tmp_path / "bundle", problem)
    data = json.loads((folder / "manifest.json").read_text())["self_test"]
    values = np.fromfile(folder / data["file"], "<f4").reshape(data["rows"], problem.n)
    assert np.array_equal(values, selftest.expected(problem, selftest.self_test(problem)))
