"""Bundles with a bucket where dequantize + matmul goes first: written, read, refused, run."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from bundle_helpers import DenseBackend, bucket, plan, rewritten, small_bundle, spec

from ptxgen.arch import arch_named
from ptxgen.bundle.load import load
from ptxgen.bundle.manifest import Manifest
from ptxgen.bundle.verify import verify
from ptxgen.bundle.write import BucketSpec, BundleSpec, UnpackingSpec, write_bundle
from ptxgen.dequantize.emit import emit_dequantize
from ptxgen.errors import BundleError
from ptxgen.problem import Problem
from ptxgen.reference import random_problem_data
from ptxgen.weights.pack import pack
from ptxgen.weights.quantize import dequantize

PROBLEM = Problem(n=72, k=160, group_size=32, zero="int", bias=True)
UNPACKING = UnpackingSpec(
    emit_dequantize(PROBLEM, arch_named("sm_90")), "// ptx\n", b"\x7fELF" + bytes(40)
)


def bucket_of(m_max: int, dequantized_us: float | None, first: bool) -> BucketSpec:
    made = bucket(PROBLEM, m_max, plan(PROBLEM, 16, 64, 1))
    assert made.measurement is not None
    timed = replace(made.measurement, dequantized_us=dequantized_us)
    return replace(made, measurement=timed, dequantize_first=first)


def mixed() -> BundleSpec:
    """Only the bucket of 128 goes by way of the dense weight first."""
    buckets = [bucket_of(8, None, False), bucket_of(64, 4.0, False), bucket_of(128, 2.5, True)]
    return replace(spec(PROBLEM, buckets), unpacking=UNPACKING)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_bundle(tmp_path / "bundle", mixed())


def test_the_manifest_says_it_and_keeps_the_own_kernel(folder: Path) -> None:
    data = json.loads((folder / "manifest.json").read_text())
    assert [item["dequantize_first"] for item in data["buckets"]] == [False, False, True]
    assert [item["measurement"]["dequantized_us"] for item in data["buckets"]] == [None, 4.0, 2.5]
    assert {"m128/kernel.cu", "m128/kernel.cubin", "dequantize.cubin"} <= data["files"].keys()
    found = data["unpacking"]
    assert found["grid"] == list(UNPACKING.source.plan.grid(PROBLEM.k))
    assert "writes the dense weight" in found["words"]
    assert (folder / "dequantize.cu").read_text() == UNPACKING.source.text


def test_the_manifest_survives_its_round_trip(folder: Path) -> None:
    manifest = verify(folder)
    assert Manifest.from_json(manifest.to_json()) == manifest
    assert manifest.unpacking is not None
    assert manifest.unpacking.plan == UNPACKING.source.plan
    assert [b.dequantize_first for b in manifest.buckets] == [False, False, True]


def test_the_readme_says_it_only_where_it_is_so(folder: Path, tmp_path: Path) -> None:
    said = "dequantize + matmul is faster here: 2.50 us against 3.25 us at M = 128"
    assert said in " ".join((folder / "README.md").read_text().split())
    plain = small_bundle(tmp_path / "plain", PROBLEM)
    assert "dequantize + matmul" not in (plain / "README.md").read_text()
    assert "unpacking" not in json.loads((plain / "manifest.json").read_text())


@pytest.mark.parametrize("m", [0, 1, 8, 63, 64, 65, 128, 129, 4096])
def test_a_batch_goes_the_faster_way(folder: Path, m: int) -> None:
    dense = m > 64
    backend = DenseBackend()
    kernel = load(folder, backend=backend)
    used, unpacked = len(backend.used), len(backend.dequantized)
    data = random_problem_data(PROBLEM, 1, seed=1)
    y = kernel(data.x.expand(m, -1), pack(data.weight, PROBLEM), data.bias)
    assert kernel.dequantizes(m) == dense
    assert (len(backend.used) - used, backend.dequantized[unpacked:]) == (
        (0, [m]) if dense else (1, [])
    )
    assert data.bias is not None
    row = data.x.double() @ dequantize(data.weight, PROBLEM, torch.float64).T + data.bias.double()
    assert torch.equal(y, row.to(torch.float16).expand(m, -1))


def test_a_batch_of_half_the_measured_one_or_less_keeps_the_kernel(tmp_path: Path) -> None:
    only = replace(spec(PROBLEM, [bucket_of(1024, 2.5, True)]), unpacking=UNPACKING)
    kernel = load(write_bundle(tmp_path / "one", only), backend=DenseBackend())
    assert [m for m in (1, 64, 512, 513, 1024, 9000) if kernel.dequantizes(m)] == [513, 1024, 9000]


def test_the_self_test_goes_both_ways(folder: Path) -> None:
    backend = DenseBackend()
    manifest = load(folder, backend=backend).manifest
    assert backend.used == [b.plan for b in manifest.buckets]
    assert backend.dequantized == [manifest.buckets[2].self_test_m]


def test_a_wrong_way_fails_the_self_test(folder: Path) -> None:
    def spoil(y: torch.Tensor) -> None:
        y[-1, -1] += 0.05

    with pytest.raises(BundleError, match=r"self-test failed: dequantize \+ matmul gave a wrong"):
        load(folder, backend=DenseBackend(spoil_dense=spoil))


def test_a_bucket_without_the_kernel_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="has no dequantize kernel"):
        write_bundle(tmp_path / "bundle", replace(mixed(), unpacking=None))
    assert not (tmp_path / "bundle").exists()


def without_unpacking(manifest: Manifest) -> Manifest:
    return replace(manifest, unpacking=None)


def without_measurement(manifest: Manifest) -> Manifest:
    *rest, last = manifest.buckets
    return replace(manifest, buckets=(*rest, replace(last, measurement=None)))


def with_other_files(manifest: Manifest) -> Manifest:
    assert manifest.unpacking is not None
    return replace(manifest, unpacking=replace(manifest.unpacking, files={"cu": "dequantize.cu"}))


def without_checksum(manifest: Manifest) -> Manifest:
    files = {name: sha for name, sha in manifest.files.items() if name != "dequantize.cubin"}
    return replace(manifest, files=files)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (without_unpacking, "bucket of 128 has dequantize_first, and the manifest lacks unpacking"),
        (without_measurement, "the manifest lacks its measurement"),
        (with_other_files, "unpacking.files names"),
        (without_checksum, "no checksum for dequantize.cubin"),
    ],
)
def test_a_contradiction_is_refused(
    folder: Path, change: Callable[[Manifest], Manifest], words: str
) -> None:
    rewritten(folder, change(verify(folder)))
    with pytest.raises(BundleError, match=words):
        load(folder, backend=DenseBackend())


@pytest.mark.parametrize("name", ["dequantize.cu", "dequantize.ptx", "dequantize.cubin"])
def test_a_changed_file_is_named(folder: Path, name: str) -> None:
    (folder / name).write_bytes((folder / name).read_bytes() + b" ")
    with pytest.raises(BundleError, match=f"{name} of the bundle .* was changed"):
        load(folder, backend=DenseBackend())
