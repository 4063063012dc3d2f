"""The process that measures the accuracy table: python -m search.accuracy_child JSON."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor

from ptxgen.arch import arch_of_capability
from ptxgen.compile import compile_source
from ptxgen.config import KernelConfig
from ptxgen.device import LoadedKernel, device_facts
from ptxgen.error_bound import error_bound
from ptxgen.families import default_config, emit
from ptxgen.launch import WorkspacePool, run
from ptxgen.problem import Problem
from ptxgen.reference import TOLERANCES, reference_output, relative_error
from ptxgen.spread_data import outlier_tokens, outlier_weight
from ptxgen.weights.pack import pack
from search.accuracy import BATCHES, KINDS, RATIOS, Accuracy

THREADS = 16
"""Kernels that are compiled at once."""

Multiply = Callable[[Problem, Tensor, Tensor], tuple[Tensor, str]]
"""(problem, x [m, K], packed weight) -> y [m, N] and the family that made it."""


def measured(problem: Problem, multiply: Multiply, device: str, seed: int) -> Iterator[Accuracy]:
    """All ratios and batches of a problem.

    Args:
        problem: the problem, without a bias.
        multiply: launches a kernel.
        device: where tensors lie.
        seed: of weights and activations.
    """
    for ratio in RATIOS:
        weight = outlier_weight(problem, ratio, seed, device)
        packed = pack(weight, problem)
        for m in BATCHES:
            x = outlier_tokens(problem, m, seed + m, device)
            exact = reference_output(x, weight, problem)
            y, family = multiply(problem, x, packed)
            off = (y.double() - exact).abs() / error_bound(x, weight, problem, exact)
            worst = float(off.nan_to_num(math.inf).max())
            rel_err = relative_error(y, exact)
            passed = worst <= 1 and rel_err <= TOLERANCES[problem.dtype]
            yield Accuracy(problem.dtype, problem.zero, ratio, m, family, rel_err, worst, passed)


def configs_of(problem: Problem) -> dict[int, KernelConfig]:
    """The built-in config of each batch on the current device."""
    arch = arch_of_capability(*torch.cuda.get_device_capability())
    sms = device_facts().num_sms
    return {m: default_config(problem, arch, m, sms) for m in BATCHES}


class _Kernels:
    """Compiled built-in kernels of a problem, and their launches."""

    def __init__(self, problem: Problem) -> None:
        arch = arch_of_capability(*torch.cuda.get_device_capability())
        self._configs = configs_of(problem)
        self._workspaces = WorkspacePool()
        sources = {config: emit(problem, config, arch) for config in self._configs.values()}
        with ThreadPoolExecutor(THREADS) as pool:
            compiled = list(pool.map(compile_source, sources.values()))
        self._kernels = {
            config: LoadedKernel(item.cubin, source.entry, source.plan)
            for (config, source), item in zip(sources.items(), compiled, strict=True)
        }

    def multiply(self, problem: Problem, x: Tensor, packed: Tensor) -> tuple[Tensor, str]:
        config = self._configs[x.shape[0]]
        y = run(self._kernels[config], problem, x, packed, workspaces=self._workspaces)
        return y, config.family


def _rows(problems: Iterable[Problem], seed: int) -> list[Accuracy]:
    torch.zeros(1, device="cuda")  # makes torch's context current
    found: list[Accuracy] = []
    for problem in problems:
        found += measured(problem, _Kernels(problem).multiply, "cuda", seed)
    return found


def main() -> None:
    """Of the process: the table as one line of JSON."""
    asked: dict[str, Any] = json.loads(sys.argv[1])
    base = Problem(asked["n"], asked["k"], asked["group"])
    problems = [replace(base, dtype=dtype, zero=zero) for dtype, zero in KINDS]
    print(json.dumps([asdict(row) for row in _rows(problems, asked["seed"])]))


if __name__ == "__main__":
    main()
