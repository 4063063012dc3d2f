"""Builds kernels and data for GPU tests."""

from __future__ import annotations

import os
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from ptxgen.arch import ArchSpec, arch_of_capability
from ptxgen.check import CheckResult, check
from ptxgen.compile import compile_source
from ptxgen.config import KernelConfig
from ptxgen.device import LoadedKernel
from ptxgen.families import emit
from ptxgen.launch import WorkspacePool, run
from ptxgen.problem import Problem
from ptxgen.reference import random_problem_data, reference_output
from ptxgen.weights.pack import pack
from ptxgen.weights.quantize import QuantizedWeight

alone = pytest.mark.skipif(
    "PYTEST_XDIST_WORKER" in os.environ,
    reason="times mean nothing while other tests use the GPU; run this file without -n",
)
"""Marks a test that takes times."""


def arch() -> ArchSpec:
    return arch_of_capability(*torch.cuda.get_device_capability())


def load_kernel(problem: Problem, config: KernelConfig) -> LoadedKernel:
    torch.cuda.init()
    torch.zeros(1, device="cuda")  # makes torch's context current
    source = emit(problem, config, arch())
    return LoadedKernel(compile_source(source).cubin, source.entry, source.plan)


@dataclass
class Layer:
    """A problem with weights on the GPU and a kernel for it."""

    problem: Problem
    kernel: LoadedKernel
    weight: QuantizedWeight
    packed: Tensor
    bias: Tensor | None
    workspaces: WorkspacePool

    @classmethod
    def create(cls, problem: Problem, config: KernelConfig, seed: int = 0) -> Layer:
        data = random_problem_data(problem, 1, seed, "cuda")
        kernel = load_kernel(problem, config)
        packed = pack(data.weight, problem)
        return cls(problem, kernel, data.weight, packed, data.bias, WorkspacePool())

    def x(self, m: int, seed: int = 1) -> Tensor:
        return random_problem_data(self.problem, m, seed, "cuda").x

    def reference(self, x: Tensor) -> Tensor:
        return reference_output(x, self.weight, self.problem, self.bias)

    def __call__(self, x: Tensor, out: Tensor | None = None, chained: bool = False) -> Tensor:
        return run(
            self.kernel,
            self.problem,
            x,
            self.packed,
            self.bias,
            out,
            workspaces=self.workspaces,
            chained=chained,
        )

    def check(self, m: int) -> CheckResult:
        x = self.x(m)

        def launch(y: Tensor) -> None:
            self(x, y)

        return check(launch, self.problem, self.reference(x))
