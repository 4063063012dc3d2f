"""The comments of an emitted kernel: what they say of arguments, memory and the weight holds."""

from __future__ import annotations

import re

import pytest
import torch
from emitted.samples import PROBLEMS, STARTS

from ptxgen.arch import ARCHS
from ptxgen.families import FAMILIES
from ptxgen.problem import Problem
from ptxgen.source import KernelSource
from ptxgen.weights.layout import packed_layout
from ptxgen.weights.pack import pack
from ptxgen.weights.quantize import TORCH_DTYPES, QuantizedWeight

ARCH = ARCHS["sm_90a"]
STARTED = [(family, index) for family, starts in STARTS.items() for index in range(len(starts))]
QUARTER = re.compile(
    r"^// +features +(\d+)\.\.(\d+) +(\d+) \.\. +(\d+) +(\d+) \.\. +(\d+)$", re.MULTILINE
)
TABLE = re.compile(r"^// +(scales|zero points) +(\d+) \.\. (\d+) ", re.MULTILINE)


def kernel(family: str, index: int, problem: Problem) -> KernelSource:
    """The kernel of one of the sample's first configs."""
    config = FAMILIES[family].config_type.from_knobs(dict(STARTS[family][index]))
    return FAMILIES[family].emit(problem, config, ARCH)


@pytest.mark.parametrize(("family", "index"), STARTED)
@pytest.mark.parametrize("problem", PROBLEMS[::5], ids=Problem.key)
def test_a_stranger_finds_what_he_needs(family: str, index: int, problem: Problem) -> None:
    source = kernel(family, index, problem)
    heading, code = source.text.split("typedef", maxsplit=1)
    for section in ("Words", "Arguments", "Grid", "The packed weight", "Shared memory", "The pipe"):
        assert f"\n// {section}" in heading, section
    parameters = re.findall(r"(\w+?)(?:_arg)?,? *(?=//|\))", re.split(r"ptxtune_w4a16\(", code)[1])
    for name in ("x", "packed", "bias", "y", "workspace", "m", *parameters[:5]):
        assert re.search(rf"^//   {name} ", heading, re.MULTILINE), name
    assert ("\n//   x_map " in heading) == (source.plan.x_box is not None)
    assert f"Shared memory, {source.plan.smem_bytes} bytes" in heading
    assert f"the packed weight, {packed_layout(problem).total_bytes} bytes" in heading
    assert f"A CTA has {source.plan.threads} threads" in heading
    if not source.plan.max_ctas:
        plan = source.plan
        assert f"Grid: (ceil(m / {plan.block_m}), {plan.n_tiles}, {plan.split_k}):" in heading
    assert len(re.findall(r"^//   \d\. ", heading, re.MULTILINE)) == 5, "the pipeline's lines"


@pytest.mark.parametrize("problem", [Problem(64, 128, 32, "fp16", "int"), Problem(64, 128)])
def test_the_picture_of_a_block_is_that_of_a_packed_weight(problem: Problem) -> None:
    text = kernel("mma", 0, problem).text
    generator = torch.Generator().manual_seed(5)
    groups = problem.num_groups
    q = torch.randint(0, 16, (64, 128), dtype=torch.uint8, generator=generator)
    scales = torch.rand((64, groups), generator=generator).to(TORCH_DTYPES[problem.dtype])
    zeros = None
    if problem.zero == "int":
        zeros = torch.randint(0, 16, (64, groups), dtype=torch.uint8, generator=generator)
    packed = pack(QuantizedWeight(q, scales, zeros), problem)
    quarters = [tuple(map(int, found)) for found in QUARTER.findall(text)]
    assert [first for first, *_ in quarters] == [0, 16, 32, 48]
    for first, last, *halves in quarters:
        assert last == first + 15
        for k64, (start, end) in enumerate((halves[:2], halves[2:])):
            words = packed[start : end + 1].view(torch.int32).view(32, 4)
            for lane in range(32):
                g, t = divmod(lane, 4)
                for step in range(4):
                    word = int(words[lane, step])
                    for i in range(8):  # as the text under the picture says
                        feature = first + g + 8 * (i % 2)
                        k = 64 * k64 + 16 * step + 2 * t + 8 * (i // 2 % 2) + i // 4
                        assert word >> 4 * i & 15 == q[feature, k]
    tables = {name: packed[int(a) : int(b) + 1] for name, a, b in TABLE.findall(text)}
    pairs = tables["scales"].view(TORCH_DTYPES[problem.dtype]).view(4, groups, 8, 2)
    told = pairs.permute(0, 3, 2, 1).reshape(64, groups)
    assert torch.equal(told, scales)
    assert ("zero points" in tables) == (zeros is not None)
    if zeros is not None:
        both = tables["zero points"].view(4, groups, 8)
        found = torch.stack((both & 15, both >> 4)).permute(1, 0, 3, 2).reshape(64, groups)
        assert torch.equal(found, zeros)


@pytest.mark.parametrize(("family", "index"), STARTED)
def test_offsets_of_the_memory_map_are_those_of_the_code(family: str, index: int) -> None:
    text = kernel(family, index, PROBLEMS[1]).text
    memory = text.split("// Shared memory, ")[1].split("// The pipeline")[0]
    told = {int(number) for number in re.findall(r"^// +(\d+)  ", memory, re.MULTILINE)}
    declared = dict(re.findall(r"enum : int \{ (\w+_OFFSET) = (\d+) \};", text))
    assert declared
    assert {int(value) for value in declared.values()} <= told | {0}
