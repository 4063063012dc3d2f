"""ptxtune selfcheck: what needs no GPU runs, verdicts become exit codes, mistakes are explained."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from db.records import DeviceRecord, Protocol, ToolchainRecord
from db.trial_file import Environment, TrialFile, write_trials
from db.trial_rows import SharedTrial
from ptxgen.arch import arch_named
from ptxgen.families import candidates
from ptxgen.outcome import Status
from ptxgen.problem import Problem
from ptxtune.cli import cli
from ptxtune.selfcheck_text import gates_document, gates_text, soak_document, soak_text
from search.gates import Gate
from search.soak import SoakReport
from search.soak_audit import Audit

DEVICE = DeviceRecord("NVIDIA H200", "9.0", 132, 227 * 1024, 60 << 20, read_gbps=4480.0)
PROBLEM = Problem(4096, 4096)


def selfcheck(*words: str) -> Result:
    return CliRunner().invoke(cli, ["selfcheck", *words])


@pytest.fixture
def needle(tmp_path: Path) -> Path:
    """Recorded trials without any structure: one of 600 configs is twice as fast as the rest."""
    configs = list(candidates(PROBLEM, arch_named("sm_90a"), 8))[-600:]
    trials = tuple(
        SharedTrial(
            PROBLEM, 8, Protocol.PLAIN, config, Status.OK, time_us=5.0 if place == 431 else 10.0
        )
        for place, config in enumerate(configs)
    )
    environment = Environment(DEVICE, ToolchainRecord("580", "13.0", "0.1.0", "2.11"))
    write_trials(tmp_path / "needle.gz", TrialFile((environment,), trials))
    return tmp_path / "needle.gz"


def test_a_search_that_misses_the_best_fails(needle: Path) -> None:
    done = selfcheck("--replay", str(needle), "--repeats", "1", "--json")
    document = json.loads(done.stdout)
    assert done.exit_code == (0 if document["passed"] else 1)
    worst = next(g for g in document["gates"] if g["name"].endswith("100 trials, worst"))
    assert worst["value"] in (0.0, 1.0)  # it finds the needle, or it does not
    assert document["passed"] == (worst["value"] == 0.0)


def test_a_soak_runs_from_the_command_line() -> None:
    done = selfcheck("--soak", "10", "--json")
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["total"] >= 10
    assert set(document["audit"].values()) == {0}


def test_without_a_gpu_the_way_out_is_named() -> None:
    done = selfcheck()
    if done.exit_code == 0:
        pytest.skip("a GPU is here")
    assert done.exit_code == 2
    assert "none is here" in done.stderr
    assert "--replay FILE or --soak N" in done.stderr
    done = selfcheck("--soak", "9", "--gpu-faults")
    assert done.exit_code == 2
    assert "none is here" in done.stderr
    assert "--soak N alone" in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--soak", "5", "--record", "x"), "exclude each other"),
        (("--gpu-faults",), "add --soak N"),
        (("--soak", "0"), "0 is not in the range"),
        (("--lanes", "2"), "add --soak N"),
        (("--seconds", "9"), "add --soak N"),
        (("--soak", "2", "--lanes", "3"), "Give at most 2 lanes"),
        (("--replay", "no-such-file"), "no-such-file cannot be read"),
    ],
)
def test_contradictions_are_refused(words: tuple[str, ...], message: str) -> None:
    done = selfcheck(*words)
    assert done.exit_code == 2
    assert message in done.stderr


def test_gates_in_words_and_json() -> None:
    gates = [Gate("regret", 0.041, 0.03, "case a"), Gate("flips", float("inf"), None)]
    text = gates_text(gates)
    assert "4.10%" in text
    assert "FAILED" in text
    assert "1 of the limits broken." in text
    document = gates_document(gates)
    assert document["passed"] is False
    assert [gate["value"] for gate in document["gates"]] == [0.041, None]
    assert "All limits are kept." in gates_text([Gate("regret", 0.03, 0.03)])
    assert gates_document([])["passed"] is False


def test_a_soak_in_words_and_json() -> None:
    found = Audit(
        {"lost": []}, {Status.OK: 7}, {"segv": {Status.HANG: 1, Status.CRASH: 2}, "spills": {}}
    )
    good = SoakReport(3, {"segv": 3}, 2, 4, 5, 1.5, found)
    assert good.passed
    assert "3 faults in 2 s: 2 lanes, 4 runs of the tuner, 5 workers." in soak_text(good)
    assert "2 crash, 1 hang" in soak_text(good)
    assert "Nothing is wrong." in soak_text(good)
    document = soak_document(good)
    assert document["passed"] is True
    assert document["stored"]["segv"] == {"crash": 2, "hang": 1}
    assert document["workers"] == 5
    few = replace(good, wanted=5)
    assert "only 3 of 5 faults" in soak_text(few)
    late = replace(good, stopped="its limit of 9 s was reached")
    assert "did not come to its end: its limit of 9 s was reached." in soak_text(late)
    assert "Nothing is wrong." in soak_text(late)
    for bad in (few, late):
        assert soak_document(bad)["passed"] is False
    for bad in (
        replace(good, audit=Audit({"lost": ["ended 5 ok, now gone"]})),
        replace(good, stray=(123,)),
        replace(good, errors=("the tuner of lane-2 ended",)),
    ):
        assert "The audit FAILED." in soak_text(bad)
        assert soak_document(bad)["passed"] is False


def test_a_soak_that_is_terminated_says_what_it_had() -> None:
    words = ["-m", "ptxtune", "selfcheck", "--soak", "5000", "--lanes", "2", "--json"]
    process = subprocess.Popen(
        [sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    for line in process.stderr:  # until the first line of progress
        if "lanes at work" in line:
            break
    process.send_signal(signal.SIGTERM)
    stdout, _ = process.communicate()
    assert process.returncode == 1
    document = json.loads(stdout)
    assert document["stopped"] == "it was stopped by SIGTERM"
    assert document["passed"] is False
    assert set(document["audit"].values()) == {0}
