"""make sanitize without a GPU: logs are read, tools found, run and given up; the child is light."""

from __future__ import annotations

import difflib
import subprocess
import sys
from pathlib import Path

import pytest
from sanitize.__main__ import main
from sanitize.child import NO_DEVICE
from sanitize.kinds import KINDS, Kind, kinds_for
from sanitize.open_arrivals import HEADING, open_arrivals
from sanitize.prepare import source_of, variant_of
from sanitize.report import read_report
from sanitize.tool import HELPERS, ROOT, find_tool, run_tool

from ptxgen.arch import arch_named
from ptxgen.errors import ToolError
from ptxgen.families import violations
from ptxgen.families.wgmma_tma.shape import TmaShape

HOPPER = arch_named("sm_90a")
MEMCHECK = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 16 bytes
=========     at ptxtune_w4a16_wgmma_kernel+0x1c0 in ptxtune_w4a16_wgmma_kernel.cu:88
=========     by thread (3,0,0) in block (1,0,0)
=========     Address 0x7f0000 is out of bounds
=========
========= Invalid __global__ write of size 4 bytes
=========     at ptxtune_w4a16_mma_decode_kernel+0x70
=========     by thread (0,0,0) in block (0,0,0)
=========
========= Invalid __shared__ read of size 4 bytes
=========     at someone_elses_kernel+0x70
========= ERROR SUMMARY: 3 errors
"""
RACECHECK = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at ptxtune_w4a16_wgmma_kernel+0x190
=========     and Read access at ptxtune_w4a16_wgmma_kernel+0x1b0 [36 hazards]
=========
========= Warning: Race reported between Write access at ptxtune_w4a16_wgmma_kernel+0x200
========= and Write access at ptxtune_w4a16_wgmma_kernel+0x210 [8 hazards]
=========
========= RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)
"""
SYNCCHECK = """\
========= COMPUTE-SANITIZER
========= Barrier error detected. Divergent thread(s) in warp.
=========     at ptxtune_w4a16_wgmma_tma_kernel+0x30
=========     by thread (1,0,0) in block (0,0,0)
========= ERROR SUMMARY: 1 error
"""
CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
NEVER_BEGAN = """\
========= COMPUTE-SANITIZER
========= Error: process didn't terminate successfully
=========     The application may have hit an error when dereferencing Unified Memory.
========= Target application terminated before first instrumented API call
"""


@pytest.mark.parametrize(
    ("log", "counts"),
    [
        (MEMCHECK, {"wgmma": 1, "mma decode": 1, "wgmma_tma": 0}),
        (RACECHECK, {"wgmma": 2, "mma decode": 0, "wgmma_tma": 0}),
        (SYNCCHECK, {"wgmma": 0, "mma decode": 0, "wgmma_tma": 1}),
        (CLEAN, {"wgmma": 0, "mma decode": 0, "wgmma_tma": 0}),
    ],
    ids=["memcheck", "racecheck", "synccheck", "clean"],
)
def test_findings_belong_to_the_kernel_that_they_name(log: str, counts: dict[str, int]) -> None:
    report = read_report(log)
    assert report.complete
    assert report.told == len(report.findings)
    assert {name: len(report.about(entry_of(name))) for name in counts} == counts
    entries = tuple(kind.entry for kind in KINDS)
    assert len(report.elsewhere(entries)) == len(report.findings) - sum(counts.values())


def entry_of(name: str) -> str:
    return next(kind.entry for kind in KINDS if kind.name == name)


def test_a_log_without_a_summary_is_not_clean() -> None:
    for log in ("", "========= COMPUTE-SANITIZER\n", NEVER_BEGAN):
        report = read_report(log)
        assert not report.complete
        assert report.about("ptxtune") == ()


# ---- the kinds ----------------------------------------------------------------------------------


def test_no_kernel_is_named_within_another_ones_name() -> None:
    entries = [kind.entry for kind in KINDS]
    for entry in entries:
        assert [other for other in entries if entry in other] == [entry]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_kind_is_legal_and_has_a_tail(kind: Kind) -> None:
    assert violations(kind.problem, kind.config, HOPPER) == []
    plan = kind.plan(HOPPER)
    assert kind.m % plan.block_m
    assert kind.problem.n % plan.block_n
    assert kind.problem.k % 128


def test_the_kinds_are_those_that_they_are_called() -> None:
    plans = {kind.name: kind.plan(HOPPER) for kind in KINDS}
    assert {name for name, plan in plans.items() if plan.has_workspace} == {
        "mma split K, workspace",
        "wgmma_tma stream-K",
        "wgmma_tma stream-K, more CTAs than stages",
    }
    assert plans["mma split K, cluster"].cluster_k == plans["wgmma split K, cluster"].cluster_k == 2
    assert plans["wgmma_tma split K, cluster"].cluster_k == 2
    for name, walks in (("persistent", True), ("stream-K", True)):
        kind = next(each for each in KINDS if each.name == f"wgmma_tma {name}")
        plan = plans[kind.name]
        assert (plan.m_tiles(kind.m) * plan.n_tiles > plan.grid(kind.m)[0]) is walks
    moved = [
        kind.name
        for kind in KINDS
        if kind.config.family == "wgmma_tma" and TmaShape(kind.problem, kind.config).moves_registers  # type: ignore[arg-type]
    ]
    assert moved == ["wgmma_tma moved registers"]


def test_an_older_gpu_runs_what_it_can() -> None:
    names = {kind.name for kind in kinds_for(arch_named("sm_80"))}
    assert names == {
        "mma decode",
        "mma decode, subnormal nibbles",
        "mma split K, workspace",
        "mma, several warps in M and N",
    }


# ---- the variants for racecheck -----------------------------------------------------------------

OPENED = [kind for kind in KINDS if kind.opened_for_racecheck]


def text_of(name: str) -> str:
    return source_of(next(kind for kind in KINDS if kind.name == name), HOPPER).text


def changes(kind: Kind) -> tuple[list[str], list[str]]:
    """Lines that only the shipped text has, and lines that only its variant has."""
    shipped, variant = source_of(kind, HOPPER).text, variant_of(kind, HOPPER).text
    lines = [*difflib.ndiff(shipped.splitlines(), variant.splitlines())]
    gone, new = ([line[2:].strip() for line in lines if line[0] == sign] for sign in "-+")
    return gone, new


def test_all_kinds_with_a_ring_that_lanes_release_have_a_variant() -> None:
    assert {kind.name for kind in OPENED} == {
        kind.name for kind in KINDS if "mbarrier_arrive" in text_of(kind.name)
    }
    assert len(OPENED) == 12


@pytest.mark.parametrize(
    "kind", [kind for kind in OPENED if "multicast" not in kind.name], ids=lambda kind: kind.name
)
def test_a_variant_differs_in_who_arrives_and_how_many_are_awaited(kind: Kind) -> None:
    warps = "SLOT_READERS" if kind.config.to_dict()["warpgroups_k"] == 2 else "CONSUMER_WARPS"
    assert changes(kind) == (
        [
            f"mbarrier_init(empty + slot * 8, {warps});",
            "mbarrier_arrive_if(empty + slot * 8, yes && lane == 0);",
        ],
        [
            HEADING.strip(),
            f"mbarrier_init(empty + slot * 8, {warps} * 32);",
            "mbarrier_arrive_if(empty + slot * 8, yes);",
        ],
    )


@pytest.mark.parametrize(
    ("name", "first"),
    [("wgmma_tma multicast", ""), ("wgmma_tma multicast and split K", "blockIdx.z * 2 + ")],
)
def test_with_multicast_every_lane_arrives_at_every_cta_that_copies(name: str, first: str) -> None:
    assert changes(next(kind for kind in OPENED if kind.name == name)) == (
        [
            "mbarrier_init(empty + slot * 8, CONSUMER_WARPS * MULTICAST);",
            f"const u32 barrier = map_to_cta(empty + slot * 8, {first}lane % 2);",
            "mbarrier_arrive_cluster_if(barrier, yes && lane < 2);",
        ],
        [
            HEADING.strip(),
            "mbarrier_init(empty + slot * 8, CONSUMER_WARPS * MULTICAST * 32);",
            "#pragma unroll",
            "for (int cta = 0; cta < MULTICAST; ++cta)",
            f"mbarrier_arrive_cluster_if(map_to_cta(empty + slot * 8, {first}cta), yes);",
        ],
    )


TEXT = text_of("wgmma_tma persistent")
RELEASE = "mbarrier_arrive_if(empty + slot * 8, yes && lane == 0);"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (text_of("mma decode"), "one count of a slot's arrivals, .* 0 of"),
        (open_arrivals(TEXT), "one count of a slot's arrivals, .* 0 of"),
        (TEXT.replace("CONSUMER_WARPS);", "CONSUMERS);"), "one count of a slot's arrivals, .* 0"),
        (TEXT.replace("lane == 0);", "lane == 1);"), "one arrival that releases a slot, .* 0 of"),
        (TEXT.replace(RELEASE, RELEASE * 2), "one arrival that releases a slot, .* 2 of"),
        (
            text_of("wgmma_tma multicast").replace("lane < 2", "lane < 4"),
            "one arrival that releases a slot, .* 0 of",
        ),
    ],
    ids=["another family", "twice", "count", "lane", "two releases", "fewer than copy"],
)
def test_a_text_that_is_not_known_is_no_variant(text: str, what: str) -> None:
    with pytest.raises(ToolError, match=what):
        open_arrivals(text)


# ---- the tool -----------------------------------------------------------------------------------


def script(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "compute-sanitizer"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_it_is_found_on_the_path_or_under_cuda_home(tmp_path: Path) -> None:
    on_path = script(tmp_path / "bin", "")
    at_home = script(tmp_path / "cuda" / "compute-sanitizer", "")
    home = str(tmp_path / "cuda")
    assert find_tool({"PATH": f"/nowhere:{tmp_path / 'bin'}", "CUDA_HOME": home}) == on_path
    assert find_tool({"PATH": "/nowhere", "CUDA_HOME": home}) == at_home
    for environ in ({"PATH": "/nowhere"}, {"PATH": "/nowhere", "CUDA_HOME": "/gone"}, {}):
        with pytest.raises(ToolError, match="CUDA toolkit; set CUDA_HOME"):
            find_tool(environ)


def test_a_missing_tool_is_an_error_in_one_paragraph(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CUDA_HOME", raising=False)
    assert main([]) == 2
    assert "neither on PATH nor under CUDA_HOME (not set)" in capsys.readouterr().err


def test_a_run_gives_log_and_exit_code(tmp_path: Path) -> None:
    options = 'for word; do case "$last" in --log-file) log="$word";; esac; last="$word"; done'
    program = script(tmp_path, f'{options}\necho "$@" > "$log"; echo said; exit 7')
    run = run_tool(program, "memcheck", tmp_path, 30.0)
    assert (run.exit_code, run.printed) == (7, "said")
    assert run.ended == "ended with exit code 7"
    assert run.log.startswith("--tool memcheck ")
    assert "--padding 256" in run.log
    assert run.log.endswith(f"-m sanitize.child {tmp_path}\n")
    assert "--padding" not in run_tool(program, "racecheck", tmp_path, 30.0).log


def test_a_tool_that_hangs_is_given_up(tmp_path: Path) -> None:
    run = run_tool(script(tmp_path, "exec sleep 60"), "racecheck", tmp_path, 0.3)
    assert run.exit_code is None
    assert "did not end within 0 s" in run.ended


def test_the_child_needs_no_torch_and_says_that_there_is_no_device(tmp_path: Path) -> None:
    environ = {"PYTHONPATH": f"{HELPERS}:{ROOT}", "CUDA_VISIBLE_DEVICES": ""}
    probe = "import sys, sanitize.child; sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", probe], env=environ, check=False)
    assert done.returncode == 0
    (tmp_path / "manifest.json").write_text("[]")
    command = [sys.executable, "-m", "sanitize.child", str(tmp_path)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == NO_DEVICE
    assert "no kernel ran: " in done.stderr
