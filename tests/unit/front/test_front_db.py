"""ptxtune db: what one database exports, another takes in; a bad file leaves nothing behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from db import query
from db.imported import IMPORTED
from db.records import DeviceRecord, Protocol, ToolchainRecord
from db.session import open_database
from db.store import Store
from ptxgen.arch import arch_named
from ptxgen.families import default_config
from ptxgen.outcome import Outcome, Status
from ptxgen.problem import Problem
from ptxtune.cli import cli

PROBLEM = Problem(4096, 4096)
DEVICE = DeviceRecord("NVIDIA H200", "9.0", 132, 227 * 1024, 60 << 20, uuid="GPU-1")
CONFIG = default_config(PROBLEM, arch_named("sm_90a"), 8, 132)


def ptxtune(*words: str) -> Result:
    return CliRunner().invoke(cli, ["db", *words])


@pytest.fixture
def tuned(tmp_path: Path) -> Path:
    path = tmp_path / "tuned.db"
    with open_database(path) as database:
        store = Store(database)
        run = store.start_run(DEVICE, ToolchainRecord("580", "13.0", "0.1.0", "2.11"))
        trial = store.start_trial(run, PROBLEM, 8, Protocol.PLAIN, config=CONFIG)
        store.end_trial(trial, Outcome(Status.OK, time_us=5.0))
        store.set_winner(trial)
    return path


def test_export_then_import(tmp_path: Path, tuned: Path) -> None:
    file, other = str(tmp_path / "w.jsonl"), tmp_path / "other.db"
    done = ptxtune("export", file, "--db", str(tuned), "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["winners"] == 1
    done = ptxtune("import", file, "--db", str(other))
    assert done.exit_code == 0, done.output
    assert "seeds added: 1" in done.stdout
    assert "devices: NVIDIA H200" in done.stdout
    with open_database(other) as database:
        assert [item.contender for item in query.trials(database)] == [IMPORTED]


def test_a_bad_file_is_one_paragraph_and_no_database(tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text('{"format": "shopping"}\n')
    done = ptxtune("import", str(tmp_path / "bad.jsonl"), "--db", str(tmp_path / "new.db"))
    assert done.exit_code == 2
    assert "bad.jsonl, line 1: this is no file of ptxtune-trials" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "new.db").exists()


def test_all_belongs_to_export(tmp_path: Path) -> None:
    done = ptxtune("import", str(tmp_path / "x"), "--all")
    assert done.exit_code == 2
    assert "--all belongs to export" in done.stderr
