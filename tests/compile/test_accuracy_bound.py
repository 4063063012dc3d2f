"""Outputs within the bound of ptxgen.error_bound, for scales of 2^-24 to 60000 within a row."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from wgmma_tma_cases import BASE, SM90A

from ptxgen.compile import compile_source
from ptxgen.config import KernelConfig
from ptxgen.cpucheck.buffers import Buffers, packed_weights
from ptxgen.cpucheck.reduced import Case
from ptxgen.error_bound import error_bound
from ptxgen.families import emit
from ptxgen.families.mma.config import MmaConfig
from ptxgen.families.wgmma.config import WgmmaConfig
from ptxgen.interp import Schedule, load_program, run
from ptxgen.problem import Problem
from ptxgen.reference import ProblemData, reference_output
from ptxgen.source import KernelSource
from ptxgen.spread_data import spread_data
from ptxgen.weights.layout import packed_layout
from ptxgen.weights.spread import spread

pytestmark = pytest.mark.compile

MMA = MmaConfig(
    block_m=16,
    warp_m=8,
    block_n=32,
    warp_n=16,
    block_k=128,
    warps_k=1,
    num_stages=3,
    split_k=1,
    scale_on="weights",
    weights_first=False,
    min_ctas=1,
)
WGMMA = WgmmaConfig(
    block_m=16,
    block_n=64,
    warpgroups=1,
    num_stages=3,
    split_k=1,
    weights_first=False,
    min_ctas=1,
)
TWO_ROW_BLOCKS = replace(BASE, block_n=128, chunk=4)
IN_TURNS = replace(BASE, num_stages=4, warpgroups_k=2, split_k=2)

FP16 = [
    ("sym", MMA),
    ("int", MMA),
    ("sym", replace(MMA, scale_on="accumulators")),
    ("int", replace(MMA, scale_on="accumulators", dequant="subnormal")),
    ("sym", WGMMA),
    ("int", WGMMA),
    ("sym", BASE),
    ("int", BASE),
    ("sym", TWO_ROW_BLOCKS),
    ("int", replace(BASE, multicast=2, split_k=2)),
    ("sym", replace(BASE, max_ctas=132, stream_k=True)),
    ("int", IN_TURNS),
]
BF16 = [
    ("int", MMA),
    ("sym", replace(MMA, scale_on="accumulators")),
    ("int", WGMMA),
    ("sym", BASE),
    ("int", TWO_ROW_BLOCKS),
]


def output(
    case: Case, source: KernelSource, data: ProblemData, packed: torch.Tensor | None = None
) -> torch.Tensor:
    """y [m, N] of one run in the interpreter."""
    compiled = compile_source(source)
    packed = packed_weights(case, data) if packed is None else packed
    buffers = Buffers.create(case, source.plan, data, packed)
    program = load_program(compiled.ptx, compiled.entry)
    run(program, buffers.launch, buffers.memory, Schedule(1, "random", 4))
    return buffers.output()


def worst(case: Case, data: ProblemData, packed: torch.Tensor | None = None) -> float:
    """The largest error in units of the bound."""
    exact = reference_output(data.x, data.weight, case.problem, data.bias)
    bound = error_bound(data.x, data.weight, case.problem, exact, data.bias)
    y = output(case, emit(case.problem, case.config, case.arch), data, packed).double()
    return float(((y - exact).abs() / bound).max())


def without_marks(packed: torch.Tensor, data: ProblemData, problem: Problem) -> torch.Tensor:
    """The packed weight as if every row were narrow: its largest scale comes to 2^-9..2^-8."""
    layout = packed_layout(problem)
    largest = torch.zeros(layout.strips * 64, dtype=torch.float64)
    largest[: problem.n] = data.weight.scales.double().abs().amax(dim=1)
    factors = (2.0 ** (3 - largest.log2().floor())).clamp(max=2.0**15).half()
    table = factors.view(-1, 2, 8).transpose(1, 2).contiguous().view(torch.uint8).flatten()
    packed = packed.clone()
    packed[layout.blocks_bytes : layout.blocks_bytes + layout.factor_bytes] = table
    return packed


def case_of(dtype: str, zero: str, config: KernelConfig) -> Case:
    problem = Problem(72, 512, 32, dtype, zero, bias=True)  # type: ignore[arg-type]
    return Case(problem, config, SM90A, 17)


@pytest.mark.parametrize(
    ("dtype", "zero", "config"),
    [("fp16", *case) for case in FP16] + [("bf16", *case) for case in BF16],
    ids=lambda value: value.key() if isinstance(value, KernelConfig) else value,
)
def test_no_output_is_off_by_more_than_one_rounding_of_each_weight(
    dtype: str, zero: str, config: KernelConfig
) -> None:
    case = case_of(dtype, zero, config)
    data = spread_data(case.problem, case.m)
    assert spread(data.weight).wide_strips == (2 if dtype == "fp16" else 0)
    assert worst(case, data) <= 1


@pytest.mark.parametrize("zero", ["sym", "int"])
def test_the_fast_way_alone_is_far_off(zero: str) -> None:
    """So the bound is one that can be missed: a strip that is not marked misses it by far."""
    case = case_of("fp16", zero, BASE)
    data = spread_data(case.problem, case.m)
    packed = without_marks(packed_weights(case, data), data, case.problem)
    assert worst(case, data, packed) > 50


def test_narrow_rows_of_a_wide_strip_come_out_to_the_bit_as_in_a_narrow_one() -> None:
    """Whatever the other rows have: both ways round the same numbers, and add up the same way."""
    problem = Problem(64, 512, 64, "fp16", "int")
    case = Case(problem, BASE, SM90A, 9)
    narrow = spread_data(problem, case.m, smallest=4000.0, largest=60000.0)
    narrow = replace(narrow, x=(narrow.x.double() / 8).to(narrow.x.dtype))
    scales = narrow.weight.scales.clone()
    scales[5] = spread_data(problem, case.m, largest=4.0).weight.scales[5]
    wide = replace(narrow, weight=replace(narrow.weight, scales=scales))
    assert [spread(item.weight).wide_rows for item in (narrow, wide)] == [0, 1]
    source = emit(problem, BASE, SM90A)
    one, other = (output(case, source, item).view(torch.int16) for item in (narrow, wide))
    others = [n for n in range(64) if n != 5]
    assert torch.equal(one[:, others], other[:, others])
    assert not torch.equal(one[:, 5], other[:, 5])


def test_sums_that_cancel_are_within_the_bound_in_bf16() -> None:
    """Scales of 6e-8, 1000, 1e-3 and 2e-6 in a row, x of +-60: thousands off by that rounding."""
    problem = Problem(72, 512, 32, "bf16", "sym")
    generator = torch.Generator().manual_seed(0)
    case = Case(problem, BASE, SM90A, 24)
    data = spread_data(problem, case.m)
    scales = torch.tensor([6e-8, 1000.0, 1e-3, 2e-6]).repeat(72, 4).to(torch.bfloat16)
    q = torch.randint(0, 16, (72, 512), generator=generator, dtype=torch.uint8)
    x = (120 * torch.rand(24, 512, generator=generator) - 60).to(torch.bfloat16)
    data = replace(data, x=x, weight=replace(data.weight, q=q, scales=scales))
    exact = reference_output(x, data.weight, problem)
    y = output(case, emit(problem, BASE, SM90A), data).double()
    bound = error_bound(x, data.weight, problem, exact)
    assert (y - exact).abs().max() > 1000
    assert torch.all((y - exact).abs() <= bound)
    # It is that rounding and no more: with rounded weights only the output's is left.
    steps = (q.double() - 8) * scales.double().repeat_interleave(32, dim=1)
    product = x.double() @ steps.to(torch.bfloat16).double().t()
    own = 2.0**-8 * product.abs() + 2.0**-22 * 64 * (x.double().abs() @ steps.abs().t())
    assert torch.all((y - product).abs() <= own)
