"""make sanitize: python -m sanitize. Exit code 1 where something is wrong, 2 where nothing ran."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from ptxgen.arch import arch_named
from ptxgen.errors import PtxtuneError
from sanitize.child import FAILURES
from sanitize.kinds import kinds_for
from sanitize.prepare import Batch, prepare_for
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
    root = Path(tempfile.mkdtemp(prefix="ptxtune-sanitize-"))
    kinds = kinds_for(arch)
    batches = prepare_for((PLAIN, *tools), kinds, arch, root)
    _note(f"{len(kinds)} kinds compiled for {arch.name}; kernels and logs are in {root}")
    columns = columns_of(program, batches, seconds)
    sys.stdout.write(sanitize_table(batches[PLAIN].jobs, columns) + "\n")
    return 0 if all(column.clean for column in columns) else 1


def columns_of(program: Path, batches: Mapping[str, Batch], seconds: float) -> list[ToolColumn]:
    """Runs every tool on its own batch, one after the other; PLAIN is none."""
    columns = []
    for tool, batch in batches.items():
        for stale in (*batch.folder.glob("*.y"), batch.folder / FAILURES):
            stale.unlink(missing_ok=True)
        if tool == PLAIN:
            run = run_plain(batch.folder, seconds)
        else:
            _note(f"running {program} --tool {tool}")
            run = run_tool(program, tool, batch.folder, seconds)
        columns.append(column_of(tool, run, batch.jobs, batch.folder))
    return columns


def _note(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
