"""Paths and variables: the variable wins, blanks do not, nothing is created."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from ptxgen import env

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for variable in env.ENV_VARS:
        monkeypatch.delenv(variable.name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def test_defaults_lie_in_the_users_folders_and_are_not_created(tmp_path: Path) -> None:
    assert env.cache_dir().name == env.data_dir().name == env.APP_NAME
    assert env.database() == str(env.data_dir() / "ptxtune.db")
    assert env.pinned_config() == ""
    assert not list(tmp_path.iterdir())


def test_variables_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTXTUNE_CACHE_DIR", "~/kernels")
    monkeypatch.setenv("PTXTUNE_DB", "postgresql+psycopg://host/db")
    monkeypatch.setenv("PTXTUNE_PIN", ' {"family": "mma"} ')
    assert env.cache_dir() == Path.home() / "kernels"
    assert env.database() == "postgresql+psycopg://host/db"
    assert env.pinned_config() == '{"family": "mma"}'


def test_a_blank_variable_is_as_good_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    default = env.cache_dir()
    monkeypatch.setenv("PTXTUNE_CACHE_DIR", " ")
    assert env.cache_dir() == default


def is_environment(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv")


def variables_read(source: str) -> set[str]:
    """Names of the variables that a source reads through os.environ or os.getenv."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Call, ast.Subscript)) and any(map(is_environment, ast.walk(node))):
            names |= {
                item.value
                for item in ast.walk(node)
                if isinstance(item, ast.Constant) and isinstance(item.value, str)
            }
    return names


def test_no_other_module_reads_our_variables() -> None:
    assert variables_read('import os\nx = os.environ.get("PTXTUNE_X")') == {"PTXTUNE_X"}
    assert variables_read('import os\nx = os.environ["PTXTUNE_X"]') == {"PTXTUNE_X"}
    readers = {
        str(path.relative_to(ROOT))
        for package in ("ptxgen", "db", "search", "reports", "ptxtune")
        for path in (ROOT / package).rglob("*.py")
        if any(name.startswith("PTXTUNE_") for name in variables_read(path.read_text()))
    }
    assert readers <= {"ptxgen/env.py"}
