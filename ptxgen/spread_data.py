"""Seeded inputs whose scales spread widely within a row: what shows how a kernel rounds weights."""

from __future__ import annotations

import torch

from ptxgen.problem import Problem, check_m
from ptxgen.reference import ProblemData, random_problem_data
from ptxgen.weights.quantize import MAX_NIBBLE, TORCH_DTYPES, QuantizedWeight

SMALLEST, LARGEST = 2.0**-24, 60000.0
"""Scales of fp16: its smallest number, and almost its largest."""
X_EXPONENTS = (-13, 13)
"""Of the sizes of activations: normal numbers of fp16 whose products with a group are too."""


def spread_data(
    problem: Problem,
    m: int,
    seed: int = 0,
    smallest: float = SMALLEST,
    largest: float = LARGEST,
) -> ProblemData:
    """Inputs where each token looks at one group alone, and every row has scales of all sizes.

    So no group hides in the sum behind one of larger scales. Token i has activations on group
    i % groups; they are sized for outputs near 1. Nibbles are uniform, but |q - zero| * scale stays
    a number of the problem's dtype.

    Args:
        problem: its groups share out smallest to largest, evenly in powers of two, shuffled; in
            every
            row each is off by up to 2 times.
        m: tokens.
        seed: of all values.
        smallest: scale.
        largest: scale.
    """
    check_m(m)
    generator = torch.Generator().manual_seed(seed)
    groups, dtype = problem.num_groups, TORCH_DTYPES[problem.dtype]
    low, high = torch.tensor([smallest, largest], dtype=torch.float64).log2().tolist()
    middles = torch.linspace(low, high, groups, dtype=torch.float64)
    middles = middles[torch.randperm(groups, generator=generator)]
    shifts = 2 * torch.rand(problem.n, groups, generator=generator, dtype=torch.float64) - 1
    scales = (2.0 ** (middles + shifts)).clamp(smallest, largest).to(dtype)
    weight = _nibbles(problem, scales, generator)
    look = torch.arange(m) % groups
    sizes = 2.0 ** (-3 - middles[look]).round().clamp(*X_EXPONENTS)
    x = torch.zeros(m, groups, problem.group_size, dtype=torch.float64)
    values = torch.randn(m, problem.group_size, generator=generator, dtype=torch.float64)
    x[torch.arange(m), look] = values * sizes.unsqueeze(1)
    bias = random_problem_data(problem, 1, seed).bias
    return ProblemData(x.view(m, problem.k).to(dtype), weight, bias)


def _nibbles(problem: Problem, scales: torch.Tensor, generator: torch.Generator) -> QuantizedWeight:
    shape = (problem.n, problem.num_groups, problem.group_size)
    q = torch.randint(0, MAX_NIBBLE + 1, shape, generator=generator)
    zeros = torch.full(shape[:2], 8)
    if problem.zero == "int":
        zeros = torch.randint(0, MAX_NIBBLE + 1, shape[:2], generator=generator)
    most = torch.finfo(scales.dtype).max / scales.double()
    most = most.clamp(max=MAX_NIBBLE).floor().long().unsqueeze(-1)
    middle = zeros.unsqueeze(-1)
    q = torch.minimum(torch.maximum(q, middle - most), middle + most)
    return QuantizedWeight(
        q.to(torch.uint8).view(problem.n, problem.k),
        scales,
        zeros.to(torch.uint8) if problem.zero == "int" else None,
    )
