"""Writing a bundle: its files, its manifest, and that nothing half-written stays."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bundle_helpers import bucket, plan, small_bundle, spec
from formulas import evaluated

from ptxgen.bundle.manifest import Manifest
from ptxgen.bundle.verify import verify
from ptxgen.bundle.write import BucketSpec, write_bundle
from ptxgen.errors import BundleError
from ptxgen.problem import Problem

PROBLEM = Problem(n=64, k=128, zero="int", bias=True)
FILES = {"manifest.json", "README.md", "ptxtune_w4a16.h", "example.c", "selftest_y.f32"}
KERNELS = {"kernel.cu", "kernel.ptx", "kernel.cubin"}


def made(m_max: int = 8, **changes: Any) -> BucketSpec:
    return bucket(PROBLEM, m_max, plan(PROBLEM, 8, 32, 2), **changes)


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_single_bucket_has_its_kernel_on_top(tmp_path: Path) -> None:
    folder = write_bundle(tmp_path / "deep" / "bundle", spec(PROBLEM, [made()]))
    assert folder == tmp_path / "deep" / "bundle"
    assert names(folder) == FILES | KERNELS
    assert (folder / "kernel.cu").read_text() == "// kernel of bucket 8\n"
    assert (folder / "kernel.ptx").read_text() == "// ptx of bucket 8\n"
    assert (folder / "kernel.cubin").read_bytes() == made().cubin
    assert os.listdir(tmp_path / "deep") == ["bundle"]


def test_several_buckets_have_a_folder_each_in_order(tmp_path: Path) -> None:
    folder = write_bundle(tmp_path / "bundle", spec(PROBLEM, [made(16), made(1), made(4)]))
    kernels = {f"m{m}/{name}" for m in (1, 4, 16) for name in KERNELS}
    assert names(folder) == FILES | kernels
    assert [b.m_max for b in verify(folder).buckets] == [1, 4, 16]


def test_manifest_names_and_hashes_every_other_file(tmp_path: Path) -> None:
    folder = small_bundle(tmp_path / "bundle", PROBLEM, (1, 8))
    data = json.loads((folder / "manifest.json").read_text())
    assert set(data["files"]) == names(folder) - {"manifest.json"}
    for name, digest in data["files"].items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest


def test_manifest_says_all_that_a_launcher_needs(tmp_path: Path) -> None:
    folder = small_bundle(tmp_path / "bundle", PROBLEM, (1, 8))
    data = json.loads((folder / "manifest.json").read_text())
    assert data["problem"] == PROBLEM.to_dict()
    assert data["schema"] == 1
    assert data["arch"] == "sm_90"
    assert data["device"] == {"name": "Fake GPU", "capability": "9.0"}
    assert data["toolchain"]["nvrtc"] == "13.0"
    assert [item["name"] for item in data["arguments"]] == [
        *("x", "packed", "bias", "y", "workspace", "m", "ldx", "ldy"),
    ]
    assert data["predicted"] is False
    for item in data["buckets"]:
        assert item["config"]["family"] == "mma"
        assert item["resources"]["registers"] == 40
        assert item["measurement"]["cublas_us"] == 8.75


def test_launch_formulas_of_the_manifest_give_the_plans_numbers(tmp_path: Path) -> None:
    folder = small_bundle(tmp_path / "bundle", Problem(n=136, k=128), (1, 16, 64, 200))
    data = json.loads((folder / "manifest.json").read_text())
    buckets = Manifest.from_json(json.dumps(data)).buckets
    for item, parsed in zip(data["buckets"], buckets, strict=True):
        for m in (1, 7, 8, 9, 64, 200, 1000):
            known = {**item["plan"], "m": m}
            assert tuple(evaluated(text, known) for text in data["launch"]["grid"]) == (
                parsed.plan.grid(m)
            )
            known["tiles"] = evaluated(data["workspace"]["tiles"], known)
            known["counter_bytes"] = evaluated(data["workspace"]["counter_bytes"], known)
            needed = evaluated(data["workspace"]["workspace_bytes"], known)
            if parsed.plan.split_k > 1:
                assert known["counter_bytes"] == parsed.plan.counter_bytes(m)
                assert needed == parsed.plan.workspace_bytes(m)
            else:
                assert parsed.plan.workspace_bytes(m) == 0


def test_predicted_kernels_say_so_everywhere(tmp_path: Path) -> None:
    parts = [made(1), made(8, predicted=True)]
    folder = write_bundle(tmp_path / "bundle", spec(PROBLEM, parts))
    data = json.loads((folder / "manifest.json").read_text())
    assert data["predicted"] is True
    assert [b["measurement"]["predicted"] for b in data["buckets"]] == [False, True]
    readme = (folder / "README.md").read_text()
    assert "Predicted, not measured" in readme
    assert "3.25 us at M = 8 (predicted)" in readme
    assert "(predicted for Fake GPU" in (folder / "ptxtune_w4a16.h").read_text()[:500]


def test_measured_bundles_do_not_speak_of_predictions(tmp_path: Path) -> None:
    folder = small_bundle(tmp_path / "bundle", PROBLEM, (1, 8))
    readme = (folder / "README.md").read_text()
    assert "redicted" not in readme
    assert "Not measured" not in readme
    assert "measured on Fake GPU" in readme
    assert verify(folder).measured
    assert "| 1..1 | 3.25 us at M = 1 (plain) | 4.50 us | 8.75 us | `m1/kernel.cu` |" in readme
    assert "| 2..8 and above |" in readme


def test_a_config_without_a_time_says_not_measured(tmp_path: Path) -> None:
    folder = write_bundle(tmp_path / "b", spec(PROBLEM, [replace(made(), measurement=None)]))
    assert verify(folder).buckets[0].measurement is None
    assert not verify(folder).predicted
    assert not verify(folder).measured
    readme = (folder / "README.md").read_text()
    assert "**Not measured.**" in readme
    assert "redicted" not in readme


def test_a_time_of_another_gpu_is_not_passed_off_as_this_ones(tmp_path: Path) -> None:
    measurement = made().measurement
    assert measurement is not None
    other = replace(made(), measurement=replace(measurement, device="Other GPU"))
    folder = write_bundle(tmp_path / "b", spec(PROBLEM, [other]))
    assert not verify(folder).measured
    readme = (folder / "README.md").read_text()
    assert "(plain, on Other GPU)" in readme
    assert "never timed on Fake GPU" in readme
    assert "measured on Fake GPU" not in readme


def test_manifest_round_trip(tmp_path: Path) -> None:
    folder = small_bundle(tmp_path / "bundle", PROBLEM, (1, 8))
    manifest = verify(folder)
    assert Manifest.from_json(manifest.to_json()) == manifest
    assert (folder / "manifest.json").read_text() == manifest.to_json()


def test_existing_target_is_refused_and_kept(tmp_path: Path) -> None:
    target = small_bundle(tmp_path / "bundle", PROBLEM)
    before = (target / "manifest.json").read_bytes()
    with pytest.raises(BundleError, match="exists already"):
        small_bundle(target, PROBLEM, (1, 8))
    assert (target / "manifest.json").read_bytes() == before
    assert os.listdir(tmp_path) == ["bundle"]


def test_force_replaces_a_bundle_and_leaves_nothing_of_it(tmp_path: Path) -> None:
    target = small_bundle(tmp_path / "bundle", PROBLEM, (1, 8))
    write_bundle(target, spec(PROBLEM, [made()]), force=True)
    assert names(target) == FILES | KERNELS
    assert os.listdir(tmp_path) == ["bundle"]


def test_force_does_not_touch_what_is_not_a_bundle(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.mkdir()
    (target / "thesis.tex").write_text("years of work")
    with pytest.raises(BundleError, match="is not a bundle"):
        write_bundle(target, spec(PROBLEM, [made()]), force=True)
    file = tmp_path / "file"
    file.write_text("text")
    with pytest.raises(BundleError, match="is not a bundle"):
        write_bundle(file, spec(PROBLEM, [made()]), force=True)
    assert (target / "thesis.tex").read_text() == "years of work"
    assert file.read_text() == "text"


@pytest.mark.parametrize(
    ("code", "words"), [(errno.ENOSPC, "disk is full"), (errno.EIO, "repair the disk")]
)
@pytest.mark.parametrize("force", [False, True])
def test_a_failing_disk_leaves_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, words: str, force: bool
) -> None:
    target = tmp_path / "bundle"
    if force:
        small_bundle(target, PROBLEM)
    before = sorted(names(tmp_path))
    calls = iter(range(1000))

    def failing(descriptor: int) -> None:
        if next(calls) == 3:
            raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(BundleError, match=words):
        write_bundle(target, spec(PROBLEM, [made(4)]), force=force)
    assert sorted(names(tmp_path)) == before
    assert os.listdir(tmp_path) == (["bundle"] if force else [])


def test_a_target_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    with pytest.raises(BundleError, match="cannot write the bundle"):
        write_bundle(tmp_path / "file" / "bundle", spec(PROBLEM, [made()]))
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize(
    ("buckets", "words"),
    [
        ([], "at least one"),
        ([made(8), made(8)], "Name each M once"),
        ([made(0)], "different batches"),
        ([made(1), made(8, arch="sm_80")], "one arch"),
        ([replace(made(), cubin=b"")], "not an ELF"),
        ([made(m) for m in range(1, 34)], "at most 32 buckets"),
    ],
)
def test_inconsistent_specs_are_refused(
    tmp_path: Path, buckets: list[BucketSpec], words: str
) -> None:
    with pytest.raises(BundleError, match=words):
        write_bundle(tmp_path / "bundle", spec(PROBLEM, buckets))
    assert os.listdir(tmp_path) == []
