"""Bad and odd inputs, command line and API: an exit code, one paragraph, nothing written.

A fault that somebody finds becomes a row in odd_words.py or odd_calls.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import odd_files
import pytest
from click.testing import CliRunner
from odd_calls import CALLS
from odd_words import Row, bad, rows

import ptxtune
from ptxtune.cli import cli

ROOT = Path(__file__).resolve().parents[3]
ROWS = list(rows())
LONGEST = 6000
"""Letters of a message; click repeats a word of 5,000."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("odd")
    odd_files.prepare(found)
    return found


@pytest.fixture
def quiet(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, without a GPU, with a database of its own and no transformers."""
    monkeypatch.chdir(folder)
    for name, value in environment(folder).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("PTXTUNE_PIN", raising=False)
    monkeypatch.setitem(sys.modules, "transformers", None)
    return folder


def environment(folder: Path) -> dict[str, str]:
    return {
        "CUDA_VISIBLE_DEVICES": "",
        "PTXTUNE_DB": str(folder / "known.db"),
        "PTXTUNE_CACHE_DIR": str(folder / "cache"),
    }


def test_the_harness_has_enough_of_both_kinds() -> None:
    assert len(ROWS) + len(CALLS) >= 300
    assert len({(row.words, str(row.env)) for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.words[:60])
def test_command_lines(row: Row, quiet: Path) -> None:
    before = odd_files.listing(quiet)
    result = CliRunner().invoke(cli, row.split("models"), env=row.env, prog_name="ptxtune")
    assert isinstance(result.exception, SystemExit) or result.exception is None, result.exc_info
    assert result.exit_code == row.code, result.stderr
    check_text(result.stderr if row.refused else result.stdout, row)
    if row.refused:
        assert result.stdout == ""
    assert odd_files.listing(quiet) == before


def check_text(text: str, row: Row) -> None:
    """What is told names what it should; an error is one paragraph of bearable length."""
    if row.refused:
        text = text.partition("Error: ")[2]
        assert text.strip(), "no error was told"
        assert "\n\n" not in text.strip()
        assert text.strip().count("\n") <= 4  # click puts choices on lines of their own
        assert len(text) < LONGEST
    for word in row.named:
        assert word in text


@pytest.mark.parametrize(("call", "named"), CALLS, ids=[named for _, named in CALLS])
def test_calls(call: Callable[[], object], named: str, quiet: Path) -> None:
    before = odd_files.listing(quiet)
    if named:
        with pytest.raises(ptxtune.PtxtuneError) as caught:
            call()
        assert named in str(caught.value)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < LONGEST
    else:
        assert call() is not None
    assert odd_files.listing(quiet) == before


PROCESSES = [
    (bad("best --n 1024 --k 512", "No space left"), "/dev/full"),
    (bad("--help", "No space left"), "/dev/full"),
    (bad("best --model models/deep", "nested too deep"), ""),
]


@pytest.mark.parametrize(("row", "stdout"), PROCESSES, ids=lambda value: str(value)[:50])
def test_processes(row: Row, stdout: str, folder: Path) -> None:
    before = odd_files.listing(folder)
    with open(stdout or os.devnull, "w") as output:
        done = subprocess.run(
            [sys.executable, "-m", "ptxtune", *row.split("models")],
            cwd=folder,
            env={**os.environ, **environment(folder), "PYTHONPATH": str(ROOT)},
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=120,
        )
    assert done.returncode == row.code
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    check_text(done.stderr, row)
    assert odd_files.listing(folder) == before
