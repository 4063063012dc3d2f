"""The command line: every command explains itself, and bad input is one paragraph."""

import json
import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from ptxtune.cli import COMMANDS, cli


def run(*words: str, **env: str) -> Result:
    return CliRunner().invoke(cli, list(words), env=env, prog_name="ptxtune")


def command(name: str) -> click.Command:
    context = click.Context(cli)
    found = cli.get_command(context, name)
    assert found is not None
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_example_and_the_listed_summary(name: str) -> None:
    found = command(name)
    assert found.name == name
    assert found.get_short_help_str(limit=200).rstrip(".") == COMMANDS[name].rstrip(".")
    assert re.search(rf"Example:\n\s+ptxtune {name}", found.help or "")
    undocumented = [
        option.name
        for option in found.params
        if isinstance(option, click.Option) and not option.help and option.name != "help"
    ]
    assert undocumented == []


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_can_answer_in_json(name: str) -> None:
    assert any("--json" in option.opts for option in command(name).params)


def test_help_lists_every_command() -> None:
    result = run("--help")
    assert result.exit_code == 0
    for name, summary in COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(summary)}", result.output, re.M)


LAYER = ("--n", "4096", "--k", "4096")


def empty(folder: Path) -> str:
    """A database of nothing: an empty file counts as one."""
    (folder / "d").touch()
    return str(folder / "d")


BAD = [
    (("best", "--n", "4096"), ["--k None", "--model"]),
    (("best", "--n", "4095", "--k", "4096"), ["4095", "multiple of 8", "4096"]),
    (("best", "--n", "4096", "--k", "4000", "--group", "128"), ["128", "4000"]),
    (("best", *LAYER, "--group", "100"), ["100", "32, 64, 128", "-1"]),
    (("best", *LAYER, "--m", "-1"), ["-1", "batch size"]),
    (("best", *LAYER, "--m", "1,x"), ["'x'", "1,8,16"]),
    (("best", *LAYER, "--m", "99999999"), ["99999999", "1048576"]),
    (("best", *LAYER, "--m", ""), ["integer"]),
    (("best", *LAYER, "--dtype", "fp8"), ["fp8", "fp16", "bf16", "both"]),
    (("best", *LAYER, "--zero", "float"), ["float", "sym", "int"]),
    (("best", *LAYER, "--protocol", "warm"), ["warm", "plain", "chained"]),
    (("best", *LAYER, "--gpu", "voodoo2"), ["voodoo2", "h200", "a100"]),
    (("best", *LAYER, "--model", "llama-3.1-8b"), ["--model", "exclude"]),
    (("best", *LAYER, "--tp", "2"), ["--tp 2", "--model"]),
    (("best", "--model", "gpt-9"), ["gpt-9", "llama-3.1-8b", "config.json"]),
    (("best", "--model", "llama-3.1-8b", "--tp", "3"), ["tp = 3", "32"]),
    (("tune", *LAYER, "--m", "0"), ["M = 0", "least is 1"]),
    (("tune", *LAYER, "--budget", "huge"), ["huge", "quick", "full"]),
    (("tune", *LAYER, "--trials", "0"), ["0 trials", "1 or more"]),
    (("tune", *LAYER, "--seconds", "-3"), ["-3"]),
    (("tune", *LAYER, "--seconds", "nan"), ["nan"]),
    (("tune", *LAYER, "--sampler", "luck"), ["luck", "tpe", "random", "exhaustive"]),
    (("emit", *LAYER, "--m", "0"), ["0", "1"]),
    (("emit", *LAYER, "--arch", "sm_10"), ["sm_10", "sm_80", "sm_90a"]),
    (("emit", *LAYER, "--config", "{"), ["--config", "not JSON"]),
    (("emit", *LAYER, "--config", "[]"), ["family"]),
    (("emit", *LAYER, "--config", '{"family": "cutlass"}'), ["cutlass", "mma"]),
    (("emit", *LAYER, "--config", '{"family": "mma", "speed": 11}'), ["speed", "block_m"]),
    (("one", *LAYER), ["not in this machine"]),
    (("one", "--trial", "77"), ["trial 77"]),
    (("report",), ["no winners", "ptxtune tune"]),
    (("report", "--model", "nope"), ["nope"]),
    (("export", *LAYER), ["--out"]),
    (("export", *LAYER, "--m", "0", "--out", "bundle"), ["M = 0"]),
    (("list", "losers"), ["losers", "winners", "runs", "trials"]),
    (("list", "trials", "--status", "sad"), ["sad", "wrong"]),
    (("list", "--limit", "0"), ["0"]),
    (("tuen",), ["tuen", "tune", "best", "doctor"]),
    (("--verbose",), ["--verbose"]),
]


@pytest.mark.parametrize(("words", "named"), BAD, ids=" ".join)
def test_bad_input_is_one_paragraph(
    words: tuple[str, ...], named: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # the same answers on a machine with a GPU
    result = run(*words, PTXTUNE_DB=str(tmp_path / "new.db"), PTXTUNE_CACHE_DIR=str(tmp_path / "c"))
    assert result.exit_code not in (0, 1)
    assert isinstance(result.exception, SystemExit)
    assert result.stdout == ""
    paragraph = result.stderr.partition("Error: ")[2]
    assert paragraph.strip().count("\n") <= 1
    for word in named:
        assert word in paragraph
    assert not (tmp_path / "bundle").exists()
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("words", [("best", *LAYER), ("list",), ("report",), ("tune", *LAYER)])
def test_unusable_database_is_named(words: tuple[str, ...], tmp_path: Path) -> None:
    foreign = tmp_path / "notes.txt"
    foreign.write_text("dear diary, " * 100)
    before = foreign.read_bytes()
    result = run(*words, "--db", str(foreign), CUDA_VISIBLE_DEVICES="")
    assert result.exit_code == 2
    assert str(foreign) in result.stderr
    assert foreign.read_bytes() == before
    inside = run(*words, "--db", str(foreign / "x.db"), CUDA_VISIBLE_DEVICES="")
    assert inside.exit_code == 2
    assert str(foreign / "x.db") in inside.stderr


def test_best_without_anything_stored_says_default(tmp_path: Path) -> None:
    result = run("best", *LAYER, "--m", "1,16", "--json", "--gpu", "a100", "--db", empty(tmp_path))
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert document["device"] == "NVIDIA A100-SXM4-80GB"
    assert [answer["m"] for answer in document["answers"]] == [1, 16]
    for answer in document["answers"]:
        assert (answer["level"], answer["winner"], answer["predicted"]) == ("default", None, False)
        assert answer["config"]["family"] == "mma"


def test_model_gives_an_answer_a_layer_and_dtype(tmp_path: Path) -> None:
    result = run("best", "--model", "llama-3.1-8b", "--dtype", "both", "--json",
                 "--gpu", "h200", "--db", empty(tmp_path))  # fmt: skip
    problems = [answer["problem"] for answer in json.loads(result.stdout)["answers"]]
    assert [(p["dtype"], p["n"], p["k"]) for p in problems] == [
        (dtype, n, k)
        for dtype in ("fp16", "bf16")
        for n, k in ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336))
    ]


def test_mixture_of_experts_says_what_is_left_out(tmp_path: Path) -> None:
    result = run("best", "--model", "mixtral-8x7b", "--gpu", "h200", "--db", empty(tmp_path))
    assert "expert" in result.stderr
    assert "expert" not in result.stdout


def test_emit_is_the_source_of_the_asked_config() -> None:
    listed = json.loads(run("emit", *LAYER, "--m", "16", "--json", "--gpu", "h200").stdout)
    assert listed["arch"] == "sm_90a"
    again = run("emit", *LAYER, "--config", json.dumps(listed["config"]), "--gpu", "h200")
    assert again.exit_code == 0
    assert again.stdout.rstrip("\n") == listed["source"].rstrip("\n")
    other = json.loads(run("emit", *LAYER, "--m", "16", "--json", "--arch", "sm_80").stdout)
    assert other["arch"] == "sm_80"
    assert other["source_digest"] != listed["source_digest"]


def test_list_of_nothing_is_an_empty_table(tmp_path: Path) -> None:
    for what in ("winners", "runs", "trials"):
        result = run("list", what, "--json", "--db", empty(tmp_path))
        assert json.loads(result.stdout) == {what: []}
        assert run("list", what, "--db", empty(tmp_path)).exit_code == 0


def test_pinned_config_goes_before_the_database(tmp_path: Path) -> None:
    listed = json.loads(run("emit", *LAYER, "--m", "64", "--json", "--gpu", "h200").stdout)
    words = ("best", *LAYER, "--m", "1", "--json", "--gpu", "h200", "--db", empty(tmp_path))
    answer = json.loads(run(*words, PTXTUNE_PIN=json.dumps(listed["config"])).stdout)["answers"][0]
    assert answer["level"] == "pinned"
    assert answer["config"] == listed["config"]
    assert "PTXTUNE_PIN" in answer["message"]
    broken = run(*words, PTXTUNE_PIN="fastest please")
    assert broken.exit_code == 2
    assert "PTXTUNE_PIN" in broken.stderr


def test_pin_that_is_illegal_for_a_problem_is_passed_over(tmp_path: Path) -> None:
    listed = json.loads(run("emit", *LAYER, "--m", "1", "--json", "--gpu", "h200").stdout)
    illegal = listed["config"] | {"split_k": 16, "block_k": 1024}
    small = (
        "best",
        "--n",
        "64",
        "--k",
        "128",
        "--json",
        "--gpu",
        "h200",
        "--db",
        empty(tmp_path),
    )
    answer = json.loads(run(*small, PTXTUNE_PIN=json.dumps(illegal)).stdout)["answers"][0]
    assert answer["level"] == "default"
    assert "PTXTUNE_PIN does not count here" in answer["message"]


def test_pin_that_is_legal_nowhere_is_an_error_and_fails_doctor(tmp_path: Path) -> None:
    listed = json.loads(run("emit", *LAYER, "--m", "1", "--json", "--gpu", "h200").stdout)
    here = {"PTXTUNE_DB": str(tmp_path / "d"), "PTXTUNE_CACHE_DIR": str(tmp_path / "c")}
    nowhere = json.dumps(listed["config"] | {"block_n": 7})
    for words in (("best", *LAYER), ("tune", *LAYER), ("export", *LAYER, "--out", "b")):
        result = run(*words, PTXTUNE_PIN=nowhere, CUDA_VISIBLE_DEVICES="", **here)
        assert result.exit_code == 2
        assert "block_n = 7" in result.stderr
        assert "legal for no layer" in result.stderr
    for pin in (nowhere, "fastest please"):
        checks = json.loads(run("doctor", "--json", PTXTUNE_PIN=pin, **here).stdout)["checks"]
        (found,) = (check for check in checks if check["name"] == "pin")
        assert found["health"] == "failed"
    listed = json.loads(run("doctor", "--json", PTXTUNE_PIN="", **here).stdout)["checks"]
    assert next(check for check in listed if check["name"] == "pin")["detail"] == "none"
