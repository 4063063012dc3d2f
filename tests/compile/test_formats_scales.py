"""Scales that checkpoints hold and our own quantizer never makes: negative ones, and 0.

GGUF's Q4_0 puts the value of the largest magnitude on -8, so that half of its scales are negative;
a layer with pruned groups has scales of 0.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from test_interp_kernels import CASES, SCHEDULES, Case

from ptxgen.check import compare
from ptxgen.reference import reference_output
from ptxgen.weights.pack import pack

pytestmark = pytest.mark.compile


@pytest.mark.parametrize(
    "name",
    [
        "private",
        "bf16 with zeros, tails and bias",
        "whole K",
        "subnormal nibbles",
        "subnormal nibbles, zeros, tails, groups of 32",
        "wgmma, split K, tails",
    ],
)
def test_kernels_take_negative_scales_and_zeros(name: str) -> None:
    case = Case(*CASES[name])
    weight = case.data.weight
    scales = weight.scales.clone()
    scales[::2] *= -1  # every other feature
    scales[:, 1::2] *= -1  # and every other group of a feature
    scales[1] = 0
    assert (scales < 0).any()
    weight = replace(weight, scales=scales)
    case.packed = pack(weight, case.problem)
    out, _, _ = case.run(SCHEDULES[0])
    expected = reference_output(case.data.x, weight, case.problem, case.data.bias)
    result = compare(out, case.problem, expected)
    assert result.ok, result
    bias = case.data.bias[1] if case.data.bias is not None else 0
    assert torch.equal(out[:, 1], torch.zeros_like(out[:, 1]) + bias)
