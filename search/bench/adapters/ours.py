"""Our own kernels: a config of the request, emitted, compiled and launched as everywhere else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ptxgen.arch import arch_of_capability
from ptxgen.cache import CompileCache
from ptxgen.device import LoadedKernel
from ptxgen.families import config_from_dict, emit
from ptxgen.launch import WorkspacePool, run
from ptxgen.problem import Problem
from ptxgen.weights.pack import pack
from search.bench.base import BenchLayer, Call, OneWay, Operand, nan_filled


class OurAdapter(OneWay):
    """Every problem. options: "config" (its to_dict), "cache_root", and "chained"."""

    def unsupported(self, problem: Problem, m: int) -> str:
        return ""

    def pack(self, layer: BenchLayer) -> Operand:
        packed = pack(layer.weight, layer.problem)
        return (packed,) if layer.bias is None else (packed, layer.bias)

    def bind(self, problem: Problem, x: Tensor, options: Mapping[str, Any]) -> Call:
        kernel = _load(problem, options)
        chained = bool(options["chained"])
        workspaces = WorkspacePool()
        out = nan_filled(x, problem.n)

        def call(operand: Operand) -> Tensor:
            bias = operand[1] if problem.bias else None
            return run(
                kernel, problem, x, operand[0], bias, out, workspaces=workspaces, chained=chained
            )

        return call


def _load(problem: Problem, options: Mapping[str, Any]) -> LoadedKernel:
    arch = arch_of_capability(*torch.cuda.get_device_capability())
    source = emit(problem, config_from_dict(options["config"]), arch)
    entry = CompileCache(Path(options["cache_root"])).get_or_compile(source)
    return LoadedKernel(entry.compiled.cubin, source.entry, source.plan)


def create() -> OurAdapter:
    """Factory for the registry."""
    return OurAdapter()
