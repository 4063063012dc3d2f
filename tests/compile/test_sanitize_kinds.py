"""What make sanitize runs: every kind compiles, and a wrong output of one is told. racecheck's
variants are right and free of races on the interpreter, which catches one that counts wrongly."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sanitize.__main__ import columns_of
from sanitize.kinds import KINDS, Kind
from sanitize.prepare import Job, output_fault, prepare, prepare_for, source_of, variant_of
from sanitize.report import read_report
from sanitize.table import PLAIN, column_of, sanitize_table
from sanitize.tool import TOOLS, ToolRun

from ptxgen.arch import ARCHS
from ptxgen.check import POISON
from ptxgen.compile import compile_source
from ptxgen.cpucheck.reduced import Case
from ptxgen.cpucheck.run import SCHEDULES, check_compiled, schedule_name
from ptxgen.source import KernelSource

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


# ---- racecheck's variants -----------------------------------------------------------------------

OPENED = [kind for kind in KINDS if kind.opened_for_racecheck]


def named(name: str) -> Kind:
    return next(kind for kind in KINDS if kind.name == name)


@pytest.mark.parametrize("kind", OPENED, ids=lambda kind: kind.name)
def test_every_variant_compiles_and_has_another_code(kind: Kind) -> None:
    variant, shipped = (compile_source(make(kind, SM90A)) for make in (variant_of, source_of))
    assert variant.entry == shipped.entry == kind.entry
    assert variant.cubin != shipped.cubin


def test_racecheck_alone_runs_variants_and_their_sources_are_kept(tmp_path: Path) -> None:
    """A tool that only writes down what it was to run."""
    kinds = [named("wgmma"), named("wgmma_tma multicast")]
    batches = prepare_for(TOOLS, kinds, SM90A, tmp_path)
    program = tmp_path / "tool"
    program.write_text(
        '#!/bin/sh\nfor word; do case "$last" in --log-file) log="$word";; esac; last="$word"; '
        f'done\n(echo "$last"; echo \'{CLEAN}\') > "$log"\n'
    )
    program.chmod(0o755)
    columns = columns_of(program, batches, 30.0)
    assert [column.tool for column in columns] == [*TOOLS]
    for column in columns:
        folder = Path(column.run.log.splitlines()[0])
        opened = column.tool == "racecheck"
        assert column.variants == ({kinds[1].entry} if opened else set())
        for kind, variant in zip(kinds, (False, opened), strict=True):
            source = variant_of(kind, SM90A) if variant else source_of(kind, SM90A)
            assert (folder / f"{kind.entry}.cu").read_text() == source.text
            cubin = compile_source(source, line_info=True).cubin
            assert (folder / f"{kind.entry}.cubin").read_bytes() == cubin
    inputs = [
        {path.name: path.read_bytes() for path in batch.folder.iterdir() if path.suffix in KEPT}
        for batch in batches.values()
    ]
    assert len(inputs[0]) == len(KEPT) * len(kinds)
    assert all(other == inputs[0] for other in inputs)


KEPT = (".x", ".packed", ".bias", ".ref")


def test_the_table_tells_which_kinds_were_variants_and_why(job: Job, tmp_path: Path) -> None:
    plain = column_of(PLAIN, ToolRun("", ""), [job], tmp_path)
    variant = replace(job, variant=True)
    raced = column_of("racecheck", ToolRun(CLEAN, ""), [variant], tmp_path)
    text = sanitize_table([job], [plain, raced])
    assert text.splitlines()[2].split() == [*job.name.split(), "0", "0*"]
    assert "* racecheck ran a variant of these kernels, not what is shipped" in text
    assert f"The variants' sources are in {tmp_path}." in text
    ended = column_of("racecheck", ToolRun("", "", 1, "ended early"), [variant], tmp_path)
    for column in (plain, ended):
        assert "*" not in sanitize_table([job], [column])


def failures(kind: Kind, source: KernelSource) -> dict[str, list[str]]:
    """What the interpreter finds, by schedule."""
    case = Case(kind.problem, kind.config, SM90A, kind.m)
    found = check_compiled(case, source, compile_source(source), SCHEDULES).failures
    return {
        name: [f"{item.kind}: {item.message}" for item in found if item.schedule == name]
        for name in map(schedule_name, SCHEDULES)
    }


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("kind", OPENED, ids=lambda kind: kind.name)
def test_variants_are_right_without_races_under_every_schedule(kind: Kind) -> None:
    assert not any(failures(kind, variant_of(kind, SM90A)).values())


PERSISTENT, MULTICAST = "wgmma_tma persistent", "wgmma_tma multicast"
HANGS, RACE = "fault: DeadlockError", "race: "


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    ("name", "old", "new", "caught"),
    [
        (PERSISTENT, "CONSUMER_WARPS * 32);", "CONSUMER_WARPS);", HANGS),
        (MULTICAST, "CONSUMER_WARPS * MULTICAST * 32", "CONSUMER_WARPS * MULTICAST", HANGS),
        (PERSISTENT, "CONSUMER_WARPS * 32);", "CONSUMER_WARPS * 32 + 1);", HANGS),
        (MULTICAST, "CONSUMER_WARPS * MULTICAST * 32", "CONSUMER_WARPS * 32", RACE),
        (PERSISTENT, "slot * 8, yes);", "slot * 8, yes && lane == 0);", HANGS),
        (MULTICAST, "slot * 8, cta), yes", "slot * 8, 0), yes", HANGS),
        (PERSISTENT, "used_slot - 1, stage > 0)", "used_slot - 1, true)", RACE),
    ],
    ids=[
        "a count for one lane a warp",
        "the same with multicast",
        "a count that is never reached",
        "a count for one CTA of two",
        "one lane arrives for many",
        "one CTA of two is told",
        "a slot is released before it was filled",
    ],
)
def test_a_variant_that_is_wrong_is_caught(name: str, old: str, new: str, caught: str) -> None:
    kind = named(name)
    source = variant_of(kind, SM90A)
    assert source.text.count(old) == 1
    broken = replace(source, text=source.text.replace(old, new))
    for schedule, found in failures(kind, broken).items():
        assert any(text.startswith(caught) for text in found), f"{schedule}: {found}"
