"""--best and --config of emit, check and one; options that would have no effect are refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from db.records import Protocol
from db.session import open_database
from db.store import Store
from ptxgen.arch import GPUS
from ptxgen.config import KernelConfig
from ptxgen.families import default_config, emit
from ptxgen.outcome import Outcome, Status
from ptxgen.problem import Problem
from ptxtune.cli import cli
from ptxtune.commands import check
from ptxtune.toolchain import current_toolchain
from search.predict import device_of

PROBLEM = Problem(4096, 4096)
LAYER = ("--n", "4096", "--k", "4096")
GPU = GPUS["a100"]


def run(*words: str) -> Result:
    env = {"CUDA_VISIBLE_DEVICES": ""}
    return CliRunner().invoke(cli, list(words), env=env, prog_name="ptxtune")


@pytest.fixture
def tuned(tmp_path: Path) -> tuple[str, KernelConfig]:
    """A database with a predicted winner of M = 8 for an A100 that is not the default."""
    db = str(tmp_path / "d.db")
    default = default_config(PROBLEM, GPU.spec, 8, GPU.num_sms)
    config = replace(default, num_stages=default.to_dict()["num_stages"] - 1)
    with open_database(db) as database:
        store = Store(database)
        trial_id = store.add_predicted(
            store.start_run(device_of(GPU), current_toolchain("")),
            PROBLEM, 8, Protocol.PLAIN, config=config,
            source_digest=emit(PROBLEM, config, GPU.spec).digest(),
            outcome=Outcome(Status.PREDICTED, time_us=5.0),
        )  # fmt: skip
        store.set_winner(trial_id, default_us=6.0)
    return db, config


def test_emit_takes_what_best_answers(tuned: tuple[str, KernelConfig]) -> None:
    db, config = tuned
    for m, words in ((8, ()), (4096, ()), (8, ("--protocol", "chained"))):
        where = (*LAYER, "--m", str(m), "--gpu", "a100", "--db", db, "--json", *words)
        (answer,) = json.loads(run("best", *where).stdout)["answers"]
        emitted = json.loads(run("emit", *where, "--best").stdout)
        assert emitted["config"] == answer["config"]
        assert (emitted["config"] == config.to_dict()) == (m == 8 and not words)
        plain = json.loads(run("emit", *where).stdout)["config"]
        chained = "--protocol" in words
        expected = default_config(PROBLEM, GPU.spec, m, GPU.num_sms, chained=chained)
        assert plain == expected.to_dict()


def test_check_takes_what_best_answers_for_each_batch(
    tuned: tuple[str, KernelConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    db, config = tuned
    seen = []

    def record(cases: list, *_: object, **__: object) -> list:
        seen.extend(cases)
        return []

    monkeypatch.setattr(check, "_run", record)
    words = ("check", *LAYER, "--m", "8,4096", "--gpu", "a100", "--db", db, "--json", "--full")
    assert run(*words, "--best").exit_code == 0
    assert run(*words, "--config", config.key()).exit_code == 0
    assert [case.config == config for case in seen] == [True, False, True, True]
    assert {case.arch.name for case in seen} == {"sm_80"}


def test_one_takes_what_best_answers(
    tuned: tuple[str, KernelConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    from ptxtune.commands import one

    db, config = tuned
    seen = []

    def record(_job: object, chosen: KernelConfig | None, *_: object, **__: object) -> Outcome:
        seen.append(chosen)
        return Outcome(Status.OK, time_us=1.0)

    monkeypatch.setattr(one, "run_config", record)
    words = ("one", *LAYER, "--m", "8", "--gpu", "a100", "--db", db, "--json")
    for rest in (("--best",), ("--config", config.key()), ()):
        assert run(*words, *rest).exit_code == 0
    assert seen == [config, config, None]


REFUSED = [
    (("check", "--covering", "mma", "--n", "4096"), ["--n", "--covering mma"]),
    (("check", "--covering", "mma", "--m", "8", "--best"), ["--m", "--best"]),
    (("check", "--covering", "wgmma", "--config", "{}", "--full"), ["--config", "--full"]),
    (("check", "--covering", "wgmma", "--no-bias", "--gpu", "a100"), ["--bias", "--gpu"]),
    (("one", "--trial", "1", "--n", "64"), ["--n", "--trial 1"]),
    (("one", "--trial", "1", "--best"), ["--best"]),
    (("emit", *LAYER, "--best", "--config", "mma"), ["--config", "--best"]),
    (("emit", *LAYER, "--best", "--gpu", "h200", "--arch", "sm_80"), ["--arch", "sm_90a"]),
    (("check", *LAYER, "--best", "--gpu", "a100", "--arch", "sm_90a"), ["sm_80", "--gpu"]),
    (("best", *LAYER, "--m", "0"), ["M = 0", "least is 1"]),
    (("best", *LAYER, "--m", "1,8", "--measured"), ["2 of 2", "n4096-k4096", "ptxtune tune"]),
    (("export", *LAYER, "--measured", "--out", "bundle"), ["1 of 1", "leave --measured"]),
]


@pytest.mark.parametrize(("words", "named"), REFUSED, ids=" ".join)
def test_what_cannot_be_honoured_is_refused(
    words: tuple[str, ...], named: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PTXTUNE_DB", str(tmp_path / "d.db"))
    result = run(*words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert not (tmp_path / "bundle").exists()
    for word in named:
        assert word in result.stderr
