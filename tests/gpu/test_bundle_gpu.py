"""Bundles on a real GPU: loaded from Python, and built and run from C."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from ptxgen.arch import ArchSpec, arch_of_capability
from ptxgen.bundle.load import BundleKernel, load
from ptxgen.bundle.manifest import DeviceInfo, ToolchainInfo
from ptxgen.bundle.write import BucketSpec, BundleSpec, write_bundle
from ptxgen.compile import compile_source
from ptxgen.config import KernelConfig
from ptxgen.families import default_config, emit, violations
from ptxgen.families.wgmma_tma.config import WgmmaTmaConfig
from ptxgen.problem import Problem
from ptxgen.reference import random_problem_data
from ptxgen.weights.pack import pack
from ptxgen.weights.quantize import QuantizedWeight, dequantize

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

M_MAXES = (1, 16, 64, 128)

STREAM_K = WgmmaTmaConfig(
    block_m=64,
    block_n=128,
    warpgroups=2,
    num_stages=3,
    chunk=2,
    split_k=1,
    multicast=1,
    min_ctas=1,
    max_ctas=132,
    stream_k=True,
)
PROBLEMS = [
    Problem(n=1024, k=1024, group_size=128),
    Problem(n=520, k=1056, group_size=32, dtype="bf16", zero="int", bias=True),
    Problem(n=256, k=2080, group_size=2080, zero="int"),
]


def config_for(problem: Problem, arch: ArchSpec, m_max: int, num_sms: int) -> KernelConfig:
    """The default, but for the largest bucket one that shares tiles through a workspace."""
    if m_max == max(M_MAXES) and not violations(problem, STREAM_K, arch):
        return STREAM_K
    return default_config(problem, arch, m_max, num_sms)


def exported(folder: Path, problem: Problem) -> Path:
    properties = torch.cuda.get_device_properties(0)
    arch = arch_of_capability(properties.major, properties.minor)
    buckets, nvrtc = [], ""
    for m_max in M_MAXES:
        config = config_for(problem, arch, m_max, properties.multi_processor_count)
        source = emit(problem, config, arch)
        kernel = compile_source(source)
        nvrtc = kernel.nvrtc
        buckets.append(
            BucketSpec(m_max, config, source, kernel.ptx, kernel.cubin, kernel.resources, None)
        )
    device = DeviceInfo(properties.name, f"{properties.major}.{properties.minor}")
    toolchain = ToolchainInfo(ptxtune="0.1.0", nvrtc=nvrtc)
    return write_bundle(folder, BundleSpec(problem, tuple(buckets), device, toolchain))


@pytest.fixture(params=PROBLEMS, ids=Problem.key)
def problem(request: pytest.FixtureRequest) -> Problem:
    value: Problem = request.param
    return value


def close(kernel: BundleKernel, m: int) -> bool:
    problem = kernel.problem
    data = random_problem_data(problem, m, seed=m)
    zeros = None if data.weight.zeros is None else data.weight.zeros.cuda()
    weight = QuantizedWeight(data.weight.q.cuda(), data.weight.scales.cuda(), zeros)
    bias = None if data.bias is None else data.bias.cuda()
    y = kernel(data.x.cuda(), pack(weight, problem), bias)
    wanted = data.x.cuda().double() @ dequantize(weight, problem, torch.float64).T
    if bias is not None:
        wanted += bias.double()
    error = (y.double() - wanted).norm() / wanted.norm().clamp(min=1e-30)
    return y.shape == (m, problem.n) and bool(error < 2.0**-7)


def test_python_loads_it_and_every_batch_is_right(tmp_path: Path, problem: Problem) -> None:
    kernel = load(exported(tmp_path / "bundle", problem))
    for m in (1, 2, 15, 16, 17, 64, 65, 200, 3):  # up and down: workspaces are shared
        assert close(kernel, m), m


def test_empty_batch_and_leading_dimensions(tmp_path: Path) -> None:
    problem = PROBLEMS[0]
    kernel = load(exported(tmp_path / "bundle", problem))
    data = random_problem_data(problem, 6, seed=1)
    packed = pack(data.weight, problem).cuda()
    x = data.x.cuda()
    assert kernel(x[:0], packed).shape == (0, problem.n)
    assert torch.equal(kernel(x.view(2, 3, -1), packed).view(6, -1), kernel(x, packed))


def test_c_example_passes(tmp_path: Path, problem: Problem) -> None:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler (cc) on this machine")
    folder = exported(tmp_path / "bundle", problem)
    command = ["cc", "-O2", "-Wall", "-Wextra", "-Werror", "example.c", "-o", "example"]
    subprocess.run([*command, "-ldl", "-lm"], cwd=folder, check=True, timeout=120)
    result = subprocess.run(
        ["./example"], cwd=folder, capture_output=True, text=True, check=False, timeout=120
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.endswith("PASSED\n")
