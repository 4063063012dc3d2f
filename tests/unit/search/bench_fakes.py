"""Fakes of ptxtune bench: a CPU kit, a silent GPU, and contenders that misbehave on purpose."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ptxgen.errors import DriverError
from ptxgen.evidence import GpuLimits, GpuReading
from ptxgen.problem import Problem
from ptxgen.timing import Launch
from ptxgen.weights.quantize import dequantize
from search.bench.base import BenchLayer, Call, OneWay, Operand
from search.bench.registry import Contender

KIT = "bench_fakes:open_cpu"


class FakeTimed:
    """Launches for real, so that faults show, and says that it took 10 us."""

    def __init__(self, launch: Launch, copies: int) -> None:
        self._launch, self._copies = launch, copies
        self._launch(0)

    def samples_us(self, count: int, warmups: int = 2) -> list[float]:
        for index in range(count):
            self._launch(index % self._copies)
        return [10.0] * count

    def keep_busy(self) -> None:
        self._launch(0)


class CpuKit:
    """See search.bench.server.Kit."""

    device = torch.device("cpu")
    l2_bytes = 1000

    def timed(self, launch: Launch, copies: int, floor_us: float) -> FakeTimed:
        return FakeTimed(launch, copies)

    def burn_in(self) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def trim(self) -> None:
        pass


def open_cpu(_options: dict[str, Any]) -> CpuKit:
    return CpuKit()


@dataclass
class SilentWatch:
    """A GPU of which nothing can be read; remembers the processes it was told of."""

    pids: list[int | None] = field(default_factory=list)

    def read(self) -> GpuReading:
        return GpuReading()

    def limits(self) -> GpuLimits:
        return GpuLimits()

    def compute_pids(self) -> frozenset[int] | None:
        return None

    def learn_own(self, before: frozenset[int] | None, pid: int | None = None) -> None:
        self.pids.append(pid)


class RiggedAdapter(OneWay):
    """Right by itself; `spoil` may change an output, raise, die or sleep at a launch.

    Args:
        spoil: called with the output, the number of this launch from 1, and the options.
    """

    def __init__(self, spoil: Callable[[Tensor, int, Mapping[str, Any]], Tensor]) -> None:
        self._spoil = spoil
        self._launches = 0

    def unsupported(self, problem: Problem, m: int) -> str:
        return "odd batches are not for it" if m % 2 else ""

    def pack(self, layer: BenchLayer) -> Operand:
        return (dequantize(layer.weight, layer.problem),)

    def bind(self, problem: Problem, x: Tensor, options: Mapping[str, Any]) -> Call:
        def call(operand: Operand) -> Tensor:
            self._launches += 1
            return self._spoil(x.float() @ operand[0].t(), self._launches, options)

        return call


def right() -> RiggedAdapter:
    return RiggedAdapter(lambda y, _count, _options: y)


def slightly_off() -> RiggedAdapter:
    return RiggedAdapter(lambda y, _count, _options: y * 1.011)


def one_nan() -> RiggedAdapter:
    return RiggedAdapter(lambda y, _count, _options: y.index_fill(1, torch.tensor(3), torch.nan))


def wrong_when_timed() -> RiggedAdapter:
    return RiggedAdapter(lambda y, count, _options: y if count == 1 else -y)


def writes_once() -> RiggedAdapter:
    """Right at its check; what is timed leaves the same output alone."""
    kept: list[Tensor] = []

    def spoil(y: Tensor, count: int, options: Mapping[str, Any]) -> Tensor:
        kept.append(y)
        return kept[0]

    return RiggedAdapter(spoil)


def dies_when_timed() -> RiggedAdapter:
    """Only with option "die"; it shares a process with a well-behaved one."""

    def spoil(y: Tensor, count: int, options: Mapping[str, Any]) -> Tensor:
        if options.get("die") and count > 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return y

    return RiggedAdapter(spoil)


def loses_the_context() -> RiggedAdapter:
    def spoil(y: Tensor, count: int, options: Mapping[str, Any]) -> Tensor:
        raise DriverError("an illegal memory access was encountered", code=700, sticky=True)

    return RiggedAdapter(spoil)


def hangs() -> RiggedAdapter:
    def spoil(y: Tensor, count: int, options: Mapping[str, Any]) -> Tensor:
        time.sleep(600)
        return y

    return RiggedAdapter(spoil)


def cannot_be_imported() -> RiggedAdapter:
    raise ImportError("undefined symbol: _ZN2at4_ops")


def contender(name: str, group: str = "fakes", module: str = "torch") -> Contender:
    return Contender(name, group, module, ("torch",), f"bench_fakes:{name}", "a fake")


def lock_folder(path: Path) -> Path:
    """A folder for the GPU lock that no other test shares."""
    folder = path / "locks"
    folder.mkdir(exist_ok=True)
    return folder
