"""The correctness gate, with CPU functions in place of kernels: each fault is named."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from ptxgen.check import GUARD_ELEMENTS, CheckResult, GuardedBuffer, check, compare
from ptxgen.problem import Problem
from ptxgen.reference import random_problem_data, reference_output
from ptxgen.weights.quantize import TORCH_DTYPES

M, N, K = 5, 64, 256


def setup(dtype: str) -> tuple[Problem, Tensor]:
    problem = Problem(N, K, 128, dtype)  # type: ignore[arg-type]
    data = random_problem_data(problem, M, seed=1)
    return problem, reference_output(data.x, data.weight, problem)


def run(dtype: str, kernel: object) -> CheckResult:
    problem, ref = setup(dtype)
    rounded = ref.to(TORCH_DTYPES[problem.dtype])
    return check(lambda y: kernel(y, rounded), problem, ref)  # type: ignore[operator]


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_a_right_result_passes(dtype: str) -> None:
    result = run(dtype, lambda y, right: y.copy_(right))
    assert result.ok, result
    assert 0 <= result.rel_err < 1e-2


def outside(y: Tensor, right: Tensor, where: int) -> None:
    y.copy_(right)
    storage = torch.empty(0, dtype=y.dtype).set_(y.untyped_storage())
    storage[y.storage_offset() + where] = 1.0


def leave_one(y: Tensor, right: Tensor) -> None:
    y[:, :-1] = right[:, :-1]


def one_row_wrong(y: Tensor, right: Tensor) -> None:
    y.copy_(right)
    y[3] = 0


def one_feature_wrong(y: Tensor, right: Tensor) -> None:
    y.copy_(right)
    y[:, 7] *= 1.5


def a_nan(y: Tensor, right: Tensor) -> None:
    y.copy_(right)
    y[2, 3] = float("nan")


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (lambda y, right: outside(y, right, M * N), "1 elements outside"),
        (lambda y, right: outside(y, right, -1), "1 elements outside"),
        (lambda y, right: outside(y, right, M * N + GUARD_ELEMENTS - 1), "1 elements outside"),
        (leave_one, "5 outputs unwritten"),
        (lambda y, right: None, f"{M * N} outputs unwritten"),
        (one_row_wrong, "relative error"),
        (one_feature_wrong, "error"),
        (a_nan, "relative error inf"),
        (lambda y, right: y.copy_(right * 1.01), "relative error"),
        (lambda y, right: y.copy_(-right), "relative error"),
    ],
)
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_faults_are_named(dtype: str, kernel: object, message: str) -> None:
    result = run(dtype, kernel)
    assert not result.ok
    assert message in result.message


def test_a_result_that_changes_between_runs_is_a_fault() -> None:
    calls = itertools.count()

    def kernel(y: Tensor, right: Tensor) -> None:
        y.copy_(right)
        y[0, 0] += next(calls) * 2.0**-8

    result = run("fp16", kernel)
    assert not result.ok
    assert "2 runs on the same inputs differ" in result.message


def test_overflow_must_be_inf_exactly_where_it_is_due() -> None:
    problem = Problem(N, K)
    ref = torch.full((2, N), 1.0, dtype=torch.float64)
    ref[0, 0], ref[1, 1] = 1e6, -1e6
    right = ref.to(torch.float16)
    assert compare(right, problem, ref).ok
    for row, column in ((0, 0), (1, 1)):
        wrong = right.clone()
        wrong[row, column] = 65504.0
        assert "beyond the dtype's range" in compare(wrong, problem, ref).message
    wrong = right.clone()
    wrong[1, 1] = float("inf")  # the wrong sign
    assert not compare(wrong, problem, ref).ok


def test_the_poison_is_a_nan_in_both_dtypes() -> None:
    for dtype in (torch.float16, torch.bfloat16):
        buffer = GuardedBuffer.create((2, 8), dtype, torch.device("cpu"))
        assert buffer.body.isnan().all()
        assert buffer.unwritten() == 16
        assert buffer.damaged() == 0
