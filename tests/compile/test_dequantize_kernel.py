"""The dequantize kernel: every bit of the dense weight, in the interpreter; every arch compiles."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from ptxgen.arch import ARCHS
from ptxgen.check import POISON
from ptxgen.compile import compile_source
from ptxgen.dequantize.emit import emit_dequantize
from ptxgen.interp import Counts, GlobalMemory, Launch, Schedule, load_program, run
from ptxgen.problem import GROUP_SIZES, Problem
from ptxgen.weights.pack import pack
from ptxgen.weights.quantize import TORCH_DTYPES, QuantizedWeight, dequantize

pytestmark = pytest.mark.compile

PAD = 8
"""Elements between two rows of the dense weight: nothing may be written there."""


def weight_of(problem: Problem) -> QuantizedWeight:
    """Every nibble with every zero point, under scales of all sizes and both signs.

    Zero points count up along the groups of a row and along the rows; the nibbles of a group are
    0..15 over and over, begun elsewhere in every row.
    """
    n, groups = problem.n, problem.num_groups
    q = torch.arange(problem.k) + torch.arange(n).unsqueeze(1) * 5
    dtype = TORCH_DTYPES[problem.dtype]
    made = torch.Generator().manual_seed(3)
    scales = torch.randn(n, groups, generator=made) * torch.exp2(
        torch.randint(-26, 12, (n, groups), generator=made)
    )
    largest = 2.0**58 if problem.dtype == "bf16" else torch.finfo(dtype).max  # that pack takes
    scales[:, 0] = torch.tensor([0.0, torch.finfo(dtype).tiny / 4, largest, -1.0]).repeat(n // 4)
    zeros = torch.arange(groups) + torch.arange(n).unsqueeze(1)
    return QuantizedWeight(
        (q % 16).to(torch.uint8),
        scales.to(dtype),
        (zeros % 16).to(torch.uint8) if problem.zero == "int" else None,
    )


def dequantized(problem: Problem, arch: str, schedule: Schedule) -> tuple[Tensor, Tensor, Counts]:
    """(dense weight [N, K], what lies between its rows, counts) of the kernel, interpreted."""
    source = emit_dequantize(problem, ARCHS[arch])
    compiled = compile_source(source)
    memory = GlobalMemory()
    packed = pack(weight_of(problem), problem)
    weights = memory.allocate("packed", packed.numpy(), readonly=True)
    ldy = problem.k + PAD
    y = memory.allocate("y", np.full((problem.n, ldy), POISON, dtype=np.uint16))
    launch = Launch(
        source.plan.grid(problem.k),
        (source.plan.threads, 1, 1),
        source.plan.smem_bytes,
        (0, weights, 0, y, 0, problem.k, 0, ldy),
    )
    report = run(load_program(compiled.ptx, source.entry), launch, memory, schedule)
    rows = torch.from_numpy(memory.array("y").astype(np.int16))
    return rows[:, : problem.k], rows[:, problem.k :], report.counts


CASES = [
    *(
        (Problem(72, 544, 32, dtype, "int"), arch)  # type: ignore[arg-type]
        for dtype, arch in itertools.product(("fp16", "bf16"), ("sm_80", "sm_90a"))
    ),
    *((Problem(64, 384, group, "fp16", "sym"), "sm_90a") for group in GROUP_SIZES),
    *((Problem(128, 256, group, "bf16", "int"), "sm_90a") for group in GROUP_SIZES),
    (Problem(64, 416, 416, "fp16", "int"), "sm_80"),
    (Problem(136, 288, 288, "bf16", "sym"), "sm_90a"),
    (Problem(8, 32, 32, "fp16", "int"), "sm_90a"),
    (Problem(64, 128, 128, "bf16", "sym"), "sm_80"),
]


def named(value: Problem | str) -> str:
    return value.key() if isinstance(value, Problem) else value


@pytest.mark.parametrize(("problem", "arch"), CASES, ids=named)
def test_every_bit_is_that_of_the_rounded_weight(problem: Problem, arch: str) -> None:
    expected = dequantize(weight_of(problem), problem).to(TORCH_DTYPES[problem.dtype])
    found, between, counts = dequantized(problem, arch, Schedule(1, "random", resident=3))
    assert torch.equal(found, expected.view(torch.int16))
    assert bool((between == np.int16(np.uint16(POISON).view(np.int16))).all())
    assert counts.bytes["global_write"] == 2 * problem.n * problem.k, "each value once"
    assert {name for name in counts.opcodes if name.startswith("st.")} == {"st.global.v4.b32"}


def test_the_cases_hold_every_nibble_with_every_zero_point() -> None:
    for dtype in ("fp16", "bf16"):
        problem = Problem(72, 544, 32, dtype, "int")  # type: ignore[arg-type]
        weight = weight_of(problem)
        assert weight.zeros is not None
        zeros = weight.zeros.repeat_interleave(32, dim=1)
        pairs = {*zip(weight.q.flatten().tolist(), zeros.flatten().tolist(), strict=True)}
        assert pairs == {*itertools.product(range(16), range(16))}
        dense = dequantize(weight, problem).to(TORCH_DTYPES[problem.dtype])
        tiny = torch.finfo(dense.dtype).tiny
        assert bool(((dense != 0) & (dense.abs() < tiny)).any()), "subnormal results"
        assert bool(dense.isinf().any()) is (dtype == "fp16"), "results beyond the dtype's range"
        assert bool(((dense == 0) & dense.signbit()).any()), "negative zeros"


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("zero", ["sym", "int"])
def test_every_arch_compiles_it_without_local_memory(arch: str, dtype: str, zero: str) -> None:
    for k, group in ((4096, 128), (2752, 32), (416, 416)):
        problem = Problem(232, k, group, dtype, zero)  # type: ignore[arg-type]
        compiled = compile_source(emit_dequantize(problem, ARCHS[arch]))
        assert compiled.resources.spill_bytes == 0
        assert compiled.resources.registers <= 64, "four CTAs of 256 threads fit an SM"
        assert f".target {arch}" in compiled.ptx
