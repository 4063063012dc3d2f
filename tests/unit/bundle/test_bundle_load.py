"""Loading a bundle: what is refused, that the self-test decides, and which kernel a batch gets."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from bundle_helpers import CpuBackend, bucket, plan, rewritten, small_bundle, spec
from torch import Tensor

from ptxgen.bundle.load import load
from ptxgen.bundle.verify import verify
from ptxgen.bundle.write import write_bundle
from ptxgen.errors import BundleError, DriverError
from ptxgen.problem import Problem
from ptxgen.reference import random_problem_data
from ptxgen.source import LaunchPlan
from ptxgen.weights.pack import pack
from ptxgen.weights.quantize import dequantize

PROBLEM = Problem(n=72, k=160, group_size=32, zero="int", bias=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return small_bundle(tmp_path / "bundle", PROBLEM, (1, 8, 40))


def test_loaded_kernel_computes(folder: Path) -> None:
    kernel = load(folder, backend=CpuBackend())
    data = random_problem_data(PROBLEM, 6, seed=3)
    x = data.x.view(2, 3, PROBLEM.k)
    y = kernel(x, pack(data.weight, PROBLEM), data.bias)
    assert data.bias is not None
    wanted = x.double() @ dequantize(data.weight, PROBLEM, torch.float64).T + data.bias.double()
    assert y.shape == (2, 3, PROBLEM.n)
    assert torch.equal(y, wanted.to(torch.float16))


def test_self_test_goes_through_every_kernel(folder: Path) -> None:
    backend = CpuBackend()
    kernel = load(folder, backend=backend)
    assert backend.used == [b.plan for b in kernel.manifest.buckets]


@pytest.mark.parametrize(
    ("m", "m_max"), [(0, 1), (1, 1), (2, 8), (8, 8), (9, 40), (40, 40), (41, 40), (999, 40)]
)
def test_batches_get_their_bucket(folder: Path, m: int, m_max: int) -> None:
    backend = CpuBackend()
    kernel = load(folder, backend=backend)
    data = random_problem_data(PROBLEM, 1, seed=1)
    kernel(data.x.expand(m, -1), pack(data.weight, PROBLEM), data.bias)
    assert backend.used[-1] == kernel.manifest.bucket_for(m).plan
    assert kernel.manifest.bucket_for(m).m_max == m_max


def last_element(y: Tensor) -> None:
    y[-1, -1] += 0.05


def one_nan(y: Tensor) -> None:
    y[0, 3] = torch.nan


def one_inf(y: Tensor) -> None:
    y[0, 3] = torch.inf


def swapped_tiles(y: Tensor) -> None:
    if y.shape[0] >= 16:
        y[:16] = torch.cat((y[8:16].clone(), y[:8].clone()))


@pytest.mark.parametrize("spoil", [last_element, one_nan, one_inf, swapped_tiles])
def test_a_wrong_kernel_fails_the_self_test(folder: Path, spoil: Callable[[Tensor], None]) -> None:
    with pytest.raises(BundleError, match=r"self-test failed: the kernel for batches up to"):
        load(folder, backend=CpuBackend(spoil=spoil))


EVERY_FILE = ["README.md", "example.c", "ptxtune_w4a16.h", "selftest_y.f32", "m8/kernel.cu"]
EVERY_FILE += ["m1/kernel.cubin", "m8/kernel.cubin", "m40/kernel.ptx"]


@pytest.mark.parametrize("name", EVERY_FILE)
def test_a_changed_byte_is_named(folder: Path, name: str) -> None:
    data = bytearray((folder / name).read_bytes())
    data[len(data) // 2] ^= 1
    (folder / name).write_bytes(data)
    with pytest.raises(BundleError, match=f"{name} of the bundle .* was changed after the export"):
        load(folder, backend=CpuBackend())


@pytest.mark.parametrize("name", EVERY_FILE)
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(BundleError, match=f"{name} of the bundle .* cannot be read"):
        load(folder, backend=CpuBackend())


def edited(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    path = folder / "manifest.json"
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d.update(kind="other"), "not a bundle"),
        (lambda d: d.update(schema=2), "schema 2; this ptxtune reads schema 1"),
        (lambda d: d.update(schema="1"), "must be an integer"),
        (lambda d: d.update(schema=True), "must be an integer"),
        (lambda d: d.update(arch="sm_80"), "its own digest"),
        (lambda d: d["buckets"][0]["plan"].update(threads=64), "its own digest"),
        (lambda d: d["files"].pop("README.md"), "its own digest"),
        (lambda d: d.update(extra=1), "its own digest"),
        (lambda d: d.pop("digest"), "no field 'digest'"),
        (lambda d: d.pop("schema"), "no field 'schema'"),
    ],
)
def test_an_edited_manifest_is_refused(
    folder: Path, change: Callable[[dict[str, Any]], Any], words: str
) -> None:
    edited(folder, change)
    with pytest.raises(BundleError, match=words):
        load(folder, backend=CpuBackend())


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"text"', "{}"])
def test_a_manifest_that_is_none_is_refused(folder: Path, text: str) -> None:
    (folder / "manifest.json").write_text(text)
    with pytest.raises(BundleError, match="export the bundle again"):
        verify(folder)


def test_a_folder_without_a_manifest_is_no_bundle(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(BundleError, match="is not a bundle"):
            load(path, backend=CpuBackend())


@pytest.mark.parametrize("name", ["../secret", "/etc/hostname", "m1/../../secret", ""])
def test_file_names_outside_the_bundle_are_refused(folder: Path, name: str) -> None:
    (folder.parent / "secret").write_text("secret")
    manifest = verify(folder)
    rewritten(folder, replace(manifest, files={**manifest.files, name: "0" * 64}))
    with pytest.raises(BundleError, match="outside the bundle"):
        verify(folder)


def test_a_kernel_without_a_checksum_is_refused(folder: Path) -> None:
    manifest = verify(folder)
    files = {name: value for name, value in manifest.files.items() if name != "m8/kernel.cubin"}
    rewritten(folder, replace(manifest, files=files))
    with pytest.raises(BundleError, match=r"no checksum for m8/kernel\.cubin"):
        verify(folder)


def test_buckets_out_of_order_are_refused(folder: Path) -> None:
    manifest = verify(folder)
    rewritten(folder, replace(manifest, buckets=manifest.buckets[::-1]))
    with pytest.raises(BundleError, match="must rise"):
        verify(folder)


def test_a_plan_for_another_n_is_refused(folder: Path) -> None:
    manifest = verify(folder)
    first = manifest.buckets[0]
    wrong = replace(first, plan=replace(first.plan, n_tiles=99))
    rewritten(folder, replace(manifest, buckets=(wrong, *manifest.buckets[1:])))
    with pytest.raises(BundleError, match="99 tiles"):
        verify(folder)


@pytest.mark.parametrize(
    ("arch", "capability", "runs"),
    [
        ("sm_80", (8, 0), True),
        ("sm_80", (8, 6), True),
        ("sm_80", (9, 0), False),
        ("sm_86", (8, 0), False),
        ("sm_89", (8, 6), False),
        ("sm_90", (9, 0), True),
        ("sm_90a", (9, 0), True),
        ("sm_90a", (10, 0), False),
        ("sm_90", (8, 9), False),
    ],
)
def test_arch_must_fit_the_device(
    tmp_path: Path, arch: str, capability: tuple[int, int], runs: bool
) -> None:
    made = bucket(PROBLEM, 8, plan(PROBLEM, 8, 32, 1), arch=arch)
    target = write_bundle(tmp_path / "bundle", spec(PROBLEM, [made]))
    backend = CpuBackend(capability=capability)
    if runs:
        assert load(target, backend=backend).problem == PROBLEM
    else:
        with pytest.raises(BundleError, match=f"kernels for {arch} .* tune and export on that GPU"):
            load(target, backend=backend)


def test_too_little_shared_memory_is_refused(folder: Path) -> None:
    with pytest.raises(
        BundleError, match="needs 60000 bytes of shared memory and CPU allows 49152"
    ):
        load(folder, backend=CpuBackend(smem_per_cta=49_152))


class RefusingBackend(CpuBackend):
    """A backend whose driver is older than the cubin."""

    def load(self, cubin: bytes, entry: str, plan: LaunchPlan) -> LaunchPlan:
        raise DriverError("cuModuleLoadData failed: CUDA_ERROR_NO_BINARY_FOR_GPU.", code=209)


def test_a_driver_that_refuses_the_cubin_is_explained(folder: Path) -> None:
    with pytest.raises(BundleError, match=r"refused m1/kernel.cubin .* by NVRTC 13.0; update"):
        load(folder, backend=RefusingBackend())


def test_without_a_gpu_loading_says_what_is_missing(folder: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device here")
    with pytest.raises(BundleError, match="no CUDA device can be used here"):
        load(folder)
