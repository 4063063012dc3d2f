"""Golden databases: files of every released schema open and mean what they meant."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from golden_database import (
    BASELINE,
    DEQUANTIZED_US,
    OK,
    PREDICTED,
    PROBLEM,
    PROOF,
    PROOF_0003,
    write,
)

from db import query
from db.migrate import known_revisions
from db.models import ConfigRow, Winner
from db.records import Protocol
from db.session import Database, open_database
from db.store import Store
from ptxgen.outcome import Status
from ptxgen.proof import Proof

GOLDEN = Path(__file__).parents[2] / "golden"


def check(database: Database, revision: str) -> None:
    """The content that golden_database.write gives a file of that schema."""
    (run,) = query.runs(database)
    assert (run.device.name, run.device.capability, run.device.measured) == (
        "NVIDIA H200",
        "9.0",
        True,
    )
    assert (run.toolchain.driver, run.toolchain.nvrtc) == ("580.1", "13.0.88")
    assert run.settings == {"budget": "quick", "m": [8]}
    records = query.trials(database)
    assert {(record.problem, record.m, record.protocol) for record in records} == {
        (PROBLEM, 8, Protocol.CHAINED)
    }
    by_contender = {record.contender: record.outcome for record in records}
    assert by_contender["cublas"] == BASELINE
    by_status = {record.outcome.status: record.outcome for record in records[:2]}
    assert by_status == {Status.OK: OK, Status.PREDICTED: PREDICTED}
    assert set(query.outcomes_by_status(database, run.id)) == set(Status)
    with database.reading() as session:
        best, predicted = session.query(Winner).order_by(Winner.id)
        timed = revision >= "0003"
        assert Proof.from_dict(best.proof) == (PROOF_0003 if timed else PROOF)
        assert predicted.proof is None
        assert best.dequantized_us == (DEQUANTIZED_US if timed else None)
        assert predicted.dequantized_us is None
        (row,) = session.query(ConfigRow).all()
        assert (row.family, row.data["family"]) == ("mma", "mma")
        assert row.key.startswith("mma(block_m=")


@pytest.mark.parametrize("revision", known_revisions())
def test_a_golden_database_of_every_schema_opens_and_can_be_written(revision, tmp_path):
    path = tmp_path / "copy.db"
    shutil.copy(GOLDEN / f"schema_{revision}.db", path)
    with open_database(path) as database:
        check(database, revision)
        assert Store(database).recover_orphans() == 1
    with open_database(path) as database:
        assert query.trials(database, statuses=(Status.STARTED,)) == []


def test_a_database_written_now_passes_the_same_check(tmp_path):
    write(tmp_path / "now.db")
    with open_database(tmp_path / "now.db") as database:
        check(database, known_revisions()[-1])
