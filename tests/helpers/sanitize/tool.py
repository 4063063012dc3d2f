"""Finds compute-sanitizer, and runs the child under one of its tools."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ptxgen.errors import DriverError, ToolError
from sanitize.child import NO_DEVICE

NAME = "compute-sanitizer"
RACECHECK = "racecheck"
TOOLS = ("memcheck", RACECHECK, "synccheck")
HELPERS = Path(__file__).parents[1]
ROOT = HELPERS.parents[1]

# API errors are ours to tell: cuda-python looks for functions that an older driver does not have.
OPTIONS = ("--report-api-errors", "no", "--destroy-on-device-error", "kernel", "--print-limit", "0")
PADDING = ("--padding", "256")
"""Of memcheck: behind each allocation, so that no small step beyond one lands in another."""


@dataclass(frozen=True, slots=True)
class ToolRun:
    """How a run under a tool ended.

    Attributes:
        log: what the tool wrote.
        printed: what the child printed.
        exit_code: of the child, or the tool's own; None where it was killed.
        ended: why it counts for nothing; empty where it came to its end.
    """

    log: str
    printed: str
    exit_code: int | None = 0
    ended: str = ""


def find_tool(environ: Mapping[str, str] = os.environ) -> Path:
    """compute-sanitizer on PATH, or under CUDA_HOME. Raises ToolError where it is at neither."""
    home = environ.get("CUDA_HOME", "")
    folders = [*environ.get("PATH", "").split(os.pathsep)]
    folders += [f"{home}/bin", f"{home}/compute-sanitizer"] if home else []
    found = shutil.which(NAME, path=os.pathsep.join(folders))
    if found is None:
        raise ToolError(
            f"{NAME} is neither on PATH nor under CUDA_HOME ({home or 'not set'}). It comes with "
            f"the CUDA toolkit; set CUDA_HOME to the toolkit's folder. Without a toolkit: pip "
            f"install nvidia-cuda-sanitizer-api, and set CUDA_HOME to its folder nvidia/cu13."
        )
    return Path(found)


def run_tool(program: Path, tool: str, folder: Path, timeout_s: float) -> ToolRun:
    """Runs the child on a prepared folder under one tool."""
    log = folder / f"{tool}.log"
    command = [str(program), "--tool", tool, *OPTIONS, *(PADDING if tool == "memcheck" else ())]
    return _run([*command, "--log-file", str(log)], folder, log, timeout_s)


def run_plain(folder: Path, timeout_s: float) -> ToolRun:
    """Runs the child without any tool.

    Raises:
        DriverError: there is no device to run on.
    """
    run = _run([], folder, folder / "none.log", timeout_s)
    if run.exit_code == NO_DEVICE:
        raise DriverError(
            f"make sanitize runs kernels on a GPU, and there is none: {run.printed} ptxtune check "
            f"--cpu looks for races without one."
        )
    return run


def _run(prefix: list[str], folder: Path, log: Path, timeout_s: float) -> ToolRun:
    command = [*prefix, sys.executable, "-m", "sanitize.child", str(folder)]
    paths = os.pathsep.join([str(HELPERS), str(ROOT)])
    try:
        done = subprocess.run(
            command,
            env={**os.environ, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return ToolRun(_read(log), "", None, f"did not end within {timeout_s:.0f} s")
    printed = (done.stdout + done.stderr).strip()
    ended = f"ended with exit code {done.returncode}" if done.returncode else ""
    return ToolRun(_read(log), printed, done.returncode, ended)


def _read(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""
