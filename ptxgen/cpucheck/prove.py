"""prove_race_free: a second opinion on synchronisation, static and over every schedule.

sentryward (Apache-2.0, optional) runs a kernel's PTX symbolically for one launch and proves that
conflicting accesses to shared and global memory are ordered, whatever the order of warps. It was
made for Blackwell kernels and takes ours as they are. It knows no split K through the workspace
(there a branch depends on what an atomic returned) and judges no values.
"""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Any

from ptxgen.compile import CompiledKernel
from ptxgen.cpucheck.buffers import X_PAD, Y_PAD
from ptxgen.cpucheck.reduced import Case
from ptxgen.errors import ToolError
from ptxgen.source import LaunchPlan

PACKAGE = "sentryward"
SCHEMA = "spverify.kernel-input/v1"
TIMEOUT_S = 120.0
MEMORY_MIB = 8192

POINTERS = ("x", "packed", "bias", "y", "workspace")
"""The first arguments of every kernel; the rest are m, ldx and ldy."""


class Verdict(StrEnum):
    """How a proof ended."""

    PROVED = "proved"
    RACE = "race"  # an ordering that could not be proved, or a synchronisation that fails
    UNSUPPORTED = "unsupported"
    TIMEOUT = "timeout"  # of time or memory


_VERDICTS = {
    "race_free": Verdict.PROVED,
    "potential_race": Verdict.RACE,
    "unsupported": Verdict.UNSUPPORTED,
    "timeout": Verdict.TIMEOUT,
    "resource_limit": Verdict.TIMEOUT,
}


@dataclass(frozen=True, slots=True)
class Proof:
    """A verdict, what it rests on in words, and how long it took."""

    verdict: Verdict
    message: str
    seconds: float


def prove_race_free(
    case: Case, plan: LaunchPlan, compiled: CompiledKernel, timeout_s: float = TIMEOUT_S
) -> Proof:
    """Proves one launch of a compiled kernel free of races.

    Args:
        case: the launch: problem and batch size.
        plan: of the kernel.
        compiled: its PTX.
        timeout_s: after which it gives up.

    Raises:
        ToolError: sentryward is not installed.
    """
    if plan.x_box is not None:
        return Proof(Verdict.UNSUPPORTED, f"{PACKAGE} knows no tensor map as an argument", 0.0)
    verify = _verify()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        ptx, launch = Path(folder) / "kernel.ptx", Path(folder) / "input.json"
        ptx.write_text(compiled.ptx, encoding="utf-8")
        launch.write_text(json.dumps(launch_document(case, plan, compiled.entry)), encoding="utf-8")
        found: dict[str, Any] = verify(
            ptx, input=launch, timeout_seconds=timeout_s, memory_limit_mib=MEMORY_MIB
        )
    result = str(found.get("result"))
    messages = [str(item.get("message")) for item in found.get("diagnostics", [])]
    verdict = _VERDICTS.get(result)
    if verdict is None:  # such as failed_synchronization: whatever is no pass is told as it is
        verdict, messages = Verdict.RACE, [result, *messages]
    return Proof(verdict, "; ".join(dict.fromkeys(messages)), time.perf_counter() - start)


def launch_document(case: Case, plan: LaunchPlan, entry: str) -> dict[str, Any]:
    """The launch in sentryward's words: five distinct buffers and three numbers."""
    numbers = (case.m, case.problem.k + X_PAD, case.problem.n + Y_PAD)
    pointers = [
        {"parameter": f"{entry}_param_{i}", "name": name, "type": "pointer", "object": name}
        | {"space": "global"}
        for i, name in enumerate(POINTERS)
    ]
    scalars = [
        {"parameter": f"{entry}_param_{len(POINTERS) + i}", "name": name, "type": kind}
        for i, (name, kind) in enumerate((("m", "u32"), ("ldx", "u64"), ("ldy", "u64")))
    ]
    return {
        "schema": SCHEMA,
        "launch": {
            "grid_dim": list(plan.grid(case.m)),
            "block_dim": [plan.threads, 1, 1],
            "dynamic_shared_bytes": plan.smem_bytes,
        },
        "declarations": pointers + scalars,
        "arguments": [
            {"field": item["name"], "value": value}
            for item, value in zip(scalars, numbers, strict=True)
        ],
    }


def _verify() -> Any:
    try:
        return import_module(PACKAGE).verify
    except ImportError as error:
        raise ToolError(
            f"{PACKAGE} is not in this Python environment, so that races cannot be ruled out for "
            f"every schedule. pip install {PACKAGE}==0.1.1 installs it (Linux and macOS)."
        ) from error
