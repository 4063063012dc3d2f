"""The public API: loads lazily, answers like the command line, and raises typed errors."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import ptxtune
from ptxtune.cli import cli

ROOT = Path(__file__).resolve().parents[3]


def test_import_is_light() -> None:
    code = (
        "import sys, ptxtune; heavy = ('torch', 'cuda', 'sqlalchemy', 'plotly', 'optuna'); "
        "print([m for m in heavy if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.strip() == "[]"


def test_help_is_light() -> None:
    code = (
        "import sys; from click.testing import CliRunner; from ptxtune.cli import cli; "
        "assert CliRunner().invoke(cli, ['--help']).exit_code == 0; "
        "print([m for m in ('torch', 'cuda', 'sqlalchemy', 'plotly') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", ptxtune.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(ptxtune, name) is not None
    assert name in dir(ptxtune)


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="fastest"):
        _ = ptxtune.fastest


def test_best_agrees_with_the_command(tmp_path: Path) -> None:
    db = str(tmp_path / "d.db")
    Path(db).touch()
    answer = ptxtune.best(
        n=4096, k=4096, m=8, group=-1, dtype="bf16", zero="int", gpu="a100", db=db
    )
    words = "best --n 4096 --k 4096 --m 8 --group -1 --dtype bf16 --zero int --gpu a100 --json --db"
    result = CliRunner().invoke(cli, [*words.split(), db])
    (listed,) = json.loads(result.stdout)["answers"]
    assert listed["config"] == answer.config.to_dict()
    assert listed["problem"] == answer.problem.to_dict()
    assert listed["level"] == answer.level == "default"


@pytest.mark.parametrize(
    "arguments",
    [
        {"n": 4095, "k": 4096, "m": 1},
        {"n": 4096, "k": 4096, "m": -1},
        {"n": 4096, "k": 4096, "m": 1, "group": 7},
        {"n": 4096, "k": 4096, "m": 1, "gpu": "voodoo2"},
        {"n": 4096, "k": 4096, "m": 1, "dtype": "fp8"},
    ],
)
def test_bad_arguments_raise_the_package_error(arguments: dict, tmp_path: Path) -> None:
    with pytest.raises(ptxtune.PtxtuneError):
        ptxtune.best(**arguments, db=str(tmp_path / "d.db"))
