"""docs/trust.md: every claim names a test, and every test that it names exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import click
import pytest

from ptxtune.cli import cli

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "trust.md").read_text(encoding="utf-8")
ROWS = [line for line in PAGE.splitlines() if re.match(r"\| (?!claim|---)", line)]
REFERENCE = re.compile(r"`(tests/[a-z0-9_/]+\.py)::(\w+)`")


def functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_there_are_claims() -> None:
    assert len(ROWS) > 20


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[2:50])
def test_every_claim_names_tests_that_exist(row: str) -> None:
    claim, proof = row.strip("| ").split(" | ")
    found = REFERENCE.findall(proof)
    assert claim
    assert found
    assert len(found) == proof.count("::")
    for file, name in found:
        assert name in functions(ROOT / file), f"{file}::{name}"


def test_its_commands_parse() -> None:
    lines = re.findall(r"^ptxtune (\w+)(.*)$", PAGE, re.M)
    assert lines
    for name, rest in lines:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        command.make_context(name, rest.split())
