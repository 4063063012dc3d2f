"""ptxtune check: verdict, report and exit code."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from cpucheck_mutants import CASES, MUTANTS

from ptxgen.compile import compile_source
from ptxgen.cpucheck import inspect as inspect_module
from ptxgen.families import emit
from ptxtune.cli import cli

pytestmark = pytest.mark.compile

SMALL = ["check", "--cpu", "--n", "40", "--k", "512", "--m", "3", "--schedules", "1"]


def run(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(cli, list(words))
    return result.exit_code, result.stdout, result.stderr


def test_a_right_kernel_exits_0_and_tells_what_was_run() -> None:
    code, out, err = run(*SMALL)
    assert (code, err) == (0, "")
    assert "n24-k512-g128-fp16-sym" in out
    assert "1 checked in" in out
    assert "0 failed" in out


def test_json_holds_the_config_and_every_verdict() -> None:
    code, out, _ = run(*SMALL, "--json", "--arch", "sm_80", "--dtype", "bf16")
    document = json.loads(out)
    (check,) = document["checks"]
    assert (code, document["ok"], check["ok"]) == (0, True, True)
    assert check["arch"] == "sm_80"
    assert check["config"]["family"] == "mma"
    assert 0 < check["rel_err"] < 2**-7
    assert check["failures"] == check["bank_conflicts"] == []
    assert check["steps"] > 0


def test_a_large_layer_is_reduced() -> None:
    code, out, _ = run("check", "--n", "28672", "--k", "4096", "--m", "1", "--schedules", "1")
    assert code == 0
    assert "n28672" not in out


def test_a_broken_kernel_exits_1_and_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    mutant = next(item for item in MUTANTS if item.name == "N tail off by one")
    case = CASES[mutant.case]
    monkeypatch.setattr(inspect_module, "emit", lambda *args: mutant.apply(emit(*args)))
    problem = case.problem
    words = ["--n", problem.n, "--k", problem.k, "--group", 32, "--zero", "int", "--bias"]
    words += ["--m", case.m, "--full", "--config", json.dumps(case.config.to_dict())]
    code, out, err = run("check", *map(str, words), "--arch", "sm_90a", "--schedules", "1")
    assert code == 1
    assert "FAILED" in out
    assert "1 failed" in out
    assert "fault under schedule" in err
    assert "OutOfBoundsError" in err
    assert compile_source(emit(problem, case.config, case.arch)).ptx


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--n", "40"], "needs --n and --k"),
        (["--n", "40", "--k", "512", "--config", "{"], "is not JSON"),
        (["--n", "41", "--k", "512"], "n = 41 cannot be packed"),
        (["--n", "40", "--k", "512", "--m", "0"], "the least is 1"),
        (["--n", "40", "--k", "512", "--schedules", "9"], "9 is not in the range"),
    ],
)
def test_bad_input_is_one_paragraph(words: list[str], message: str) -> None:
    code, out, err = run("check", *words)
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err


def test_an_illegal_config_tells_why() -> None:
    config = {**CASES["private"].config.to_dict(), "split_k": 16}
    code, _, err = run("check", "--n", "40", "--k", "512", "--config", json.dumps(config))
    assert code == 2
    assert "split_k = 16 is more than the 2 stages of K" in err
