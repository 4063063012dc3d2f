"""docs/faults.md: its tests and files exist, its commands parse, and it names every fault."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import click
import pytest

from ptxtune.cli import cli
from search.faults import KERNEL_FAULTS

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
REFERENCES = re.findall(r"`(tests/[a-z0-9_/]+\.py)::(\w+)`", PAGE)
COMMANDS = [line for line in PAGE.splitlines() if line.startswith("ptxtune ")]


def test_there_is_something_to_check() -> None:
    assert len(REFERENCES) == PAGE.count("::") >= 15
    assert len(COMMANDS) >= 7


@pytest.mark.parametrize(("file", "name"), REFERENCES)
def test_every_named_test_exists(file: str, name: str) -> None:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_parses(line: str) -> None:
    name, *words = shlex.split(line)[1:]
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    command.make_context(name, words)


def test_every_kernel_fault_is_described() -> None:
    text = " ".join(PAGE.split()).lower()
    described = {
        "illegal address": "illegal address",
        "misaligned address": "misaligned address",
        "endless loop": "endless loop",
        "wrong result in one tile": "wrong result in one tile",
        "writes past the output": "a write past the output",
        "NaN on a tail": "nan on a tail",
        "a tile is not written": "a tile that is not written",
        "differs from run to run": "differs from run to run",
        "compiler refuses": "source that nvrtc refuses",
    }
    assert described.keys() == {fault.name for fault in KERNEL_FAULTS}
    for words in described.values():
        assert words in text
