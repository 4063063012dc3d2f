"""--batch-invariant through the command line and the API, without a GPU: one order everywhere."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import ptxtune
from ptxgen.arch import ARCHS
from ptxgen.families import config_from_dict, emit
from ptxgen.families.invariant import INVARIANT, invariant_default, is_invariant
from ptxgen.problem import Problem
from ptxtune.cli import cli

pytestmark = pytest.mark.compile

PROBLEM = Problem(256, 512)
LAYER = ("--n", "256", "--k", "512", "--gpu", "h200")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with batch-invariant predictions of two batch sizes, and their answers."""
    folder = tmp_path_factory.mktemp("home")
    words = ("tune", *LAYER, "--m", "1,128", "--trials", "3", "--batch-invariant")
    result = run(folder, *words)
    assert result.exit_code == 0, result.stderr
    assert "Batch-invariant: a row's result is the same bits for every M" in result.stdout
    assert "--m 1,128 --batch-invariant" in result.stderr
    return folder


def run(home: Path, *words: str, pin: str = "") -> Result:
    env = {"PTXTUNE_DB": str(home / "d.db"), "PTXTUNE_CACHE_DIR": str(home / "c"),
           "CUDA_VISIBLE_DEVICES": "", "PTXTUNE_PIN": pin}  # fmt: skip
    return CliRunner().invoke(cli, list(words), env=env, prog_name="ptxtune")


def test_best_serves_one_order_for_every_m(home: Path) -> None:
    words = ("best", *LAYER, "--m", "1,5,128,4096", "--json", "--batch-invariant")
    answers = json.loads(run(home, *words).stdout)["answers"]
    assert [answer["level"] for answer in answers][::2] == ["exact", "exact"]
    assert all(is_invariant(PROBLEM, config_from_dict(answer["config"])) for answer in answers)
    winners = [answer["winner"] for answer in answers if answer["winner"]]
    assert all(winner["batch_invariant"] for winner in winners)
    assert answers[-1]["winner"] is None  # of M = 128, whose tiles it would take 32 times as often


def test_the_ordinary_question_does_not_see_them(home: Path) -> None:
    answers = json.loads(run(home, "best", *LAYER, "--m", "1", "--json").stdout)["answers"]
    assert [answer["level"] for answer in answers] == ["default"]
    listed = json.loads(run(home, "list", "--json").stdout)["winners"]
    assert listed
    assert all(winner["batch_invariant"] for winner in listed)


def test_an_exported_bundle_has_one_order_in_all_buckets(home: Path) -> None:
    folder = ptxtune.export(
        home / "bundle", n=256, k=512, m=(1, 16, 128), gpu="h200", batch_invariant=True,
        db=str(home / "d.db"), cache_dir=str(home / "c"),
    )  # fmt: skip
    manifest = json.loads((folder / "manifest.json").read_text())
    configs = [config_from_dict(bucket["config"]) for bucket in manifest["buckets"]]
    assert len(configs) == 3
    assert all(is_invariant(PROBLEM, config) for config in configs)


def test_the_api_answers_like_the_command(home: Path) -> None:
    listed = run(home, "best", *LAYER, "--m", "128", "--json", "--batch-invariant").stdout
    answer = ptxtune.best(
        n=256, k=512, m=128, gpu="h200", batch_invariant=True, db=str(home / "d.db")
    )
    assert json.loads(listed)["answers"][0]["config"] == answer.config.to_dict()
    other = ptxtune.best(
        n=512, k=512, m=64, gpu="h200", batch_invariant=True, db=str(home / "d.db")
    )
    assert other.config == invariant_default(Problem(512, 512), ARCHS["sm_90a"], 64)


def test_a_pin_of_another_order_is_refused(home: Path) -> None:
    words = ("best", *LAYER, "--m", "1", "--json", "--batch-invariant")
    pinned = json.loads(run(home, *words, pin=json.dumps(INVARIANT.to_dict())).stdout)
    assert pinned["answers"][0]["level"] == "pinned"
    other = INVARIANT.to_dict() | {"warps_k": 2}
    assert emit(PROBLEM, config_from_dict(other), ARCHS["sm_90a"]).text
    refused = run(home, *words, pin=json.dumps(other))
    assert refused.exit_code == 2
    assert "PTXTUNE_PIN" in refused.stderr
    assert "warps_k=2" in refused.stderr
    assert "leave --batch-invariant out" in refused.stderr
