"""ptxtune selfcheck --shapes: how a soak of random shapes is told, and what it needs."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from ptxgen.arch import arch_named
from ptxgen.families import default_config
from ptxgen.outcome import Status
from ptxgen.problem import Problem
from ptxtune.cli import cli
from ptxtune.shapes_text import SHOWN, shapes_document, shapes_text
from search.shape_report import ShapeFailure, ShapeReport

PROBLEM = Problem(232, 2752, 64, "bf16", "int", bias=True)
CONFIG = default_config(PROBLEM, arch_named("sm_90"), 17, 132)
FAILURE = ShapeFailure(PROBLEM, 17, CONFIG, Status.WRONG, "relative error 0.5 is\nabove 0.01")
GOOD = ShapeReport(
    seed=3,
    seconds=20.0,
    problems=5,
    configs={"mma": 100, "wgmma": 60},
    checks={("mma", Status.OK): 300, ("wgmma", Status.OK): 180},
    refused={("wgmma", Status.SPILLED): 7, ("wgmma_tma", Status.COMPILE_ERROR): 2},
    failures=(),
    restarts=0,
)
BAD = replace(
    GOOD,
    checks={**GOOD.checks, ("mma", Status.WRONG): 1},
    failures=(FAILURE,),
    restarts=1,
)


def test_a_good_soak_in_words_and_json() -> None:
    text = shapes_text(GOOD)
    assert "480 checks (24.0/s) of 160 configs (8.0/s) on 5 problems in 20 s, seed 3" in text
    assert [line.split() for line in text.splitlines() if line.startswith(("mma", "wgmma"))] == [
        ["mma", "100", "300", "300", "ok", "-"],
        ["wgmma", "60", "180", "180", "ok", "7", "spilled"],
        ["wgmma_tma", "0", "0", "2", "compile_error"],
    ]
    assert text.endswith("Nothing is wrong.")
    document = json.loads(json.dumps(shapes_document(GOOD)))
    assert document["passed"] is True
    assert (document["checks"], document["configs"]) == (480, 160)
    assert (document["checks_per_s"], document["configs_per_s"]) == (24.0, 8.0)
    assert document["families"]["wgmma"] == {
        "configs": 60,
        "checks": {"ok": 180},
        "refused": {"spilled": 7},
    }
    assert document["failures"] == []


def test_a_failure_is_told_with_its_command_line() -> None:
    text = shapes_text(BAD)
    assert "wrong: n232-k2752-g64-bf16-int-bias M=17 mma(" in text
    assert "relative error 0.5 is above 0.01" in text
    assert FAILURE.reproduce in text
    assert "300 ok, 1 wrong" in text
    assert "1 FAILED" in text
    document = shapes_document(BAD)
    assert document["passed"] is False
    (failure,) = document["failures"]
    assert Problem.from_dict(failure["problem"]) == PROBLEM
    assert failure["reproduce"].startswith("ptxtune one --n 232 --k 2752 --group 64 --dtype bf16")
    assert failure["config"] == CONFIG.to_dict()


def test_many_failures_are_counted_and_the_document_has_all() -> None:
    many = replace(BAD, failures=(FAILURE,) * (SHOWN + 4))
    assert shapes_text(many).count(FAILURE.reproduce) == SHOWN
    assert "and 4 more" in shapes_text(many)
    assert len(shapes_document(many)["failures"]) == SHOWN + 4


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"stopped": "it was stopped by SIGTERM"}, "did not come to its end: it was stopped"),
        ({"checks": {}, "configs": {}}, "Nothing was checked."),
    ],
)
def test_a_soak_cut_short_or_empty_does_not_pass(changes: dict[str, object], words: str) -> None:
    report = replace(GOOD, **changes)  # type: ignore[arg-type]
    assert words in shapes_text(report)
    assert not report.passed
    assert shapes_document(report)["passed"] is False


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--shapes", "5", "--soak", "9"), "exclude each other"),
        (("--shapes", "5", "--record", "x"), "exclude each other"),
        (("--shapes", "0"), "0 is not in the range"),
        (("--shapes", "5", "--seconds", "9"), "add --soak N"),
        (("--shapes", "5", "--n", "64", "--k", "64"), "leave out --n and --k"),
    ],
)
def test_contradictions_are_refused(options: tuple[str, ...], message: str) -> None:
    done = CliRunner().invoke(cli, ["selfcheck", *options])
    assert done.exit_code == 2
    assert message in done.stderr


def test_without_a_gpu_the_way_out_is_named() -> None:
    done = CliRunner().invoke(cli, ["selfcheck", "--shapes", "1"])
    if done.exit_code != 2:
        pytest.skip("a GPU is here")
    assert "none is here" in done.stderr
    assert "ptxtune check --cpu" in done.stderr
