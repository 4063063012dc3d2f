"""make sanitize: python -m sanitize. Exit code 1 where something is wrong, 2 where nothing ran."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ptxgen.arch import arch_named
from ptxgen.errors import PtxtuneError
from sanitize.child import FAILURES
from sanitize.kinds import kinds_for
from sanitize.prepare import Job, prepare
from sanitize.table import PLAIN, ToolColumn, column_of, sanitize_table
from sanitize.tool import TOOLS, find_tool, run_plain, run_tool


def main(arguments: Sequence[str]) -> int:
    """Runs every kind under every tool, and prints what they found."""
    parser = argparse.ArgumentParser(prog="sanitize", description=main.__doc__)
    parser.add_argument("--arch", default="sm_90a", help="of the GPU (default: %(default)s)")
    parser.add_argument("--tools", default=",".join(TOOLS), help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=600.0, help="time limit of a tool")
    options = parser.parse_args(arguments)
    try:
        return _sanitize(options.arch, options.tools.split(","), options.seconds)
    except PtxtuneError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code


def _sanitize(arch_name: str, tools: Sequence[str], seconds: float) -> int:
    program, arch = find_tool(), arch_named(arch_name)
    folder = Path(tempfile.mkdtemp(prefix="ptxtune-sanitize-"))
    jobs = prepare(kinds_for(arch), arch, folder)
    _note(f"{len(jobs)} kinds compiled for {arch.name}; kernels and logs are in {folder}")
    columns = [column_of(PLAIN, run_plain(folder, seconds), jobs, folder)]
    for tool in tools:
        _note(f"running {program} --tool {tool}")
        columns.append(_column(program, tool, jobs, folder, seconds))
    sys.stdout.write(sanitize_table(jobs, columns) + "\n")
    return 0 if all(column.clean for column in columns) else 1


def _column(
    program: Path, tool: str, jobs: Sequence[Job], folder: Path, seconds: float
) -> ToolColumn:
    for stale in (*folder.glob("*.y"), folder / FAILURES):
        stale.unlink(missing_ok=True)
    return column_of(tool, run_tool(program, tool, folder, seconds), jobs, folder)


def _note(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
