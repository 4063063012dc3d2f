"""Which GPU a command is about, on machines with and without one."""

from dataclasses import replace

import pytest

from db.devices import device_key
from ptxgen.arch import GPUS
from ptxgen.errors import ArchError
from ptxtune.detect import DetectedGpu, Detection, detect, visible
from ptxtune.doctor import Health, examine
from ptxtune.target import resolve_target

H200 = DetectedGpu(0, "NVIDIA H200", (9, 0), "580.95", "GPU-aaaa-1", 150 << 30, 140 << 30, 700, 132)
L4 = replace(H200, index=1, name="NVIDIA L4", capability=(8, 9), uuid="GPU-bbbb-2", num_sms=58)
NONE = Detection((), "NVML found no NVIDIA driver")


def test_without_a_gpu_the_fallback_is_predicted_for_and_says_why() -> None:
    target = resolve_target(None, NONE)
    assert (target.device.name, target.arch.name, target.detected) == (
        "NVIDIA H200",
        "sm_90a",
        None,
    )
    assert "NVML found no NVIDIA driver" in target.reason
    assert not target.device.measured


@pytest.mark.parametrize("name", GPUS)
def test_every_known_gpu_can_be_named(name: str) -> None:
    target = resolve_target(name, NONE)
    assert target.gpu is GPUS[name]
    assert target.device.capability == ".".join(map(str, target.arch.capability))
    assert target.device.num_sms == GPUS[name].num_sms


def test_the_gpu_that_is_here_is_measured_named_or_not() -> None:
    for name in (None, "h200", "NVIDIA H200"):
        target = resolve_target(name, Detection((H200, L4)))
        assert target.detected is H200
        assert target.driver == "580.95"
        assert target.device.uuid == "GPU-aaaa-1"
        assert target.device.power_limit_w == 700


def test_another_gpu_than_the_one_here_is_predicted_for() -> None:
    target = resolve_target("a100", Detection((H200,)))
    assert target.detected is None
    assert target.driver == ""
    assert target.arch.name == "sm_80"


def test_a_gpu_outside_the_table_is_measured_all_the_same() -> None:
    for name in (None, "NVIDIA L4"):
        target = resolve_target(name, Detection((L4,)))
        assert target.gpu is None
        assert target.detected is L4
        assert (target.arch.name, target.device.num_sms) == ("sm_89", 58)


def test_the_record_is_of_the_stored_model() -> None:
    named, present = resolve_target("h200", NONE), resolve_target(None, Detection((H200,)))
    assert device_key(named.device) == device_key(present.device)


@pytest.mark.parametrize(
    ("name", "found"),
    [("voodoo2", NONE), ("NVIDIA L4", Detection((H200,)))],
)
def test_unknown_gpu_lists_the_known_ones(name: str, found: Detection) -> None:
    with pytest.raises(ArchError, match=r"h200.*rtx4090"):
        resolve_target(name, found)


def test_unsupported_capability_is_refused() -> None:
    old = replace(H200, name="NVIDIA Tesla T4", capability=(7, 5))
    with pytest.raises(ArchError, match=r"7\.5"):
        resolve_target(None, Detection((old,)))


@pytest.mark.parametrize(
    ("setting", "indices"),
    [(None, [0, 1]), ("0", [0]), ("1", [1]), ("1,0", [1, 0]), ("", []), ("-1", []), ("0,7,1", [0]),
     ("GPU-bbbb", [1]), (" 1 ", [1]), ("NoDevFiles", [])],
)  # fmt: skip
def test_visible_devices(setting: str | None, indices: list[int]) -> None:
    assert [gpu.index for gpu in visible((H200, L4), setting)] == indices


def test_hidden_gpus_have_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    found = detect()
    assert found.first is None
    assert found.reason


def checks(detection: Detection, tmp_path, **options: str) -> dict:
    (tmp_path / "d.db").touch()
    options = {"db": str(tmp_path / "d.db"), "cache_dir": str(tmp_path / "c")} | options
    return {check.name: check for check in examine(detection, **options)}


def test_doctor_is_content_without_a_gpu_but_says_so(tmp_path) -> None:
    found = checks(NONE, tmp_path)
    assert [name for name, check in found.items() if check.health is Health.FAILED] == []
    assert found["driver"].health is found["gpu"].health is Health.WARNING
    assert "predicts for NVIDIA H200" in found["tune uses"].detail
    assert "0 runs" in found["database"].detail


def test_doctor_with_a_gpu(tmp_path) -> None:
    found = checks(Detection((H200,)), tmp_path)
    assert {check.health for check in found.values()} <= {Health.OK, Health.WARNING}
    assert found["driver"].detail == "580.95"
    assert "measures on NVIDIA H200" in found["tune uses"].detail


@pytest.mark.parametrize(
    ("gpu", "name", "health", "word"),
    [
        (replace(H200, driver="535.104.05"), "driver", Health.FAILED, "580"),
        (replace(H200, compute_pids=(4711,)), "gpu", Health.WARNING, "4711"),
        (replace(H200, free_bytes=1 << 30), "gpu", Health.WARNING, "Free 4 GiB"),
        (replace(H200, name="T4", capability=(7, 5)), "arch", Health.FAILED, "7.5"),
    ],
)
def test_doctor_names_the_fault(gpu, name: str, health: Health, word: str, tmp_path) -> None:
    check = checks(Detection((gpu,)), tmp_path)[name]
    assert check.health is health
    assert word in f"{check.detail} {check.cure}"


def test_doctor_finds_unusable_folders_and_databases(tmp_path) -> None:
    (tmp_path / "file").write_text("not a database, not a folder" * 50)
    found = checks(NONE, tmp_path, cache_dir=str(tmp_path / "file" / "c"))
    assert found["cache"].health is Health.WARNING
    assert "--cache-dir" in found["cache"].cure
    assert checks(NONE, tmp_path, db=str(tmp_path / "file"))["database"].health is Health.FAILED


def test_every_fault_has_a_cure_and_no_other_check_has_one(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PTXTUNE_CACHE", "typo")
    (tmp_path / "file").write_text("x" * 5000)
    old = replace(H200, driver="535.1", compute_pids=(1,))
    options = {"db": str(tmp_path / "file"), "cache_dir": str(tmp_path / "file")}
    found = checks(Detection((old,)), tmp_path, **options)
    assert found["environment"].health is Health.WARNING
    assert "PTXTUNE_CACHE " in found["environment"].detail
    for check in found.values():
        assert bool(check.cure) == (check.health is not Health.OK)
