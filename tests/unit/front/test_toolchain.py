"""The commit that results are recorded with."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ptxtune import toolchain
from ptxtune.toolchain import source_commit


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("PTXTUNE_COMMIT", raising=False)
    source_commit.cache_clear()
    yield
    source_commit.cache_clear()


def checkout(folder: Path) -> str:
    """A git checkout of one file; its commit."""
    (folder / "file").write_text("one\n")
    name = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    for words in (["init", "-q"], ["add", "file"], [*name, "commit", "-qm", "one"]):
        subprocess.run(["git", "-C", str(folder), *words], check=True)
    done = subprocess.run(
        ["git", "-C", str(folder), "rev-parse", "--short=12", "HEAD"],
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


def test_it_is_that_of_the_checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    commit = checkout(tmp_path)
    monkeypatch.setattr(toolchain, "ROOT", tmp_path)
    assert source_commit() == commit
    source_commit.cache_clear()
    (tmp_path / "file").write_text("two\n")
    assert source_commit() == f"{commit}-dirty"


def test_a_named_commit_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    checkout(tmp_path)
    monkeypatch.setattr(toolchain, "ROOT", tmp_path)
    monkeypatch.setenv("PTXTUNE_COMMIT", "0123456789ab")
    assert source_commit() == "0123456789ab"


def test_without_a_checkout_it_is_empty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(toolchain, "ROOT", tmp_path)
    assert source_commit() == ""
