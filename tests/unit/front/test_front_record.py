"""list, report, db and doctor tell GPUs, predictions, batch-invariant winners and seeds apart."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from db.records import DeviceRecord, Protocol, ToolchainRecord
from db.session import open_database
from db.store import Store
from ptxgen.arch import arch_named
from ptxgen.families import default_config, emit
from ptxgen.outcome import Outcome, Status
from ptxgen.problem import Problem
from ptxtune.cli import cli

PROBLEM = Problem(4096, 4096)
TOOLCHAIN = ToolchainRecord("580", "13.0", "0.1.0", "2.11")
H200 = DeviceRecord("NVIDIA H200", "9.0", 132, 227 * 1024, 60 << 20, uuid="GPU-1")
A100 = DeviceRecord("NVIDIA A100-SXM4-80GB", "8.0", 108, 163 * 1024, 40 << 20, uuid="GPU-2")


def ptxtune(*words: str, db: Path, code: int = 0) -> Result:
    result = CliRunner().invoke(cli, [*words, "--db", str(db)], env={"CUDA_VISIBLE_DEVICES": ""})
    assert result.exit_code == code, result.output
    return result


def add(
    store: Store,
    device: DeviceRecord,
    time_us: float,
    *,
    m: int,
    predicted: bool = False,
    invariant: bool = False,
) -> None:
    """One run with one winner."""
    arch = arch_named("sm_90a" if device is H200 else "sm_80")
    config = default_config(PROBLEM, arch, m, device.num_sms)
    digest = emit(PROBLEM, config, arch).digest()
    run = store.start_run(device, TOOLCHAIN, {"predicted": True} if predicted else {})
    rest = {"config": config, "source_digest": digest}
    if predicted:
        outcome = Outcome(Status.PREDICTED, time_us=time_us)
        trial = store.add_predicted(run, PROBLEM, m, Protocol.PLAIN, outcome=outcome, **rest)
    else:
        trial = store.start_trial(run, PROBLEM, m, Protocol.PLAIN, **rest)
        store.end_trial(trial, Outcome(Status.OK, time_us=time_us))
    cublas = None if predicted else 2 * time_us
    store.set_winner(trial, default_us=1.5 * time_us, cublas_us=cublas, batch_invariant=invariant)
    store.end_run(run)


@pytest.fixture
def two_gpus(tmp_path: Path) -> Path:
    path = tmp_path / "two.db"
    with open_database(path) as database:
        store = Store(database)
        add(store, H200, 4.0, m=12)
        add(store, H200, 5.0, m=16)
        add(store, A100, 9.0, m=16)
    return path


@pytest.fixture
def predicted(tmp_path: Path) -> Path:
    path = tmp_path / "predicted.db"
    with open_database(path) as database:
        add(Store(database), H200, 6.0, m=16, predicted=True)
    return path


def figures(page: Path) -> dict[str, dict]:
    (text,) = re.findall(
        r"<script[^>]*application/json[^>]*>(.*?)</script>", page.read_text(), re.S
    )
    return json.loads(text)


def test_every_list_names_the_gpu_and_takes_one(two_gpus: Path) -> None:
    for what, field, count in (
        ("winners", "device", 3),
        ("runs", "device", 3),
        ("trials", "device", 3),
    ):
        assert "A100" in ptxtune("list", what, db=two_gpus).stdout
        rows = json.loads(ptxtune("list", what, "--json", db=two_gpus).stdout)[what]
        assert [row[field] for row in rows].count(A100.name) == 1
        assert len(rows) == count
        for name in ("a100", A100.name):
            found = ptxtune("list", what, "--gpu", name, "--json", db=two_gpus)
            assert [row[field] for row in json.loads(found.stdout)[what]] == [A100.name]
    assert "No winners of l40s" in ptxtune("list", "--gpu", "l40s", db=two_gpus).stdout
    assert "voodoo2" in ptxtune("list", "--gpu", "voodoo2", db=two_gpus, code=2).stderr


def test_a_report_counts_averages_and_draws_each_gpu_alone(two_gpus: Path, tmp_path: Path) -> None:
    summary = json.loads(ptxtune("report", "--json", db=two_gpus).stdout)["summary"]
    assert [(row["device"], row["m"], row["layers"]) for row in summary] == [
        (A100.name, 16, 1),
        (H200.name, 12, 1),
        (H200.name, 16, 1),
    ]
    page = tmp_path / "r.html"
    ptxtune("report", "--html", str(page), "--markdown", str(tmp_path / "r.md"), db=two_gpus)
    lines = [
        (tuple(trace["x"]), tuple(trace["y"]))
        for figure in figures(page).values()
        for trace in figure["data"]
        if trace.get("name") == "ptxtune, plain"
    ]
    assert lines == [((16,), (9.0,)), ((12, 16), (4.0, 5.0))]
    for text in (page.read_text(), ptxtune("report", db=two_gpus).stdout):
        assert f"{A100.name}" in text
        assert f"{H200.name}" in text
    assert f"# {A100.name}\n" in (tmp_path / "r.md").read_text()


def test_predictions_say_so_everywhere(predicted: Path, tmp_path: Path) -> None:
    page = tmp_path / "r.html"
    ptxtune("report", "--html", str(page), db=predicted)
    text = page.read_text()
    assert "Predicted by the roofline model: no GPU ran it" in text
    assert "Median time of one launch" not in text
    names = {t.get("name") for figure in figures(page).values() for t in figure["data"]}
    assert "default config, predicted" in names
    assert "default config" not in names
    printed = ptxtune("report", db=predicted).stdout
    roofline = printed.partition("\nRoofline\n")[2].split("\n")
    assert roofline[2].rstrip().endswith("predicted")
    (run,) = json.loads(ptxtune("list", "runs", "--json", db=predicted).stdout)["runs"]
    assert run["kind"] == "predicted"
    head, _, row = ptxtune("list", "runs", db=predicted).stdout.strip().split("\n")
    cells = dict(zip(re.split(r"  +", head), re.split(r"  +", row.strip()), strict=False))
    assert (cells["kind"], cells["ok"], cells["predicted"]) == ("predicted", "0", "1")


def test_export_says_what_it_leaves_out(predicted: Path, tmp_path: Path) -> None:
    file = tmp_path / "w.jsonl"
    refused = ptxtune("db", "export", str(file), db=predicted, code=2)
    assert "1 predicted winners" in refused.stderr
    assert not file.exists()
    with open_database(predicted) as database:
        add(Store(database), H200, 5.0, m=16)
    assert (
        "left out: 1 predicted winners" in ptxtune("db", "export", str(file), db=predicted).stdout
    )


def test_batch_invariant_winners_and_seeds_are_seen_as_what_they_are(
    two_gpus: Path, tmp_path: Path
) -> None:
    path, file = tmp_path / "invariant.db", tmp_path / "w.jsonl"
    with open_database(path) as database:
        add(Store(database), H200, 7.0, m=8, invariant=True)
    ptxtune("db", "export", str(file), db=two_gpus)
    for look in ("list", "report"):
        assert "fp16 sym g128 batch-invariant" in ptxtune(look, db=path).stdout
    ptxtune("db", "import", str(file), db=path)
    listed = ptxtune("list", db=path)
    assert "Also 3 imported seeds" in listed.stderr
    assert "4.000" not in listed.stdout
    seeds = json.loads(ptxtune("list", "seeds", "--json", db=path).stdout)["seeds"]
    assert sorted((seed["device"], seed["time_us"], seed["origin"]) for seed in seeds) == [
        (A100.name, 9.0, str(file)),
        (H200.name, 4.0, str(file)),
        (H200.name, 5.0, str(file)),
    ]
    assert "Imported seeds, not measured here" in ptxtune("report", db=path).stdout
    doctor = CliRunner().invoke(cli, ["doctor", "--db", str(path)]).stdout
    assert "1 batch-invariant winner, 3 imported seeds" in doctor
    assert "0 measured winners" in doctor
    file.unlink()
    ptxtune("db", "export", str(file), db=path)  # what was found here goes on to others
    assert len(file.read_text().splitlines()) == 2


def test_seeds_alone_are_reported(two_gpus: Path, tmp_path: Path) -> None:
    file, path = tmp_path / "w.jsonl", tmp_path / "seeds.db"
    ptxtune("db", "export", str(file), db=two_gpus)
    ptxtune("db", "import", str(file), db=path)
    assert "Imported seeds, not measured here" in ptxtune("report", db=path).stdout
    assert "No winners in database" in ptxtune("list", db=path).stdout


def test_a_repeated_failure_counts_once(tmp_path: Path) -> None:
    path = tmp_path / "fails.db"
    with open_database(path) as database:
        store = Store(database)
        add(store, H200, 4.0, m=16)
        for device in (H200, H200, A100):
            run = store.start_run(device, TOOLCHAIN)
            config = default_config(PROBLEM, arch_named("sm_80"), 8, 132)
            trial = store.start_trial(run, PROBLEM, 8, Protocol.PLAIN, config=config)
            store.end_trial(trial, Outcome(Status.WRONG, "far off", rel_err=0.5))
    failures = json.loads(ptxtune("report", "--json", db=path).stdout)["failures"]
    assert [(item["status"], item["count"]) for item in failures] == [("wrong", 2)]  # a GPU each


def test_nothing_and_odd_numbers_are_told_in_words(tmp_path: Path) -> None:
    path = tmp_path / "empty.db"
    path.touch()
    for what in ("winners", "runs", "trials", "seeds"):
        assert f"No {what} in database {path}" in ptxtune("list", what, db=path).stdout
    for run in ("77", str(2**63)):
        refused = ptxtune("list", "trials", "--run", run, db=path, code=2)
        assert f"has no run {run}" in refused.stderr
    assert "does not exist" in ptxtune("list", db=tmp_path / "typo" / "x.db", code=2).stderr
    assert [item.name for item in tmp_path.iterdir()] == ["empty.db"]


def test_check_lists_damage_and_the_others_leave_it_out(two_gpus: Path) -> None:
    assert "every row can be read" in ptxtune("db", "check", db=two_gpus).stdout
    with closing(sqlite3.connect(two_gpus)) as raw:
        raw.execute("UPDATE winner SET ties = '{' WHERE id = 1")
        raw.commit()
    for words in (("list",), ("report",), ("best", "--n", "4096", "--k", "4096", "--gpu", "h200")):
        done = ptxtune(*words, db=two_gpus)
        assert f"Warning: database {two_gpus}, table winner, row 1: ties is '{{'" in done.stderr
        assert done.stderr.count("Warning") == 1
    found = json.loads(ptxtune("db", "check", "--json", db=two_gpus, code=1).stdout)["findings"]
    assert [(item["table"], item["row"]) for item in found] == [("winner", 1)]
    assert "winner" in ptxtune("db", "check", db=two_gpus, code=1).stdout


@pytest.mark.parametrize(
    "words", [("check", "x.db"), ("upgrade", "x.db"), ("export",), ("import",)]
)
def test_a_file_belongs_to_export_and_import(words: tuple[str, ...], tmp_path: Path) -> None:
    assert "FILE" in ptxtune("db", *words, db=tmp_path / "d.db", code=2).stderr
    assert list(tmp_path.iterdir()) == []


def test_upgrade_migrates_and_doctor_makes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    golden = Path(__file__).parents[2] / "golden" / "schema_0001.db"
    path.write_bytes(golden.read_bytes())
    before = path.read_bytes()
    cache = tmp_path / "cache"
    CliRunner().invoke(cli, ["doctor", "--db", str(path), "--cache-dir", str(cache)])
    assert path.read_bytes() == before
    assert [item.name for item in tmp_path.iterdir()] == ["old.db"]
    assert "schema: 0003" in ptxtune("db", "upgrade", db=path).stdout
    assert path.read_bytes() != before
