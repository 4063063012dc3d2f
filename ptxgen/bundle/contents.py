"""What a bundle holds, in short and whole: for those who look at one without a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ptxgen.arguments import path as as_path
from ptxgen.bundle.manifest import Bucket, Manifest
from ptxgen.bundle.owned import foreign_files
from ptxgen.bundle.verify import file_faults, read_manifest
from ptxgen.bundle.verify import verify as verified
from ptxgen.config import Scalar
from ptxgen.errors import BundleError
from ptxgen.problem import Problem


@dataclass(frozen=True, slots=True)
class BundledKernel:
    """One kernel of a bundle.

    Attributes:
        m_max: largest batch that it serves; the last kernel serves everything above too.
        config: family and knobs.
        config_key: the config in one readable line.
        registers: a thread.
        smem_bytes: dynamic shared memory of a CTA.
        time_us: median microseconds of a launch at a batch of timed_m; None where nobody timed it.
        timed_m: batch that was timed or predicted.
        predicted: time_us comes from the model.
        dequantize_first: dequantize + matmul is the faster way at timed_m.
    """

    m_max: int
    config: dict[str, Scalar]
    config_key: str
    registers: int
    smem_bytes: int
    time_us: float | None
    timed_m: int | None
    predicted: bool
    dequantize_first: bool


@dataclass(frozen=True, slots=True)
class BundleContents:
    """A bundle.

    Attributes:
        path: its folder.
        problem: what its kernels compute.
        arch: of the machine code, such as sm_90a.
        device: name of the GPU that it was made for.
        kernels: by m_max, rising.
        ptxtune, nvrtc: versions that made it.
        created_at: ISO 8601 time.
        files: relative names of the files that its manifest lists.
        foreign: names in its folder that the manifest does not list; no kernel reads them.
        faults: what is wrong with its files, a sentence or two each; empty where all are whole.
    """

    path: Path
    problem: Problem
    arch: str
    device: str
    kernels: tuple[BundledKernel, ...]
    ptxtune: str
    nvrtc: str
    created_at: str
    files: tuple[str, ...]
    foreign: tuple[str, ...]
    faults: tuple[str, ...] = ()


def verify(path: Path | str) -> BundleContents:
    """Checks a bundle without a GPU: its manifest, and the sha256 of every file.

    Args:
        path: folder of the bundle.

    Returns:
        What is in it; its faults are empty.

    Raises:
        NotABundleError: the folder is no bundle, or one of another schema.
        BundleError: the manifest is damaged, or a file is missing or changed; says which.
    """
    folder = as_path(path, "the bundle", error=BundleError)
    return _contents(folder, verified(folder), ())


def inspect(path: Path | str) -> BundleContents:
    """What a bundle holds, with everything that is wrong with its files instead of an error.

    Raises:
        NotABundleError: the folder is no bundle, or one of another schema.
        BundleError: the manifest itself is damaged.
    """
    folder = as_path(path, "the bundle", error=BundleError)
    manifest = read_manifest(folder)
    return _contents(folder, manifest, tuple(file_faults(folder, manifest)))


def _contents(folder: Path, manifest: Manifest, faults: tuple[str, ...]) -> BundleContents:
    return BundleContents(
        path=folder,
        problem=manifest.problem,
        arch=manifest.arch,
        device=manifest.device.name,
        kernels=tuple(_kernel(bucket) for bucket in manifest.buckets),
        ptxtune=manifest.toolchain.ptxtune,
        nvrtc=manifest.toolchain.nvrtc,
        created_at=manifest.created_at,
        files=tuple(sorted(manifest.files)),
        foreign=foreign_files(folder, manifest.files),
        faults=faults,
    )


def _kernel(bucket: Bucket) -> BundledKernel:
    timed = bucket.measurement
    return BundledKernel(
        m_max=bucket.m_max,
        config=bucket.config,
        config_key=bucket.config_key,
        registers=bucket.resources.registers,
        smem_bytes=bucket.plan.smem_bytes,
        time_us=None if timed is None else timed.time_us,
        timed_m=None if timed is None else timed.m,
        predicted=timed is not None and timed.predicted,
        dequantize_first=bucket.dequantize_first,
    )
