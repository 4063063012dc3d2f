"""Neighbours: other processes that compute on the GPU before a run; a warning, or a refusal."""

from __future__ import annotations

from ptxgen.errors import PtxtuneError
from ptxtune.target import Target


class BusyGpuError(PtxtuneError):
    """Another process computes on the GPU, and --strict forbids to measure beside it."""


def check_neighbours(target: Target, strict: bool) -> str:
    """What to warn of before a run; empty where the GPU is free, hidden or not here.

    Raises:
        BusyGpuError: strict, and another process computes on the GPU.
    """
    pids = target.detected.compute_pids if target.detected else ()
    if not pids:
        return ""
    who = f"{len(pids)} other process{'es' if len(pids) > 1 else ''} ({', '.join(map(str, pids))})"
    if strict:
        raise BusyGpuError(
            f"{who} on {target.device.name}, and --strict allows none. End them (nvidia-smi shows "
            f"them), choose another GPU with --device, or leave --strict out: the "
            f"results are then marked."
        )
    return f"warning: {who} on this GPU; times may suffer, and every result says so"
