"""Group quantization against brute force over every nibble, and its exact inverse."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
import torch

from ptxgen.errors import TensorError, UnderflowWarning
from ptxgen.problem import Problem
from ptxgen.weights.quantize import (
    TORCH_DTYPES,
    QuantizedWeight,
    check_quantized,
    dequantize,
    dequantize_rows,
    quantize,
)

PROBLEMS = [
    Problem(16, 256, group, dtype, zero)  # type: ignore[arg-type]
    for group in (32, 64, 128, 256)
    for dtype in ("fp16", "bf16")
    for zero in ("sym", "int")
]


def random_weight(problem: Problem, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(problem.n, problem.k, generator=generator) * 0.02


def zeros_of(weight: QuantizedWeight) -> torch.Tensor:
    return torch.full_like(weight.scales, 8) if weight.zeros is None else weight.zeros


@pytest.mark.parametrize("problem", PROBLEMS, ids=Problem.key)
def test_each_value_gets_the_nearest_of_all_sixteen(problem: Problem) -> None:
    weight = random_weight(problem)
    found = quantize(weight, problem)
    groups = weight.double().view(problem.n, problem.num_groups, -1)
    steps = torch.arange(16).double() - zeros_of(found).double().unsqueeze(-1)
    values = steps * found.scales.double().unsqueeze(-1)  # [N, groups, 16]
    distance = (groups.unsqueeze(-1) - values.unsqueeze(2)).abs()
    chosen = distance.gather(-1, found.q.view(*groups.shape, 1).long()).squeeze(-1)
    # the division in FP32 may decide a tie either way
    slack = 1e-6 * found.scales.double().unsqueeze(-1)
    assert bool((chosen <= distance.min(dim=-1).values + slack).all())


@pytest.mark.parametrize("problem", PROBLEMS, ids=Problem.key)
def test_no_value_is_off_by_more_than_half_a_step(problem: Problem) -> None:
    weight = random_weight(problem, seed=1)
    found = quantize(weight, problem)
    error = (dequantize(found, problem, torch.float64) - weight.double()).abs()
    steps = found.scales.double().repeat_interleave(problem.group_size, dim=1)
    # The scale's own rounding moves the ends of the range by up to 8 steps * 2^-9. An integer zero
    # point shifts the range by up to another half step.
    limit = 0.5 + 8 * 2.0**-8 + (0.5 if problem.zero == "int" else 0)
    assert bool((error <= limit * steps).all())


def test_whole_grid_is_kept_exactly() -> None:
    """A weight that is on the grid already, with both ends in every group, keeps its values."""
    problem = Problem(16, 128, 32, "fp16", "int")
    generator = torch.Generator().manual_seed(3)
    zeros = torch.arange(16, dtype=torch.uint8).repeat(16, 1)[:, :4].contiguous()
    zeros[:, 0] = torch.arange(16, dtype=torch.uint8)  # every zero point occurs
    scales = torch.full((16, 4), 2.0**-6, dtype=torch.float16)
    q = torch.randint(0, 16, (16, 128), generator=generator, dtype=torch.uint8)
    q[:, ::32], q[:, 1::32] = 0, 15
    truth = QuantizedWeight(q, scales, zeros)
    again = quantize(dequantize(truth, problem), problem)
    assert torch.equal(again.q, q)
    assert torch.equal(again.scales, scales)
    assert again.zeros is not None
    assert torch.equal(again.zeros, zeros)


@pytest.mark.parametrize("zero", ["sym", "int"])
def test_a_group_of_zeros_stays_zero(zero: str) -> None:
    problem = Problem(8, 64, 32, "fp16", zero)  # type: ignore[arg-type]
    weight = random_weight(problem)
    weight[3, 32:] = 0
    found = quantize(weight, problem)
    assert found.scales[3, 1] == 0
    assert torch.count_nonzero(dequantize(found, problem)[3, 32:]) == 0


@pytest.mark.parametrize("sign", [1, -1])
def test_a_group_of_one_sign_uses_the_whole_range(sign: int) -> None:
    problem = Problem(8, 32, 32, "fp16", "int")
    weight = sign * torch.linspace(0.5, 1.5, 32).repeat(8, 1)
    found = quantize(weight, problem)
    assert found.zeros is not None
    assert bool((found.zeros == (0 if sign > 0 else 15)).all())
    assert int(found.q.max()) == (15 if sign > 0 else 10)


def test_tiny_weights_whose_scale_underflows_become_zero() -> None:
    problem = Problem(8, 32, 32, "fp16", "sym")
    with pytest.warns(UnderflowWarning):
        found = quantize(torch.full((8, 32), 1e-9), problem)
    assert torch.count_nonzero(dequantize(found, problem)) == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_float_dtype_is_taken(dtype: torch.dtype) -> None:
    problem = Problem(16, 128, 64, "bf16", "int")
    weight = random_weight(problem).to(torch.bfloat16)  # exact in all four but fp16
    weight = weight.to(torch.float16) if dtype == torch.float16 else weight
    found, same = quantize(weight.to(dtype), problem), quantize(weight.float(), problem)
    assert torch.equal(found.q, same.q)
    assert torch.equal(found.scales, same.scales)


def test_chunks_of_rows_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem(40, 96, 32, "fp16", "int")
    weight = random_weight(problem)
    whole = quantize(weight, problem)
    monkeypatch.setattr("ptxgen.weights.quantize.CHUNK_ELEMENTS", 7 * 96)
    parts = quantize(weight, problem)
    assert torch.equal(parts.q, whole.q)
    assert torch.equal(parts.scales, whole.scales)


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_dequantize_is_exact_for_every_nibble_and_zero_point(dtype: str) -> None:
    problem = Problem(16, 32, 32, dtype, "int")  # type: ignore[arg-type]
    q = torch.arange(16, dtype=torch.uint8).repeat(16, 2)
    zeros = torch.arange(16, dtype=torch.uint8).view(16, 1)
    scales = (torch.rand(16, 1, generator=torch.Generator().manual_seed(0)) * 0.1).to(
        TORCH_DTYPES[dtype]
    )
    for out_dtype in (torch.float32, torch.float64):
        values = dequantize(QuantizedWeight(q, scales, zeros), problem, out_dtype)
        for row in range(16):
            for col in range(16):
                exact = (col - row) * Fraction(float(scales[row, 0]))
                assert Fraction(float(values[row, col])) == exact
    half = dequantize(QuantizedWeight(q, scales, zeros), problem, TORCH_DTYPES[dtype])
    assert torch.equal(half, values.to(TORCH_DTYPES[dtype]))


def test_rows_are_those_of_the_whole() -> None:
    problem = Problem(32, 64, 32, "fp16", "int")
    weight = quantize(random_weight(problem), problem)
    whole = dequantize(weight, problem)
    assert torch.equal(dequantize_rows(weight, problem, slice(5, 21)), whole[5:21])


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("zero", ["sym", "int"])
def test_a_weight_that_is_not_finite_is_refused(bad: float, zero: str) -> None:
    problem = Problem(8, 64, 32, "fp16", zero)  # type: ignore[arg-type]
    weight = random_weight(problem)
    weight[7, 40] = bad
    with pytest.raises(TensorError, match="NaN or inf"):
        quantize(weight, problem)


def test_a_scale_beyond_the_dtype_is_refused_and_bf16_holds_it() -> None:
    weight = torch.full((8, 32), 1e6)
    with pytest.raises(TensorError, match=r"65504.*bf16"):
        quantize(weight, Problem(8, 32, 32, "fp16"))
    assert bool(torch.isfinite(quantize(weight, Problem(8, 32, 32, "bf16")).scales).all())


@pytest.mark.parametrize(
    ("weight", "match"),
    [
        (torch.zeros(64, 8), r"\(64, 8\).*\(8, 64\)"),
        (torch.zeros(8, 64, dtype=torch.int32), "int32"),
        (torch.zeros(8, 64, 1), "shape"),
    ],
)
def test_a_wrong_tensor_is_refused(weight: torch.Tensor, match: str) -> None:
    with pytest.raises(TensorError, match=match):
        quantize(weight, Problem(8, 64, 32))


GOOD = QuantizedWeight(
    torch.zeros(8, 64, dtype=torch.uint8),
    torch.ones(8, 2, dtype=torch.float16),
    torch.zeros(8, 2, dtype=torch.uint8),
)


@pytest.mark.parametrize(
    ("weight", "match"),
    [
        (replace(GOOD, q=GOOD.q + 16), "q .*holds 16"),
        (replace(GOOD, q=GOOD.q.t()), "q is"),
        (replace(GOOD, q=GOOD.q.to(torch.int8)), "q is torch.int8"),
        (replace(GOOD, scales=GOOD.scales.float()), "scales is torch.float32"),
        (replace(GOOD, scales=GOOD.scales * float("nan")), "NaN or inf"),
        (replace(GOOD, scales=GOOD.scales[:, :1]), "scales is"),
        (replace(GOOD, zeros=None), "needs integer zero points"),
        (replace(GOOD, zeros=GOOD.zeros + 200), "zeros .*holds 200"),  # type: ignore[operator]
        (replace(GOOD, scales=GOOD.scales.to("meta")), "move them to one device"),
    ],
)
def test_a_quantized_weight_that_does_not_fit_is_refused(
    weight: QuantizedWeight, match: str
) -> None:
    check_quantized(GOOD, Problem(8, 64, 32, "fp16", "int"))
    with pytest.raises(TensorError, match=match):
        dequantize(weight, Problem(8, 64, 32, "fp16", "int"))


def test_zero_points_of_a_symmetric_problem_are_refused() -> None:
    with pytest.raises(TensorError, match="symmetric"):
        check_quantized(GOOD, Problem(8, 64, 32, "fp16", "sym"))


@pytest.mark.parametrize("zero", ["sym", "int"])
@pytest.mark.parametrize(
    ("dtype", "small", "way_out"),
    [("fp16", 1e-7, "use bf16 scales"), ("bf16", 1e-41, "scale the layer up")],
)
def test_groups_that_underflow_are_counted_and_told(
    zero: str, dtype: str, small: float, way_out: str
) -> None:
    """Three groups have values and no scale; one has no values, which is nothing to tell of."""
    problem = Problem(16, 256, 64, dtype, zero)  # type: ignore[arg-type]
    weight = random_weight(problem)
    groups = weight.view(16, 4, 64)
    groups[2, 1] *= small / groups[2, 1].abs().max()
    groups[2, 3] *= small / groups[2, 3].abs().max()
    groups[15, 0] = 0
    groups[15, 0, 7] = -small / 2
    groups[9, 2] = 0
    with pytest.warns(UnderflowWarning, match=rf"^3 of the 64 groups .* {way_out} or") as caught:
        found = quantize(weight, problem)
    assert caught[0].filename == __file__
    assert (found.scales == 0).nonzero().tolist() == [[2, 1], [2, 3], [9, 2], [15, 0]]
    assert not bool(dequantize(found, problem).view(16, 4, 64)[found.scales == 0].any())


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_without_underflow_nothing_is_told(dtype: str, recwarn: pytest.WarningsRecorder) -> None:
    problem = Problem(16, 256, 64, dtype)  # type: ignore[arg-type]
    weight = random_weight(problem)
    weight[3] = 0
    weight[4] *= 1e-5
    quantize(weight, problem)
    assert [item for item in recwarn if item.category is UnderflowWarning] == []


def test_scales_that_kernels_cannot_compute_with_are_refused() -> None:
    """In bf16; the largest of fp16 are far below."""
    problem = Problem(16, 256, 64, "bf16")
    weight = quantize(random_weight(problem), problem)
    weight.scales[3, 1] = -(2.0**58)
    check_quantized(weight, problem)
    weight.scales[3, 1] = -(2.0**58) * (1 + 2.0**-7)
    with pytest.raises(TensorError, match=r"reach 2.9.*at most 2\^58"):
        check_quantized(weight, problem)
