"""The whole way without a GPU: tune, best, list, report and export through the command line."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import ptxtune
from ptxtune.cli import cli

pytestmark = pytest.mark.compile

LAYER = ("--n", "256", "--k", "512")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a database that holds predictions of two batch sizes."""
    folder = tmp_path_factory.mktemp("home")
    words = ("tune", *LAYER, "--m", "1,16", "--trials", "4", "--gpu", "a100", "--json")
    result = run(folder, *words)
    assert result.exit_code == 0, result.stderr
    (folder / "tune.json").write_text(result.stdout)
    return folder


def run(home: Path, *words: str) -> Result:
    env = {"PTXTUNE_DB": str(home / "d.db"), "PTXTUNE_CACHE_DIR": str(home / "c"),
           "CUDA_VISIBLE_DEVICES": ""}  # fmt: skip
    return CliRunner().invoke(cli, list(words), env=env, prog_name="ptxtune")


def test_tune_predicts_and_says_so(home: Path) -> None:
    document = json.loads((home / "tune.json").read_text())
    assert document["predicted"] is True
    assert document["device"] == "NVIDIA A100-SXM4-80GB"
    assert [row["m"] for row in document["results"]] == [1, 16]
    for row in document["results"]:
        assert 0 < row["time_us"] <= row["default_us"]
        assert row["cublas_us"] is None


def test_best_serves_what_was_tuned(home: Path) -> None:
    tuned = json.loads((home / "tune.json").read_text())["results"]
    found = run(home, "best", *LAYER, "--m", "1,16,200", "--gpu", "a100", "--json")
    answers = json.loads(found.stdout)["answers"]
    assert [answer["level"] for answer in answers] == ["exact", "exact", "default"]
    assert [answer["config"] for answer in answers[:2]] == [row["config"] for row in tuned]
    assert [answer["predicted"] for answer in answers] == [True, True, False]
    text = run(home, "best", *LAYER, "--m", "1", "--gpu", "a100").stdout
    assert "predicted" in text


def test_best_explains_a_winner(home: Path) -> None:
    words = ("best", *LAYER, "--m", "16", "--gpu", "a100")
    (answer,) = json.loads(run(home, *words, "--explain", "--json").stdout)["answers"]
    found, time_us = answer["roofline"], answer["winner"]["time_us"]
    # A predicted time is the model's, from the registers that the compiler gave: so is this one.
    assert found["model_us"] == pytest.approx(time_us, rel=1e-9)
    assert found["floor_share"] == pytest.approx(answer["winner"]["floor_share"], rel=1e-9)
    assert sum(found["parts_us"].values()) == pytest.approx(time_us, rel=1e-9)
    text = run(home, *words, "--explain").stdout
    assert f"What binds: {found['bound']}." in text
    assert "What binds" not in run(home, *words).stdout


def test_nothing_timed_is_nothing_explained(home: Path) -> None:
    words = ("best", "--n", "64", "--k", "128", "--gpu", "a100", "--explain")
    assert "nothing to explain; run ptxtune tune first" in run(home, *words).stdout
    (answer,) = json.loads(run(home, *words, "--json").stdout)["answers"]
    assert answer["roofline"] is None


def test_the_report_has_a_roofline_a_winner(home: Path) -> None:
    document = json.loads(run(home, "report", "--json").stdout)
    assert len(document["winners"]) >= 2
    assert all(winner["roofline"]["ctas_per_sm"] >= 1 for winner in document["winners"])
    assert "Roofline" in run(home, "report").stdout


def test_measured_only_hands_out_nothing_that_was_not_timed(home: Path) -> None:
    words = (*LAYER, "--m", "1", "--gpu", "a100", "--measured")
    for command in (("best", *words), ("export", *words, "--out", str(home / "timed"))):
        found = run(home, *command)
        assert (found.exit_code, found.stdout) == (2, "")
        assert "n256-k512-g128-fp16-sym at M = 1" in found.stderr
        assert "leave --measured" in found.stderr
    assert not (home / "timed").exists()
    with pytest.raises(ptxtune.PtxtuneError, match="only measured winners"):
        ptxtune.export(
            home / "timed", n=256, k=512, gpu="a100", db=str(home / "d.db"), allow_predicted=False
        )


def test_an_exported_bundle_holds_what_best_answers(home: Path) -> None:
    words = (*LAYER, "--m", "1,16,1024", "--gpu", "a100", "--json")
    answers = json.loads(run(home, "best", *words).stdout)["answers"]
    assert [answer["level"] for answer in answers] == ["exact", "exact", "default"]
    assert run(home, "export", *words, "--out", str(home / "wide")).exit_code == 0
    buckets = json.loads((home / "wide" / "manifest.json").read_text())["buckets"]
    assert [item["config"] for item in buckets] == [item["config"] for item in answers]
    assert [item["measurement"] is None for item in buckets] == [False, False, True]


def test_lists_show_the_run_and_its_trials(home: Path) -> None:
    (listed,) = json.loads(run(home, "list", "runs", "--json").stdout)["runs"]
    trials = json.loads(run(home, "list", "trials", "--json").stdout)["trials"]
    assert sum(listed["trials"].values()) == len(trials) > 0
    assert {trial["status"] for trial in trials} <= {"predicted", "spilled", "invalid"}
    winners = json.loads(run(home, "list", "--json").stdout)["winners"]
    assert [winner["source"] for winner in winners] == ["predicted", "predicted"]
    shown = {what: run(home, "list", what).stdout for what in ("runs", "trials", "winners")}
    assert "NVIDIA A100-SXM4-80GB" in shown["runs"]
    assert len(shown["trials"].splitlines()) == len(trials) + 2
    assert len(shown["winners"].splitlines()) == len(winners) + 2


def test_report_writes_every_form(home: Path) -> None:
    folder = home / "out"
    words = ("--html", "r.html", "--markdown", "r.md", "--json-file", "r.json", "--rows", "rows")
    paths = [word if word.startswith("--") else str(folder / word) for word in words]
    result = run(home, "report", *paths)
    assert result.exit_code == 0, result.stderr
    assert "Predicted, not measured" in (folder / "r.html").read_text()
    assert "Predicted, not measured" in (folder / "r.md").read_text()
    document = json.loads((folder / "r.json").read_text())
    assert all(winner["predicted"] for winner in document["winners"])
    (rows,) = (folder / "rows").rglob("*.jsonl")
    assert rows.parent.name == "nvidia-a100-sxm4-80gb"
    assert rows.name == "predicted-fp16-sym-g128.jsonl"
    keys = {"contender", "device", "driver", "nvrtc", "commit", "date", "protocol", "dtype", "zero",
            "group", "n", "k", "m", "time_us", "floor_us", "rel_err", "config"}  # fmt: skip
    found = [json.loads(line) for line in rows.read_text().splitlines()]
    assert [row["m"] for row in found] == [1, 16]
    assert all(keys <= row.keys() for row in found)
    assert result.stderr.count("wrote ") == 4


def test_report_of_another_gpu_or_model_is_empty_and_says_so(home: Path) -> None:
    for words in (("--gpu", "h200"), ("--model", "llama-3.1-8b")):
        result = run(home, "report", *words)
        assert result.exit_code == 2
        assert "for this selection" in result.stderr


def test_export_is_the_tuned_kernel_and_is_not_overwritten(home: Path) -> None:
    out = home / "bundle"
    words = ("export", *LAYER, "--m", "1,16", "--gpu", "a100", "--out", str(out))
    result = run(home, *words, "--json")
    assert result.exit_code == 0, result.stderr
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["predicted"] is True
    assert {"manifest.json", "ptxtune_w4a16.h", "m1/kernel.cubin", "m16/kernel.cu"} <= set(
        json.loads(result.stdout)["files"]
    )
    tuned = json.loads((home / "tune.json").read_text())["results"]
    assert [bucket["config"] for bucket in manifest["buckets"]] == [row["config"] for row in tuned]
    again = run(home, *words)
    assert again.exit_code == 2
    assert "--force" in again.stderr
    assert run(home, *words, "--force").exit_code == 0


def test_api_and_command_export_the_same_kernels(home: Path) -> None:
    target = {"n": 256, "k": 512, "m": (1,), "gpu": "a100"}
    places = {"db": str(home / "d.db"), "cache_dir": str(home / "c")}
    folder = ptxtune.export(home / "api", **target, **places)
    command = run(home, "export", *LAYER, "--m", "1", "--gpu", "a100", "--out", str(home / "cli"))
    assert command.exit_code == 0
    assert (folder / "kernel.cu").read_bytes() == (home / "cli" / "kernel.cu").read_bytes()
    assert (folder / "kernel.cubin").read_bytes() == (home / "cli" / "kernel.cubin").read_bytes()


def test_api_tune_stores_like_the_command(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    summary = ptxtune.tune(
        n=256, k=256, m=(4,), trials=2, gpu="l40s", db=str(home / "e.db"), cache_dir=str(home / "c")
    )
    assert summary.predicted
    answer = ptxtune.best(n=256, k=256, m=4, gpu="l40s", db=str(home / "e.db"))
    assert (answer.level, answer.predicted) == ("exact", True)
    assert answer.config == summary.tasks[0].config


def test_emit_prints_ptx(home: Path) -> None:
    result = run(home, "emit", *LAYER, "--gpu", "a100", "--ptx")
    assert result.exit_code == 0
    assert re.search(r"^\.target sm_80", result.stdout, re.M)


def test_space_counts_what_is_legal(home: Path) -> None:
    result = run(home, "space", *LAYER, "--m", "1", "--gpu", "a100", "--json")
    document = json.loads(result.stdout)
    assert document["candidates"]["1"] > 0
    assert document["legal"] <= document["examined"] <= document["product"]
    assert document["rejected_by"]
    assert "rule that rejects them" in run(home, "space", *LAYER, "--gpu", "a100").stdout


def test_doctor_reports_this_machine(home: Path) -> None:
    result = run(home, "doctor", "--json")
    document = json.loads(result.stdout)
    checks = {check["name"]: check for check in document["checks"]}
    assert document["ok"] is True
    assert result.exit_code == 0
    assert "1 run, 0 measured winners, 2 predicted winners" in checks["database"]["detail"]
    assert "nvrtc" in run(home, "doctor").stdout
