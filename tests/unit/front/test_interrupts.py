"""Ctrl-C ends every command with 130: in an import, in its work, in its worker threads."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

import click
import pytest
from click.testing import CliRunner

from ptxtune.cli import COMMANDS, cli
from ptxtune.interrupts import Interrupts

ROOT = Path(__file__).resolve().parents[3]
PROMPT_S = 60
"""A loaded machine may need some of it; a command that goes on needs far more."""


def started(words: str, folder: Path) -> subprocess.Popen[str]:
    environment = {
        "PTXTUNE_DB": str(folder / "x.db"),
        "PTXTUNE_CACHE_DIR": str(folder / "cache"),
        "TMPDIR": str(folder),
        "PYTHONPATH": str(ROOT),
        "CUDA_VISIBLE_DEVICES": "",
    }
    return subprocess.Popen(
        [sys.executable, "-m", "ptxtune", *words.split()],
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def ended(process: subprocess.Popen[str]) -> str:
    """What it said after a SIGINT to its whole group, as a terminal sends it."""
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=PROMPT_S)
    assert process.returncode == 130, said
    assert "Traceback" not in said
    return said


@pytest.mark.parametrize("words", ["check --n 4096 --k 4096 --m 8", "tune --n 1024 --k 512"])
def test_in_the_imports_of_a_command(words: str, tmp_path: Path) -> None:
    process = started(words, tmp_path)
    time.sleep(0.5)  # Python is up, torch is not
    assert "Interrupted" in ended(process)


def test_in_the_lanes_of_a_soak(tmp_path: Path) -> None:
    process = started("selfcheck --soak 100000 --lanes 1", tmp_path)
    assert process.stderr is not None
    assert "soak in" in process.stderr.readline()
    ended(process)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_says_130(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = cli.get_command(click.Context(cli), name)
    assert found is not None

    def pressed(*_: object, **__: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(found, "invoke", pressed)
    words = {
        "export": ["--out", "b"],
        "db": ["export", "file"],
        "inspect": ["b"],
        "convert": ["a", "b"],
    }.get(name, [])
    result = CliRunner().invoke(cli, [name, *words], prog_name="ptxtune")
    assert (result.exit_code, result.stderr) == (130, "Interrupted.\n")


def test_an_interrupt_that_an_import_made_another_error_of(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Interrupts()
    found = cli.get_command(click.Context(cli), "doctor")
    assert found is not None

    def half_imported(*_: object, **__: object) -> NoReturn:
        raise ImportError("numpy._core.multiarray failed to import")

    monkeypatch.setattr(found, "invoke", half_imported)
    untouched = CliRunner().invoke(cli, ["doctor"], obj=watched)
    assert isinstance(untouched.exception, ImportError)
    watched.seen = True
    assert CliRunner().invoke(cli, ["doctor"], obj=watched).exit_code == 130


def test_a_caller_that_ignores_sigint_is_left_alone() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        Interrupts().watch()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


IN_TEXT = """
import ptxtune.cli

def pressed(**_):
    exec("import signal; signal.raise_signal(signal.SIGINT)")  # as torch's import runs text

ptxtune.cli.cli = pressed
ptxtune.cli.main()
"""


def test_where_python_would_end_by_the_signal_it_is_130_too(tmp_path: Path) -> None:
    (tmp_path / "pressed.py").write_text(IN_TEXT)  # -c does not end by the signal, -m does
    done = subprocess.run(
        [sys.executable, "-m", "pressed"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=False,
        timeout=PROMPT_S,
    )
    assert done.returncode == 130
