"""The kit of a contender's process on a real GPU: device, timing, burn-in."""

from __future__ import annotations

from typing import Any

import torch

from ptxgen.device import device_facts
from ptxgen.errors import DriverError
from ptxgen.timing import Launch, TimedGraph, burn_in


class GpuKit:
    """See search.bench.server.Kit."""

    def __init__(self, index: int) -> None:
        """Opens the device. Raises DriverError where there is none."""
        if not torch.cuda.is_available():
            raise DriverError(
                "torch finds no CUDA device in the contender's process; nvidia-smi shows whether "
                "there is one, and torch.version.cuda whether this torch was built for it."
            )
        facts = device_facts(index)
        torch.cuda.set_device(index)
        torch.backends.cuda.matmul.allow_tf32 = False  # the reference is FP32
        self.device = torch.device("cuda", index)
        self.l2_bytes = facts.l2_bytes
        torch.zeros(1, device=self.device)

    def timed(self, launch: Launch, copies: int, floor_us: float) -> TimedGraph:
        return TimedGraph(launch, copies, floor_us)

    def burn_in(self) -> None:
        burn_in()

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.device)

    def trim(self) -> None:
        torch.cuda.empty_cache()


def open_gpu(options: dict[str, Any]) -> GpuKit:
    """Factory: options "index"."""
    return GpuKit(int(options.get("index", 0)))
