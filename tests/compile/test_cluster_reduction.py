"""Split K over a cluster: right and race-free under every schedule, and bit for bit the sums of the
workspace; what its barriers are for shows when they are lost."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch

from ptxgen.arch import ARCHS
from ptxgen.compile import CompiledKernel, compile_source
from ptxgen.config import KernelConfig
from ptxgen.cpucheck.buffers import Buffers, packed_weights
from ptxgen.cpucheck.reduced import Case
from ptxgen.cpucheck.run import check_compiled
from ptxgen.errors import KernelFaultError
from ptxgen.families import emit
from ptxgen.families.mma.config import MmaConfig
from ptxgen.families.wgmma.config import WgmmaConfig
from ptxgen.interp import RunReport, Schedule, load_program, run
from ptxgen.problem import Problem
from ptxgen.reference import random_problem_data
from ptxgen.source import KernelSource

pytestmark = pytest.mark.compile

SM90A = ARCHS["sm_90a"]
SCHEDULES = (Schedule(1, "one_ahead", 4), Schedule(2, "reverse"), Schedule(3, "random", 16))

MMA = MmaConfig(
    block_m=16,
    warp_m=16,
    block_n=32,
    warp_n=32,
    block_k=128,
    warps_k=1,
    num_stages=2,
    split_k=2,
    scale_on="accumulators",
    weights_first=False,
    min_ctas=1,
    cluster=True,
)
WGMMA = WgmmaConfig(
    block_m=24,
    block_n=64,
    warpgroups=1,
    num_stages=3,
    split_k=2,
    weights_first=False,
    min_ctas=1,
    cluster=True,
)

CASES: dict[str, tuple[Problem, KernelConfig, int]] = {
    "mma, two": (Problem(64, 512), MMA, 16),
    "mma, three, tails of m, n and k, bias": (
        Problem(72, 544, 32, "bf16", "int", bias=True),
        replace(MMA, split_k=3, weights_first=True, trigger="end"),
        19,
    ),
    "mma, four, warps along k, one token": (
        Problem(48, 1024, 64),
        replace(MMA, block_m=1, warp_m=1, block_k=256, warps_k=2, split_k=4),
        1,
    ),
    "mma, eight, fewer stages for some, small tile of tokens": (
        Problem(40, 1152, 128, "fp16", "int"),
        replace(MMA, block_m=4, warp_m=4, split_k=8, num_stages=3),
        3,
    ),
    "mma, whole k, warps along m and n": (
        Problem(128, 416, 416, "fp16", "int", bias=True),
        replace(MMA, block_m=32, block_n=64),
        33,
    ),
    "wgmma, two, tails, bias": (Problem(72, 544, 32, "bf16", "int", bias=True), WGMMA, 29),
    "wgmma, three, whole k": (
        Problem(64, 416, 416, "bf16"),
        replace(WGMMA, block_m=8, split_k=3),
        5,
    ),
    "wgmma, four, two row blocks a warp": (
        Problem(128, 512, 128),
        replace(WGMMA, block_m=16, block_n=128, split_k=4),
        16,
    ),
}


class Kernel:
    """One compiled case."""

    def __init__(self, problem: Problem, config: KernelConfig, m: int) -> None:
        self.case = Case(problem, config, SM90A, m)
        self.source: KernelSource = emit(problem, config, SM90A)
        self.compiled: CompiledKernel = compile_source(self.source)

    def run(self, schedule: Schedule, ptx: str = "") -> tuple[torch.Tensor, RunReport]:
        """Bits of y, and what the interpreter saw."""
        data = random_problem_data(self.case.problem, self.case.m, 0)
        packed = packed_weights(self.case, data)
        buffers = Buffers.create(self.case, self.source.plan, data, packed)
        program = load_program(ptx or self.compiled.ptx, self.compiled.entry)
        report = run(program, buffers.launch, buffers.memory, schedule)
        return buffers.output().view(torch.int16), report


@cache
def compiled_case(name: str) -> Kernel:
    return Kernel(*CASES[name])


@pytest.mark.sampled
@pytest.mark.parametrize("name", CASES)
def test_right_without_races_and_the_bits_of_the_workspace(name: str) -> None:
    problem, config, m = CASES[name]
    kernel = compiled_case(name)
    plan = kernel.source.plan
    assert plan.cluster_k == plan.split_k
    assert plan.workspace_bytes(m) == 0
    checked = check_compiled(kernel.case, kernel.source, kernel.compiled, SCHEDULES)
    assert [str(failure) for failure in checked.failures] == []
    through_workspace = Kernel(problem, replace(config, cluster=False), m)  # type: ignore[call-arg]
    assert through_workspace.source.plan.workspace_bytes(m) > 0
    (out, report), (expected, _) = kernel.run(SCHEDULES[0]), through_workspace.run(SCHEDULES[0])
    assert torch.equal(out, expected)
    # Every partial sum of an existing output is read once, by one CTA.
    assert report.counts.bytes["cluster_read"] == 4 * plan.split_k * m * problem.n


@pytest.mark.parametrize("name", CASES)
def test_the_cluster_is_stated_in_the_kernel_and_no_thread_leaves_early(name: str) -> None:
    kernel = compiled_case(name)
    ptx = kernel.compiled.ptx
    assert ".explicitcluster" in ptx
    assert f".reqnctapercluster 1, 1, {kernel.source.plan.split_k}\n" in ptx
    assert ptx.count("ret;") == 1
    assert ptx.count("barrier.cluster.arrive") == ptx.count("barrier.cluster.wait") == 2
    assert kernel.compiled.resources.spill_bytes == 0


def test_kernels_without_a_cluster_state_none() -> None:
    for config in (MMA, WGMMA):
        alone = replace(config, cluster=False)  # type: ignore[type-var]
        ptx = compile_source(emit(Problem(64, 512), alone, SM90A)).ptx
        assert "cluster" not in ptx


@pytest.mark.parametrize("name", ["mma, four, warps along k, one token", "wgmma, two, tails, bias"])
@pytest.mark.parametrize(
    ("lost", "instead", "seen"),
    [
        ("fence.release.sync_restrict::shared::cta.cluster;", "", "race"),
        ("barrier.cluster.arrive.relaxed.aligned;", "ret;", "has ended"),
    ],
)
def test_what_the_barriers_are_for(name: str, lost: str, instead: str, seen: str) -> None:
    """Without the release sums are read too early; without the last barrier, from the dead."""
    kernel = compiled_case(name)
    before, found_once, after = kernel.compiled.ptx.rpartition(lost)
    assert found_once
    found = ""
    for schedule in SCHEDULES:
        try:
            report = kernel.run(schedule, before + instead + after)[1]
            found += "".join(map(str, report.races))
        except KernelFaultError as fault:
            found += "".join(map(str, fault.races)) + str(fault)
    assert seen in found
