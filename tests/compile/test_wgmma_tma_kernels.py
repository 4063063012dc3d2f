"""wgmma_tma kernels on the interpreter: right without races under every schedule, the bits of the
wgmma family, and only the bytes that they must copy."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch
from wgmma_tma_cases import BASE, CASES, SM90A

from ptxgen.compile import CompiledKernel, compile_source
from ptxgen.config import KernelConfig
from ptxgen.cpucheck.buffers import Buffers, packed_weights
from ptxgen.cpucheck.reduced import Case
from ptxgen.cpucheck.run import SCHEDULES, check_compiled
from ptxgen.families import emit, family_named
from ptxgen.families.wgmma.config import WgmmaConfig
from ptxgen.interp import RunReport, Schedule, load_program, run
from ptxgen.problem import Problem
from ptxgen.reference import ProblemData, random_problem_data
from ptxgen.source import KernelSource

pytestmark = pytest.mark.compile


@cache
def built(name: str) -> tuple[KernelSource, CompiledKernel]:
    case = CASES[name]
    source = emit(case.problem, case.config, case.arch)
    return source, compile_source(source)


def ran(
    case: Case, source: KernelSource, compiled: CompiledKernel, data: ProblemData | None = None
) -> tuple[torch.Tensor, RunReport]:
    """Bits of y, and what the interpreter saw, under one schedule."""
    data = data or random_problem_data(case.problem, case.m, 0)
    buffers = Buffers.create(case, source.plan, data, packed_weights(case, data))
    program = load_program(compiled.ptx, compiled.entry)
    report = run(program, buffers.launch, buffers.memory, Schedule(1, "random", 4))
    return buffers.output().view(torch.int16), report


@pytest.mark.sampled
@pytest.mark.parametrize("name", CASES)
def test_right_without_races_under_every_schedule(name: str) -> None:
    source, compiled = built(name)
    checked = check_compiled(CASES[name], source, compiled, SCHEDULES)
    assert [str(failure) for failure in checked.failures] == []
    assert compiled.resources.spill_bytes == 0
    assert (source.plan.workspace_bytes(1) > 0) == name.startswith("stream-K")


WGMMA = WgmmaConfig(
    block_m=8,
    block_n=64,
    warpgroups=1,
    num_stages=3,
    split_k=1,
    weights_first=False,
    min_ctas=1,
)


@pytest.mark.parametrize("split_k", [1, 2, 4])
@pytest.mark.parametrize(
    "problem",
    [Problem(72, 672, 32, "fp16", "int", bias=True), Problem(64, 544, 544, "bf16")],
    ids=lambda problem: problem.key(),
)
def test_kernels_of_one_order_of_sums_give_the_same_bits(problem: Problem, split_k: int) -> None:
    """Weights are normal numbers in the units of both families, whose keys differ in the name."""
    m = 19
    wgmma = replace(WGMMA, split_k=split_k)
    configs: list[KernelConfig] = [
        replace(BASE, split_k=split_k, block_m=32),
        replace(BASE, split_k=split_k, block_m=64, multicast=2, block_n=128, chunk=4),
    ]
    if split_k == 1:
        configs.append(replace(BASE, max_ctas=132, num_stages=5, block_m=24))
    # Of a whole-K scale, wgmma scales each part of a split, and this family their sum.
    if split_k == 1 or not problem.whole_k:
        configs.append(wgmma)
    keys = {
        family_named(c.family).summation_key(problem, c).replace("wgmma_tma", "wgmma")
        for c in configs
    }
    assert len(keys) == 1
    own = family_named("wgmma").summation_key(problem, wgmma)
    assert (own in keys) == (wgmma in configs)
    outputs = []
    for config in configs:
        case = Case(problem, config, SM90A, m)
        source = emit(problem, config, SM90A)
        outputs.append(ran(case, source, compile_source(source))[0])
    assert all(torch.equal(outputs[0], other) for other in outputs[1:])


@pytest.mark.parametrize(
    ("name", "lowest", "highest"),
    [
        ("ring turns twice", -6, 9),
        ("stream-K, a CTA between two tiles", -6, 9),
        ("split K, whole K", -6, 9),
        ("multicast and split K", -25, 25),
        ("words of two row blocks half a stage early", -25, 25),
    ],
)
def test_powers_of_two_in_the_scales_of_a_row_come_out_as_they_went_in(
    name: str, lowest: int, highest: int
) -> None:
    """Bit for bit, whatever unit a row's sums are in: the one number that a power of two moves."""
    case, (source, compiled) = CASES[name], built(name)
    data = random_problem_data(case.problem, case.m, 0)
    powers = 2.0 ** (lowest + torch.arange(case.problem.n) % (highest - lowest + 1)).double()
    scales = (data.weight.scales.double() * powers.unsqueeze(1)).to(data.weight.scales.dtype)
    scaled = replace(data, weight=replace(data.weight, scales=scales))
    y, scaled_y = (
        ran(case, source, compiled, item)[0].view(data.x.dtype).double() for item in (data, scaled)
    )
    tiny = torch.finfo(data.x.dtype).tiny
    normal = scaled_y.abs() >= 2 * tiny
    assert torch.equal(scaled_y[normal], (y * powers)[normal])
    assert normal.double().mean() > 0.95
    assert torch.all((scaled_y - y * powers)[~normal].abs() <= tiny)


def moved(name: str, how: str) -> int:
    """Bytes of one kind that a whole launch of a case moves."""
    _, report = ran(CASES[name], *built(name))
    return report.counts.bytes[how]


def test_each_cta_copies_its_slots_once() -> None:
    """16 tokens x 640 inputs of two bytes, and the packed blocks of a strip; not its row factors,
    which every tile reads, nor the tag behind them."""
    name = "ring turns twice"
    case = CASES[name]
    packed = packed_weights(case, random_problem_data(case.problem, case.m))
    assert moved(name, "async_copy") == 16 * 640 * 2 + packed.numel() - 2 * 64 - 16


def test_sums_travel_once_to_the_cta_that_finishes_them() -> None:
    """Two tiles of 16 x 64, of which each CTA of a cluster of two sends the other one's half."""
    name = "split K in two"
    slot = 16 * 128 * 2 + 64 * 128 // 2 + 2 * 64 * 2
    assert moved(name, "async_copy") == 2 * 5 * slot
    assert moved(name, "cluster_write") == 2 * 16 * 64 * 4


def test_tensor_instructions_are_those_of_the_tiles() -> None:
    """By each of four warps: a wgmma a k16 step; a fence, commit and wait a chunk; a last wait."""
    case, (source, compiled) = CASES["ring turns twice"], built("ring turns twice")
    _, report = ran(case, source, compiled)
    steps = 640 // 16
    chunks = steps // 2
    assert report.counts.pipes["tensor"] == 4 * (steps + 3 * chunks + 1)
