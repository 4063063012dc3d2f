"""The reference against exact rational arithmetic, and the error measures against known faults."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch

from ptxgen.errors import ProblemError, TensorError
from ptxgen.problem import Problem
from ptxgen.reference import (
    FEATURE_TOLERANCES,
    SCALE_RANGE,
    TOLERANCES,
    random_problem_data,
    reference_output,
    relative_error,
    worst_feature_error,
)
from ptxgen.weights.quantize import TORCH_DTYPES, QuantizedWeight, dequantize

KINDS = [
    Problem(16, 64, group, dtype, zero, bias)  # type: ignore[arg-type]
    for group in (32, 64)
    for dtype in ("fp16", "bf16")
    for zero in ("sym", "int")
    for bias in (False, True)
]


@pytest.mark.parametrize("problem", KINDS, ids=Problem.key)
def test_output_is_what_rational_arithmetic_says(problem: Problem) -> None:
    data = random_problem_data(problem, m=2, seed=5)
    found = reference_output(data.x, data.weight, problem, data.bias)
    zeros = data.weight.zeros
    for m in range(2):
        for n in range(problem.n):
            exact = Fraction(float(data.bias[n])) if data.bias is not None else Fraction(0)
            for k in range(problem.k):
                group = k // problem.group_size
                zero = 8 if zeros is None else int(zeros[n, group])
                step = int(data.weight.q[n, k]) - zero
                scale = Fraction(float(data.weight.scales[n, group]))
                exact += Fraction(float(data.x[m, k])) * step * scale
            assert float(found[m, n]) == pytest.approx(float(exact), rel=1e-13, abs=1e-15)


def test_chunks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem(40, 96, 32, "bf16", "int", bias=True)
    data = random_problem_data(problem, m=3)
    whole = reference_output(data.x, data.weight, problem, data.bias)
    monkeypatch.setattr("ptxgen.reference.CHUNK_BYTES", 7 * 96 * 8)
    parts = reference_output(data.x, data.weight, problem, data.bias)
    assert torch.allclose(parts, whole, rtol=1e-14, atol=1e-14)
    assert relative_error(parts, whole) < 1e-14


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("m", [1, 8])
def test_a_right_kernel_passes_and_one_wrong_group_does_not(dtype: str, m: int) -> None:
    problem = Problem(512, 1024, 128, dtype, "int")  # type: ignore[arg-type]
    data = random_problem_data(problem, m, seed=1)
    ref = reference_output(data.x, data.weight, problem)
    half = TORCH_DTYPES[problem.dtype]
    weights = dequantize(data.weight, problem).to(half).float()
    right = (data.x.float() @ weights.t()).to(half)
    assert relative_error(right, ref) < TOLERANCES[problem.dtype] / 3
    assert worst_feature_error(right, ref) < FEATURE_TOLERANCES[problem.dtype] / 2
    q = data.weight.q.clone()
    q[77, 128:256] ^= 1
    q[77, 256:384] = 15 - q[77, 256:384]
    wrong = QuantizedWeight(q, data.weight.scales, data.weight.zeros)
    faulty = reference_output(data.x, wrong, problem).to(half)
    assert worst_feature_error(faulty, ref) > FEATURE_TOLERANCES[problem.dtype]


def test_errors_have_their_meaning_and_leave_their_inputs_alone() -> None:
    ref = torch.tensor([[3.0, 4.0], [0.0, 0.0]], dtype=torch.float64)
    out = ref.clone()
    out[0, 0] += 0.5
    before = ref.clone()
    assert relative_error(out, ref) == pytest.approx(0.1)
    # feature norms are 3 and 4: their root mean square is sqrt(12.5)
    assert worst_feature_error(out, ref) == pytest.approx(0.5 / math.sqrt(12.5))
    assert torch.equal(ref, before)


@pytest.mark.parametrize("measure", [relative_error, worst_feature_error])
def test_what_is_no_number_is_infinitely_wrong(measure) -> None:  # type: ignore[no-untyped-def]
    ref = torch.ones(4, 8)
    for bad in (math.nan, math.inf, -math.inf):
        out = ref.clone()
        out[3, 7] = bad
        assert measure(out, ref) == math.inf
    assert measure(torch.ones(4, 7), ref) == math.inf
    assert measure(ref, torch.zeros(4, 8)) == math.inf
    assert measure(torch.zeros(4, 8), torch.zeros(4, 8)) == 0.0
    assert measure(torch.zeros(0, 8), torch.zeros(0, 8)) == 0.0
    assert measure(ref.half(), ref) == 0.0


@pytest.mark.parametrize("problem", KINDS, ids=Problem.key)
def test_data_follow_the_seed_and_fit_the_problem(problem: Problem) -> None:
    data, again = (random_problem_data(problem, 3, seed=9) for _ in range(2))
    other = random_problem_data(problem, 3, seed=10)
    assert torch.equal(data.x, again.x)
    assert torch.equal(data.weight.q, again.weight.q)
    assert torch.equal(data.weight.scales, again.weight.scales)
    assert not torch.equal(data.weight.q, other.weight.q)
    assert data.x.shape == (3, problem.k)
    assert data.x.dtype == data.weight.scales.dtype == TORCH_DTYPES[problem.dtype]
    assert (data.bias is not None) == problem.bias
    low, high = SCALE_RANGE
    assert low * 0.99 < float(data.weight.scales.min()) < float(data.weight.scales.max())
    assert float(data.weight.scales.max()) < high * 1.01


def test_data_cover_every_nibble_and_zero_point() -> None:
    data = random_problem_data(Problem(256, 1024, 128, "fp16", "int"), 0)
    assert data.weight.zeros is not None
    assert data.weight.q.unique().tolist() == list(range(16))
    assert data.weight.zeros.unique().tolist() == list(range(16))
    assert data.x.shape == (0, 1024)


@pytest.mark.parametrize("m", [-1, 1 << 21])
def test_no_batch_is_refused(m: int) -> None:
    with pytest.raises(ProblemError, match="batch size"):
        random_problem_data(Problem(8, 32, 32), m)


def test_inputs_that_do_not_fit_are_refused() -> None:
    problem = Problem(16, 64, 32, bias=True)
    data = random_problem_data(problem, 2)
    with pytest.raises(TensorError, match="K = 64"):
        reference_output(data.x[:, :32], data.weight, problem, data.bias)
    with pytest.raises(TensorError, match="bias is missing"):
        reference_output(data.x, data.weight, problem)
    with pytest.raises(TensorError, match=r"needs \(16,\)"):
        reference_output(data.x, data.weight, problem, torch.zeros(8))
    with pytest.raises(TensorError, match="has none"):
        reference_output(data.x, data.weight, Problem(16, 64, 32), data.bias)
