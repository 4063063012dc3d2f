"""Commands that write: what is there is kept unless --force; a refusal comes before the work."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from db.records import DeviceRecord, Protocol, ToolchainRecord
from db.session import open_database
from db.store import Store
from ptxgen.arch import arch_named
from ptxgen.bundle.verify import verify
from ptxgen.families import default_config
from ptxgen.outcome import Outcome, Status
from ptxgen.problem import Problem
from ptxtune import api
from ptxtune.cli import cli
from ptxtune.detect import Detection
from ptxtune.doctor import examine

PROBLEM = Problem(256, 256)
DEVICE = DeviceRecord("NVIDIA H200", "9.0", 132, 227 * 1024, 60 << 20, uuid="GPU-1")
LAYER = ("--n", "256", "--k", "256", "--gpu", "h200")


@pytest.fixture
def tuned(tmp_path: Path) -> str:
    """A database with one winner."""
    with open_database(tmp_path / "tuned.db") as database:
        store = Store(database)
        run = store.start_run(DEVICE, ToolchainRecord("580", "13.0", "0.1.0", "2.11"))
        config = default_config(PROBLEM, arch_named("sm_90a"), 8, 132)
        trial = store.start_trial(run, PROBLEM, 8, Protocol.PLAIN, config=config)
        store.end_trial(trial, Outcome(Status.OK, time_us=5.0))
        store.set_winner(trial)
    return str(tmp_path / "tuned.db")


def ptxtune(*words: str) -> Result:
    return CliRunner().invoke(cli, list(words), env={"CUDA_VISIBLE_DEVICES": ""})


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("report", "--html"), "page.html"),
        (("report", "--markdown"), "page.md"),
        (("report", "--json-file"), "page.json"),
        (("db", "export"), "trials.jsonl"),
        (("db", "export"), "trials.jsonl.gz"),
    ],
)
def test_a_file_that_is_there_is_kept(
    tmp_path: Path, tuned: str, words: tuple[str, ...], name: str
) -> None:
    file = tmp_path / name
    assert ptxtune(*words, str(file), "--db", tuned).exit_code == 0
    mask = os.umask(0)
    os.umask(mask)
    assert file.stat().st_mode & 0o777 == 0o666 & ~mask
    file.write_text("mine")
    done = ptxtune(*words, str(file), "--db", tuned)
    assert done.exit_code == 2
    assert f"{file} exists already" in done.stderr
    assert file.read_text() == "mine"
    assert ptxtune(*words, str(file), "--db", tuned, "--force").exit_code == 0
    assert file.read_bytes() != b"mine"


def test_of_several_files_none_is_written_where_one_is_refused(tmp_path: Path, tuned: str) -> None:
    (tmp_path / "b.md").write_text("mine")
    files = ("--html", str(tmp_path / "a.html"), "--markdown", str(tmp_path / "b.md"))
    assert ptxtune("report", *files, "--db", tuned).exit_code == 2
    twice = ("--html", str(tmp_path / "a.html"), "--markdown", str(tmp_path / "a.html"))
    assert "named for two files" in ptxtune("report", *twice, "--db", tuned).stderr
    assert not (tmp_path / "a.html").exists()


def test_rows_that_are_there_are_kept(tmp_path: Path, tuned: str) -> None:
    words = ("report", "--rows", str(tmp_path / "rows"), "--db", tuned)
    assert ptxtune(*words).exit_code == 0
    (file,) = (tmp_path / "rows").rglob("*.jsonl")
    before = file.read_text()
    file.write_text("mine")
    assert "exists already" in ptxtune(*words).stderr
    assert file.read_text() == "mine"
    assert ptxtune(*words, "--force").exit_code == 0
    assert file.read_text() == before


@pytest.mark.parametrize(
    "words",
    [
        ("bench", *LAYER[:4], "--json-file"),
        ("bench", *LAYER[:4], "--html"),
        ("bench", *LAYER[:4], "--markdown"),
        ("selfcheck", *LAYER[:4], "--record"),
        ("export", *LAYER, "--out"),
    ],
)
def test_a_refusal_comes_before_the_work(tmp_path: Path, words: tuple[str, ...]) -> None:
    """These would need a GPU, or compile for a second, before they write."""
    (tmp_path / "there").write_text("mine")
    done = ptxtune(*words, str(tmp_path / "there"))
    assert done.exit_code == 2
    assert f"{tmp_path / 'there'} exists already" in done.stderr
    below = ptxtune(*words, str(tmp_path / "there" / "file"))
    assert below.exit_code == 2
    assert "Not a directory" in below.stderr
    assert (tmp_path / "there").read_text() == "mine"


def test_force_belongs_to_what_writes(tmp_path: Path) -> None:
    assert "--force belongs to export" in ptxtune("db", "import", "x", "--force").stderr
    assert "--force replaces the file of --record" in ptxtune("selfcheck", "--force").stderr


def test_an_export_without_a_cache_says_so_once(tmp_path: Path, tuned: str) -> None:
    (tmp_path / "file").write_text("in the way")
    done = ptxtune(
        "export", *LAYER, "--m", "1,8", "--out", str(tmp_path / "bundle"), "--db", tuned,
        "--cache-dir", str(tmp_path / "file" / "cache"),
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert done.stderr.count("compiled without a cache") == 1
    assert [bucket.m_max for bucket in verify(tmp_path / "bundle").buckets] == [1, 8]
    with pytest.warns(UserWarning, match="compiled without a cache") as caught:
        api.export(
            tmp_path / "other", n=256, k=256, m=(1, 8), gpu="h200", db=tuned,
            cache_dir=str(tmp_path / "file" / "cache"),
        )  # fmt: skip
    assert len(caught) == 1


def test_doctor_creates_no_cache_folder(tmp_path: Path) -> None:
    found = examine(
        Detection((), "no driver"), db=str(tmp_path / "d"), cache_dir=str(tmp_path / "no" / "c")
    )
    assert {check.name: check.health.value for check in found}["cache"] == "ok"
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize("command", ["export", "tune"])
def test_a_cache_folder_of_nobody_is_one_paragraph(tmp_path: Path, command: str) -> None:
    out = ("--out", str(tmp_path / "b")) if command == "export" else ()
    done = ptxtune(
        command, *LAYER, *out, "--cache-dir", "~nobody-of-this-name/c", "--db", str(tmp_path / "d")
    )
    assert done.exit_code == 2
    assert "'~nobody-of-this-name/c' is no path" in done.stderr
    assert isinstance(done.exception, SystemExit)


def test_a_search_without_a_cache_that_it_can_write_is_refused_first(tmp_path: Path) -> None:
    """Each of its candidates would fail to compile."""
    (tmp_path / "file").write_text("x")
    words = ("tune", *LAYER, "--gpu", "h200", "--db", str(tmp_path / "x.db"))
    result = ptxtune(*words, "--cache-dir", str(tmp_path / "file" / "cache"))
    assert result.exit_code == 2
    assert "cannot be written" in result.stderr
    assert not (tmp_path / "x.db").exists()
