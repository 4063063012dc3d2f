"""What make sanitize runs: every kind compiles, and a wrong output of one is told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sanitize.kinds import KINDS
from sanitize.prepare import Job, output_fault, prepare
from sanitize.report import read_report
from sanitize.table import PLAIN, column_of, sanitize_table
from sanitize.tool import ToolRun

from ptxgen.arch import ARCHS
from ptxgen.check import POISON

pytestmark = pytest.mark.compile

SM90A = ARCHS["sm_90a"]
BROKEN = (
    "========= Invalid __global__ read\n=========     at {}+0x10\n========= ERROR SUMMARY: 1 errors"
)
CLEAN = "========= ERROR SUMMARY: 0 errors"


def test_every_kind_compiles_under_its_own_name(tmp_path: Path) -> None:
    jobs = prepare(KINDS, SM90A, tmp_path)
    assert [job.name for job in jobs] == [kind.name for kind in KINDS]
    for job in jobs:
        assert job.entry.encode() in (tmp_path / f"{job.entry}.cubin").read_bytes()


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """One prepared kind whose output is what the reference says."""
    (job,) = prepare(KINDS[:1], SM90A, tmp_path)
    write(job, tmp_path, right(job, tmp_path))
    return job


def right(job: Job, folder: Path) -> np.ndarray:
    """Bits of y [m, ldy] with poison between the rows."""
    ref = torch.load(folder / f"{job.entry}.ref", weights_only=True)
    rows = np.full((job.m, job.ldy), POISON, dtype=np.uint16)
    rows[:, : ref.shape[1]] = ref.to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)
    return rows


def write(job: Job, folder: Path, rows: np.ndarray) -> None:
    """As the child does: the padding of the last row does not exist."""
    n = int(str(job.problem["n"]))
    flat = rows.reshape(-1)[: (job.m - 1) * job.ldy + n]
    (folder / f"{job.entry}.y").write_bytes(flat.tobytes())


def test_a_right_output_has_no_fault(job: Job, tmp_path: Path) -> None:
    assert output_fault(job, tmp_path) == ""


@pytest.mark.parametrize(
    ("place", "bits", "fault"),
    [
        ((1, 7), POISON, "left outputs unwritten"),
        ((0, -1), 0, "wrote between the rows"),
        ((2, 3), 0x4480, "error"),
    ],
)
def test_a_wrong_output_is_told(
    job: Job, tmp_path: Path, place: tuple[int, int], bits: int, fault: str
) -> None:
    rows = right(job, tmp_path)
    rows[place] = bits
    write(job, tmp_path, rows)
    assert fault in output_fault(job, tmp_path)
    column = column_of("memcheck", ToolRun(CLEAN, ""), [job], tmp_path)
    assert not column.clean
    assert column.cell(job) == "0, failed"


def test_the_table_tells_what_each_tool_found(job: Job, tmp_path: Path) -> None:
    plain = column_of(PLAIN, ToolRun("", ""), [job], tmp_path)
    clean = column_of("synccheck", ToolRun(CLEAN, ""), [job], tmp_path)
    broken = column_of("memcheck", ToolRun(BROKEN.format(job.entry), ""), [job], tmp_path)
    other = column_of("racecheck", ToolRun(BROKEN.format("other"), ""), [job], tmp_path)
    ended = column_of("racecheck", ToolRun("", "said why", 1, "ended early"), [job], tmp_path)
    assert [each.clean for each in (plain, clean, broken, other, ended)] == [True, True] + [
        False
    ] * 3
    text = sanitize_table([job], [plain, clean, broken])
    assert text.splitlines()[2].split() == [*job.name.split(), "0", "0", "1"]
    assert f"Invalid __global__ read\n    at {job.entry}+0x10" in text
    assert text.endswith("NOT clean.")
    assert "no kernel named" in sanitize_table([job], [other])
    assert "racecheck ended early: said why" in sanitize_table([job], [ended])
    assert sanitize_table([job], [plain, clean]).endswith("All are clean.")
    assert read_report(CLEAN).told == 0


def test_a_kind_without_output_failed(tmp_path: Path) -> None:
    (job,) = prepare(KINDS[:1], SM90A, tmp_path)
    column = column_of(PLAIN, ToolRun("", ""), [job], tmp_path)
    assert column.failures == {job.entry: "no output"}
    assert not column.clean
