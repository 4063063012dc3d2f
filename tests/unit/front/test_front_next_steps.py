"""Commands that ptxtune prints: they run as printed, and answer for what was tuned."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from db.records import Protocol
from db.session import open_database
from db.store import Store
from ptxgen.arch import GPUS
from ptxgen.families import default_config
from ptxgen.outcome import Outcome, Status
from ptxgen.problem import Problem
from ptxtune.cli import cli
from ptxtune.commands import emit
from ptxtune.next_steps import next_steps
from ptxtune.selection import select_problems
from ptxtune.toolchain import current_toolchain
from search.events import Task
from search.ledger import Ledger
from search.predict import device_of

pytestmark = pytest.mark.compile


def run(home: Path, *words: str) -> Result:
    env = {"PTXTUNE_DB": str(home / "other.db"), "PTXTUNE_CACHE_DIR": str(home / "c"),
           "CUDA_VISIBLE_DEVICES": ""}  # fmt: skip
    return CliRunner().invoke(cli, list(words), env=env, prog_name="ptxtune")


def printed(text: str) -> list[list[str]]:
    """The commands of a text, as words without the program's name."""
    lines = (line.strip().removeprefix("Next: ") for line in text.splitlines())
    return [shlex.split(line)[1:] for line in lines if line.startswith("ptxtune ")]


ASKED = [
    "--n 64 --k 256 --m 1,8 --gpu a100 --dtype bf16 --zero int --group 64 --bias",
    "--n 64 --k 128 --m 4 --gpu rtx4090 --protocol both --group -1",
    "--n 64 --k 512 --m 4 --gpu h200 --batch-invariant",
    "--model {model} --m 2 --gpu a100 --group 32",
]


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("asked", ASKED)
def test_the_next_commands_find_what_was_tuned(
    asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = tmp_path / "a model"
    model.mkdir()
    shapes = {"hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 2,
              "num_key_value_heads": 2, "model_type": "llama"}  # fmt: skip
    (model / "config.json").write_text(json.dumps(shapes))
    words = [word.format(model=model) for word in asked.split()]
    db = str(tmp_path / "some results.db")
    result = run(tmp_path, "tune", *words, "--trials", "1", "--db", db)
    assert result.exit_code == 0, result.stderr
    found = printed(result.stderr)
    assert {command[0] for command in found} >= {"best", "export"}
    assert (found[-1][0] == "report") == ("--batch-invariant" not in words)
    for command in found:
        if command[0] == "best":
            answers = json.loads(run(tmp_path, *command, "--json").stdout)["answers"]
            assert {answer["level"] for answer in answers} == {"exact"}
            assert all(answer["time_us"] for answer in answers)
        elif command[0] == "export":
            document = run(tmp_path, *command, "--json")
            assert document.exit_code == 0, document.stderr
            buckets = json.loads(document.stdout)["buckets"]
            assert {bucket["level"] for bucket in buckets} == {"exact"}
        else:
            assert run(tmp_path, *command).exit_code == 0
    assert not (tmp_path / "other.db").exists()
    named = [command for command in found if "--model" in command]
    assert bool(named) == ("--model" in words)


def test_nothing_is_said_that_needs_not_be() -> None:
    text = next_steps(
        select_problems(n=4096, k=4096), (1, 8, 16),
        layer={"n": 4096, "k": 4096, "model": None, "tp": 1, "group": 128, "dtype": "fp16",
               "zero": "sym", "bias": None},
        protocol="plain", batch_invariant=False, gpu=None, db=None,
    )  # fmt: skip
    assert text.splitlines()[1:] == [
        "Next: ptxtune best --n 4096 --k 4096 --m 1,8,16",
        "      ptxtune export --n 4096 --k 4096 --m 1,8,16 --out bundle",
        "      ptxtune report --html report.html",
    ]


SPILLED = Outcome(Status.SPILLED, "spills 8 bytes of registers to local memory")
A100 = GPUS["a100"]


def test_the_reproducer_of_a_predicted_failure_runs_without_the_gpu(tmp_path: Path) -> None:
    problem = Problem(256, 512, 64, "bf16", "int", bias=True)
    config = default_config(problem, A100.spec, 8, A100.num_sms)
    with open_database(tmp_path / "other.db") as database:
        store = Store(database)
        run_id = store.start_run(device_of(A100), current_toolchain(""), {"predicted": True})
        for m, outcome in ((1, Outcome(Status.PREDICTED, time_us=5.0)), (8, SPILLED)):
            trial_id = store.add_predicted(
                run_id, problem, m, Protocol.PLAIN, config=config, source_digest=str(m) * 64,
                outcome=outcome,
            )  # fmt: skip
            if outcome is not SPILLED:
                store.set_winner(trial_id)
    ledger = Ledger(predicted_for=A100.name)
    ledger.add(Task(problem, 8, Protocol.PLAIN), config, SPILLED)
    (failure,) = json.loads(run(tmp_path, "report", "--json").stdout)["failures"]
    for text in (ledger.entries()[0].reproduce, failure["reproduce"]):
        (command,) = printed(text)
        result = run(tmp_path, *command, "--json")
        assert result.exit_code == 0, result.stderr  # this kernel does not spill, of course
        document = json.loads(result.stdout)
        assert document["problem"] == problem.to_dict()
        assert (document["m"], document["config"]) == (8, config.to_dict())
        assert document["registers"] > 0


def test_a_kernel_that_a_run_would_reject_ends_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emit, "compile_outcome", lambda *_: SPILLED)
    result = run(tmp_path, "emit", "--n", "256", "--k", "512", "--gpu", "a100", "--compile")
    assert result.exit_code == 1
    assert result.stdout.startswith("spilled: spills 8 bytes")


def test_a_compile_that_fits_ends_with_0_and_its_resources(tmp_path: Path) -> None:
    words = ["emit", "--n", "256", "--k", "512", "--m", "8", "--gpu", "a100", "--compile"]
    result = run(tmp_path, *words)
    assert result.exit_code == 0
    assert re.search(r"^\d+ registers, 0 bytes spilled, \d+ bytes of shared", result.stdout, re.M)
    document = json.loads(run(tmp_path, *words, "--json").stdout)
    assert document["status"] == "ok"
    assert document["time_us"] is None
    assert document["registers"] > 0


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("words", [(), ("--protocol", "chained"), ("--batch-invariant",)])
def test_space_counts_what_tune_searches(words: tuple[str, ...], tmp_path: Path) -> None:
    layer = ("--n", "64", "--k", "512", "--m", "4", "--gpu", "h200", *words)
    tuned = run(tmp_path, "tune", *layer, "--trials", "1")
    (searched,) = re.findall(r": (\d+) legal configs", tuned.stderr.replace(",", ""))
    counted = json.loads(run(tmp_path, "space", *layer, "--json").stdout)
    assert counted["candidates"] == {"4": int(searched)}
