"""Whole kernels, compiled by NVRTC, on the interpreter: right under every schedule, no races, and
the instructions that the config promises."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from ptxgen.arch import ARCHS
from ptxgen.check import compare
from ptxgen.compile import compile_source
from ptxgen.config import KernelConfig
from ptxgen.errors import KernelFaultError
from ptxgen.families import emit
from ptxgen.families.mma.config import MmaConfig
from ptxgen.families.wgmma.config import WgmmaConfig
from ptxgen.interp import GlobalMemory, Launch, RunOptions, RunReport, Schedule, load_program, run
from ptxgen.problem import Problem
from ptxgen.reference import random_problem_data, reference_output
from ptxgen.source import KernelSource
from ptxgen.weights.layout import packed_layout
from ptxgen.weights.pack import pack

pytestmark = pytest.mark.compile

SCHEDULES = (
    Schedule(0, "random", resident=3),
    Schedule(1, "reverse", resident=2),
    Schedule(2, "one_ahead"),
)
SMALL = MmaConfig(
    block_m=16,
    warp_m=16,
    block_n=32,
    warp_n=32,
    block_k=128,
    warps_k=1,
    num_stages=2,
    split_k=1,
    scale_on="accumulators",
    weights_first=False,
    min_ctas=1,
)


def shaped(**knobs: Any) -> MmaConfig:
    return replace(SMALL, **knobs)


CASES: dict[str, tuple[Problem, KernelConfig, str, int]] = {
    "private": (Problem(64, 512, 128), shaped(), "sm_80", 5),
    "warps along k": (Problem(64, 768, 64), shaped(block_k=256, warps_k=2), "sm_90a", 16),
    "bf16 with zeros, tails and bias": (
        Problem(72, 544, 32, "bf16", "int", bias=True),
        shaped(block_m=8, warp_m=8, warp_n=16, scale_on="weights", num_stages=3),
        "sm_80",
        11,
    ),
    "whole K": (
        Problem(64, 416, 416, "fp16", "int"),
        shaped(block_m=4, warp_m=4, block_n=64, warp_n=16),
        "sm_90a",
        3,
    ),
    "subnormal nibbles": (
        Problem(64, 512, 128),
        shaped(block_m=8, warp_m=8, dequant="subnormal"),
        "sm_80",
        5,
    ),
    "subnormal nibbles, zeros, tails, groups of 32": (
        Problem(72, 544, 32, "fp16", "int", bias=True),
        shaped(warp_n=16, block_k=256, warps_k=2, dequant="subnormal", trigger="waited"),
        "sm_90a",
        11,
    ),
    "16 warps along K": (
        Problem(32, 4224, 128, "bf16"),
        shaped(block_m=8, warp_m=8, block_k=2048, warps_k=16, trigger="waited"),
        "sm_90a",
        3,
    ),
    "split K": (
        Problem(128, 768, 64, "fp16", "int"),
        shaped(split_k=2, weights_first=True),
        "sm_86",
        17,
    ),
    "split K in three, warps along m": (
        Problem(64, 768, 128, "bf16"),
        shaped(block_m=32, warp_m=16, block_n=64, split_k=3, scale_on="weights", num_stages=3),
        "sm_90a",
        33,
    ),
}


WGMMA = WgmmaConfig(
    block_m=24,
    block_n=128,
    warpgroups=1,
    num_stages=3,
    split_k=2,
    weights_first=False,
    min_ctas=1,
)
CASES["wgmma, split K, tails"] = (
    Problem(136, 544, 32, "bf16", "int", bias=True),
    WGMMA,
    "sm_90a",
    29,
)
CASES["wgmma, two warpgroups, rasters"] = (
    Problem(256, 384, 128),
    replace(WGMMA, block_m=16, warpgroups=2, split_k=1, num_stages=4, raster=4),
    "sm_90a",
    40,
)


class Case:
    """A problem's inputs and a compiled kernel, to be run many times."""

    def __init__(self, problem: Problem, config: KernelConfig, arch: str, m: int) -> None:
        self.problem, self.m = problem, m
        self.source: KernelSource = emit(problem, config, ARCHS[arch])
        self.ptx = compile_source(self.source, line_info=True).ptx
        self.data = random_problem_data(problem, m)
        self.packed = pack(self.data.weight, problem)
        self.reference = reference_output(self.data.x, self.data.weight, problem, self.data.bias)

    def run(
        self, schedule: Schedule, ptx: str = "", options: RunOptions | None = None
    ) -> tuple[torch.Tensor, RunReport, np.ndarray]:
        """(output, report, workspace counters)"""
        plan, memory = self.source.plan, GlobalMemory()
        x = memory.allocate("x", halves(self.data.x), readonly=True)
        packed = memory.allocate("packed", self.packed.numpy(), readonly=True)
        bias = 0
        if self.data.bias is not None:
            bias = memory.allocate("bias", halves(self.data.bias), readonly=True)
        y = memory.allocate("y", np.full((self.m, self.problem.n), 0x7FFF, np.int16))
        counters = plan.counter_bytes(self.m)
        space = np.full(max(16, plan.workspace_bytes(self.m)), 0xFF, np.uint8)
        space[:counters] = 0
        workspace = memory.allocate("workspace", space)
        args = (x, packed, bias, y, workspace, self.m, self.problem.k, self.problem.n)
        block, cluster = (plan.threads, 1, 1), (1, 1, plan.cluster_k)
        launch = Launch(plan.grid(self.m), block, plan.smem_bytes, args, cluster)
        program = load_program(ptx or self.ptx, self.source.entry)
        report = run(program, launch, memory, schedule, options)
        out = torch.from_numpy(memory.array("y")).view(self.data.x.dtype)
        return out, report, memory.array("workspace")[:counters]


def halves(tensor: torch.Tensor) -> np.ndarray:
    return tensor.contiguous().view(torch.int16).numpy()


@pytest.mark.parametrize("name", CASES)
def test_kernels_are_right_under_every_schedule(name: str) -> None:
    case = Case(*CASES[name])
    outputs = []
    for schedule in SCHEDULES:
        out, report, counters = case.run(schedule)
        result = compare(out, case.problem, case.reference)
        assert result.ok, (schedule, result)
        assert [str(race) for race in report.races] == []
        assert not counters.any()
        outputs.append(out.view(torch.int16))
    assert all(torch.equal(outputs[0], out) for out in outputs[1:])


def test_bytes_and_tensor_instructions_are_those_of_the_plan() -> None:
    """Every byte of a packed block is copied once a token tile; 2 m16n8k16 per 16 tokens, 16 x 16
    weights."""
    problem, config, arch, m = CASES["private"]
    case = Case(problem, config, arch, m)
    _, report, _ = case.run(Schedule())
    assert isinstance(config, MmaConfig)
    tiles = problem.n // 16 * (problem.k // 16) * (config.block_m // 8)
    assert report.counts.pipes["tensor"] == tiles
    activations = config.block_m * problem.k * 2 * (problem.n // config.block_n)
    layout = packed_layout(problem)  # its row factors and tag are not for mma
    blocks = layout.blocks_bytes
    assert blocks + 2 * 64 + 16 == case.packed.numel()
    assert report.counts.bytes["async_copy"] == blocks + activations
    assert report.counts.bytes["global_write"] == m * problem.n * 2


def test_lost_barriers_and_waits_are_seen_with_their_source_lines() -> None:
    case = Case(*CASES["split K in three, warps along m"])
    lines = case.source.text.split("\n")
    for lost, least in (("bar.sync", "cp_async_16"), ("cp.async.wait_group", "cp_async_16")):
        ptx = "\n".join(
            f"// {row}" if row.strip().startswith(lost) else row for row in case.ptx.split("\n")
        )
        try:
            races = case.run(SCHEDULES[0], ptx)[1].races
        except KernelFaultError as fault:
            races = fault.races
        assert races, lost
        sources = [lines[race.first.source_line - 1] for race in races]
        assert any(least in line for line in sources), lost


@pytest.mark.parametrize(
    ("lost", "instead", "seen"),
    [
        ("fence.proxy.async.shared::cta;", "", "race"),
        ("bar.sync \t0;", "", "race"),
        ("wgmma.fence.sync.aligned;", "", "InFlightError"),
        ("wgmma.wait_group.sync.aligned 1;", "wgmma.wait_group.sync.aligned 5;", "InFlightError"),
        ("wgmma.wait_group.sync.aligned 0;", "", "value"),
        ("wgmma.commit_group.sync.aligned;", "", "value"),
    ],
)
def test_what_wgmma_needs_is_missed_when_it_is_lost(lost: str, instead: str, seen: str) -> None:
    case = Case(*CASES["wgmma, two warpgroups, rasters"])
    assert lost in case.ptx
    ptx = case.ptx.replace(lost, instead)
    found = set()
    try:
        out, report, _ = case.run(SCHEDULES[0], ptx)
    except KernelFaultError as fault:
        found = {type(fault).__name__} | ({"race"} if fault.races else set())
    else:
        found |= {"race"} if report.races else set()
        found |= set() if compare(out, case.problem, case.reference).ok else {"value"}
    assert seen in found, found


def test_loading_the_same_text_twice_counts_the_same_steps() -> None:
    case = Case(*CASES["private"])
    first, second = (case.run(Schedule(4, "random"))[1] for _ in range(2))
    assert first.steps == second.steps
    assert first.counts == second.counts
