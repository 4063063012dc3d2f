"""docs/faults.md: its tests and files exist, its commands parse, and it names every fault."""

from __future__ import annotations

import ast
import re
import shlex
import shutil
from pathlib import Path

import click
import pytest

from ptxgen.errors import PtxtuneError
from ptxtune.cli import cli
from reports.faults_page import PARTS, filled, selfcheck_text
from search.faults import KERNEL_FAULTS

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "reports" / "results"
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


def test_measured_numbers_are_those_of_the_committed_results() -> None:
    """After another result: python -m reports.faults_page"""
    assert filled(PAGE, RESULTS) == PAGE
    assert set(re.findall(r"<!-- written: (\S+) -->", PAGE)) == set(PARTS)
    assert "-->\n<!-- end -->" not in PAGE  # none is empty


def test_another_result_changes_the_page(tmp_path: Path) -> None:
    shutil.copytree(RESULTS / "nvidia-h200", tmp_path / "nvidia-h200", ignore=only_texts)
    shutil.copytree(RESULTS / "no-gpu", tmp_path / "no-gpu")
    shutil.copy(RESULTS / "README.md", tmp_path)
    assert filled(PAGE, tmp_path) == PAGE
    edit(tmp_path / "README.md", "86 s by the clock", "123 s by the clock")
    edit(tmp_path / "nvidia-h200" / "soak.txt", "1196 faults", "777 faults")
    edit(tmp_path / "no-gpu" / "soak.txt", "undetected           0", "undetected           3")
    edit(tmp_path / "nvidia-h200" / "selfcheck.txt", "0.41%", "9.99%")
    found = filled(PAGE, tmp_path)
    for words in ("123 s on an NVIDIA H200", "777 faults", "undetected 3", "9.99 % at worst"):
        assert words in found
        assert words not in PAGE


def test_a_result_that_lacks_a_number_is_named(tmp_path: Path) -> None:
    log = tmp_path / "selfcheck.txt"
    log.write_text("killed\n")
    with pytest.raises(PtxtuneError, match=r"selfcheck\.txt does not say"):
        selfcheck_text(log)
    with pytest.raises(PtxtuneError, match="'nobody'"):
        filled("<!-- written: nobody -->\n<!-- end -->\n", RESULTS)


def only_texts(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if not name.endswith((".txt", "replay.json"))]


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new), encoding="utf-8")
