"""--device: which GPU of the machine, and that the worker process sees no other one."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from ptxgen.errors import ArchError
from ptxgen.problem import Problem
from ptxtune import target as target_module
from ptxtune.choose_gpu import chosen
from ptxtune.cli import cli
from ptxtune.detect import DetectedGpu, Detection
from ptxtune.target import resolve_target
from ptxtune.tuning import make_job
from search.child import Child

H200 = DetectedGpu(0, "NVIDIA H200", (9, 0), "580.95", "GPU-aaaa-1", 150 << 30, 140 << 30, 700, 132)
OTHER = replace(H200, index=1, uuid="GPU-aaaa-2")
L4 = replace(H200, index=3, name="NVIDIA L4", capability=(8, 9), uuid="GPU-bbbb-3", num_sms=58)
THREE = Detection((H200, OTHER, L4))


@pytest.mark.parametrize(
    ("word", "gpu"),
    [
        ("0", H200),
        ("1", OTHER),
        ("3", L4),
        ("GPU-aaaa-2", OTHER),
        ("GPU-b", L4),
        (" 3 ", L4),
    ],
)
def test_an_index_a_uuid_or_its_beginning_chooses(word: str, gpu: DetectedGpu) -> None:
    assert chosen(THREE, word) == Detection((gpu,))
    target = resolve_target(None, THREE, word)
    assert target.detected is gpu
    assert target.device.uuid == target.only_uuid == gpu.uuid


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("2", "is not among the visible GPUs"),
        ("GPU-aaaa", "is the beginning of 2 UUIDs"),
        ("GPU-zzzz", "is not among the visible GPUs"),
        ("-1", "is not among the visible GPUs"),
        ("", "is not among the visible GPUs"),
        ("h200", "is not among the visible GPUs"),
    ],
)
def test_anything_else_is_refused_with_the_list(word: str, reason: str) -> None:
    with pytest.raises(ArchError, match=reason) as caught:
        chosen(THREE, word)
    assert repr(word) in str(caught.value)
    for gpu in THREE.gpus:
        assert f"{gpu.index} = {gpu.name} ({gpu.uuid})" in str(caught.value)


def test_without_any_gpu_the_reason_is_told() -> None:
    with pytest.raises(ArchError, match=r"device '0' is not here: NVML found no driver\. Leave"):
        chosen(Detection((), "NVML found no driver"), "0")


def test_a_device_and_another_gpus_name_exclude_each_other() -> None:
    assert resolve_target("h200", THREE, "1").detected is OTHER
    with pytest.raises(ArchError, match="--device 3 is NVIDIA L4, and --gpu h200 names another"):
        resolve_target("h200", THREE, "3")


def test_the_worker_is_limited_only_where_there_is_a_choice() -> None:
    assert resolve_target(None, Detection((H200,))).only_uuid == ""
    assert resolve_target(None, Detection((H200,)), "0").only_uuid == "GPU-aaaa-1"
    assert resolve_target(None, THREE).only_uuid == "GPU-aaaa-1"
    assert resolve_target("a100", THREE).only_uuid == ""
    for device in (None, "1"):
        target = resolve_target(None, THREE, device)
        job = make_job([Problem(64, 128)], [1], target=target)
        assert job.gpu_uuid == target.only_uuid


def environment_of(options: dict[str, str]):
    """Child's factory: answers with the value of an environment variable."""
    return lambda _message: os.environ.get(options["name"])


@pytest.mark.parametrize(("uuid", "seen"), [("GPU-aaaa-2", "GPU-aaaa-2"), ("", "mine")])
def test_a_child_sees_the_one_gpu(uuid: str, seen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "mine")
    factory = f"{Path(__file__).stem}:environment_of"
    child = Child(factory, {"name": "CUDA_VISIBLE_DEVICES"}, uuid)
    try:
        assert child.request({}, 60.0) == seen
    finally:
        child.kill()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "mine"


@pytest.mark.parametrize(
    "words",
    [
        ("tune", "--n", "64", "--k", "128"),
        ("one", "--n", "64", "--k", "128"),
        ("bench", "--n", "64", "--k", "128"),
        ("selfcheck",),
        ("doctor",),
    ],
)
def test_every_command_that_measures_takes_it(words: tuple[str, ...], tmp_path: Path) -> None:
    env = {"CUDA_VISIBLE_DEVICES": "", "PTXTUNE_DB": str(tmp_path / "d")}
    result = CliRunner().invoke(cli, [*words, "--device", "77"], env=env, prog_name="ptxtune")
    assert result.exit_code == 2
    assert "device '77' is not" in result.stderr
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("mode", [("--soak", "1"), ("--replay", "x.jsonl")])
def test_checks_without_a_gpu_refuse_it(mode: tuple[str, ...]) -> None:
    result = CliRunner().invoke(cli, ["selfcheck", *mode, "--device", "0"], prog_name="ptxtune")
    assert result.exit_code == 2
    assert "--replay and --soak take none" in result.stderr


@pytest.mark.parametrize("command", ["one", "tune", "bench"])
def test_strict_refuses_a_busy_gpu_before_anything_is_written(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = Detection((replace(H200, compute_pids=(4711,)),))
    monkeypatch.setattr(target_module, "detect", lambda: busy)
    words = [command, "--n", "64", "--k", "128", "--strict", "--db", str(tmp_path / "d")]
    result = CliRunner().invoke(cli, words, prog_name="ptxtune")
    assert result.exit_code == 2
    assert "4711" in result.stderr
    assert "--strict allows none" in result.stderr
    assert "--device" in result.stderr
    assert not (tmp_path / "d").exists()
