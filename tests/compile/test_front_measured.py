"""The measuring way through the front door: real kernels, worker and database, a fake GPU."""

import json
from dataclasses import replace
from pathlib import Path

import front_fakes
import pytest

from db import query
from db.records import Protocol
from db.session import open_database
from ptxgen.bundle.verify import verify
from ptxgen.errors import ArchError
from ptxgen.outcome import Status
from ptxgen.problem import Problem
from ptxtune.answers import answer_table, best_answers
from ptxtune.detect import DetectedGpu, Detection
from ptxtune.exporting import export_bundle
from ptxtune.outcomes import outcome_document, outcome_text
from ptxtune.summary import summary_document, summary_text
from ptxtune.target import Target, resolve_target
from ptxtune.tuning import make_job, run_config, run_job
from reports.collect import collect
from reports.document import render_markdown
from search.budget import Budget
from search.job import TuneJob

pytestmark = pytest.mark.compile

PROBLEM = Problem(256, 512)
GPU = DetectedGpu(
    0, "NVIDIA H200", (9, 0), "580.95", front_fakes.UUID, 141 << 30, 140 << 30, 700, 132
)


@pytest.fixture
def target() -> Target:
    return resolve_target(None, Detection((GPU,)))


def job_of(target: Target, folder: Path) -> TuneJob:
    job = make_job(
        [PROBLEM], [1], target=target, protocols=[Protocol.PLAIN], budget=Budget(trials=6),
        cache_dir=str(folder / "c"),
    )  # fmt: skip
    options = {"log": str(folder / "created.log")}
    return replace(
        job, evaluator="front_fakes:create", evaluator_options=options, lock_folder=folder
    )


def test_tune_best_and_report_of_measured_results(target: Target, tmp_path: Path) -> None:
    db = str(tmp_path / "d.db")
    summary = run_job(job_of(target, tmp_path), target, db=db)
    (row,) = summary_document(summary)["results"]
    assert not summary.predicted
    assert row["time_us"] <= row["default_us"] < row["cublas_us"] == front_fakes.CUBLAS_US
    text = summary_text(summary, {(256, 512): "down"})
    assert "down, 256 x 512" in text
    assert "measured" in text
    assert f"{front_fakes.CUBLAS_US / row['time_us']:.2f}x" in text
    (answer,) = best_answers([PROBLEM], [1], target=target, db=db)
    assert (answer.level, answer.predicted, answer.stale) == ("exact", False, ())
    assert answer.config.to_dict() == row["config"]
    assert "measured" in answer_table([answer]).to_text()
    with open_database(db) as database:
        report = render_markdown(collect(database))
    assert f"{front_fakes.CUBLAS_US / row['time_us']:.2f}x" in report
    assert "measured on the device" in report
    assert "redicted" not in report


def test_where_dequantize_and_matmul_is_faster_everything_says_so(
    target: Target, tmp_path: Path
) -> None:
    db = str(tmp_path / "d.db")
    job = replace(job_of(target, tmp_path), buckets=(1, 64))
    small, large = summary_document(run_job(job, target, db=db))["results"]
    assert (small["dequantized_us"], large["dequantized_us"]) == (None, front_fakes.DEQUANTIZED_US)
    answers = best_answers([PROBLEM], [1, 64], target=target, db=db)
    assert [answer.dequantize_first for answer in answers] == [False, True]
    with open_database(db) as database:
        assert "## Faster by dequantize + matmul" in render_markdown(collect(database))
    folder, _ = export_bundle(
        tmp_path / "bundle", PROBLEM, [1, 64], target=target, db=db, cache_dir=str(tmp_path / "c")
    )
    manifest = verify(folder)
    assert [item.dequantize_first for item in manifest.buckets] == [False, True]
    assert [item.config for item in manifest.buckets] == [small["config"], large["config"]]
    assert manifest.unpacking is not None
    assert (folder / manifest.unpacking.files["cubin"]).read_bytes().startswith(b"\x7fELF")


def test_ceilings_of_this_card_are_measured_once(target: Target, tmp_path: Path) -> None:
    job = job_of(target, tmp_path)
    for problem in (PROBLEM, Problem(256, 256)):
        run_job(replace(job, problems=(problem,)), target, db=str(tmp_path / "d.db"))
    other = replace(target, device=replace(target.device, uuid="GPU-other"))
    run_job(replace(job, problems=(Problem(128, 128),)), other, db=str(tmp_path / "d.db"))
    log = [json.loads(line) for line in (tmp_path / "created.log").read_text().splitlines()]
    assert log[0] is None
    assert log[1]["read_gbps"] == front_fakes.DEVICE.read_gbps
    assert log[2] is None


def test_one_config_is_run_and_stored(target: Target, tmp_path: Path) -> None:
    db = str(tmp_path / "d.db")
    outcome = run_config(job_of(target, tmp_path), None, target, db=db)
    assert outcome.status is Status.OK
    with open_database(db) as database:
        (stored,) = query.trials(database)
    assert stored.outcome.time_us == outcome.time_us
    text = outcome_text(outcome)
    assert text.startswith("ok\n")
    assert f"{outcome.resources.registers} registers" in text
    assert "relative error 3.00e-04" in text
    document = outcome_document(PROBLEM, 1, "plain", stored.config, outcome)
    assert json.loads(json.dumps(document))["registers"] == outcome.resources.registers


def test_illegal_config_is_an_outcome_with_its_reason(target: Target, tmp_path: Path) -> None:
    job = job_of(target, tmp_path)
    (tmp_path / "d.db").touch()
    (answer,) = best_answers([PROBLEM], [1], target=target, db=str(tmp_path / "d.db"))
    illegal = replace(answer.config, split_k=16)
    outcome = run_config(job, illegal, target, db=str(tmp_path / "d.db"))
    assert outcome.status is Status.INVALID
    assert "split_k" in outcome_text(outcome)


def test_one_needs_the_gpu(tmp_path: Path) -> None:
    named = resolve_target("a100", Detection((GPU,)))
    with pytest.raises(ArchError, match="not in this machine"):
        run_config(job_of(named, tmp_path), None, named, db=str(tmp_path / "d.db"))
    assert not (tmp_path / "d.db").exists()
