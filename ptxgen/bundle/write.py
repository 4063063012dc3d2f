"""write_bundle: exports tuned kernels as a folder of files, whole or not at all."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ptxgen.arch import arch_named
from ptxgen.arguments import path
from ptxgen.bundle import c_header, readme, selftest, unpacking
from ptxgen.bundle.manifest import (
    MANIFEST_NAME,
    Bucket,
    DeviceInfo,
    Manifest,
    ToolchainInfo,
)
from ptxgen.bundle.measurement import Measurement
from ptxgen.bundle.owned import remove_files
from ptxgen.bundle.publish import check_target, publish
from ptxgen.config import KernelConfig
from ptxgen.errors import BundleError
from ptxgen.outcome import Resources
from ptxgen.problem import MAX_M, Problem
from ptxgen.publish import advice, beside, folders_made, sync_folder, write_synced
from ptxgen.source import KernelSource

README_NAME = "README.md"
ELF_MAGIC = b"\x7fELF"


@dataclass(frozen=True, slots=True)
class BucketSpec:
    """One kernel to export: the config that serves batches of up to m_max, compiled.

    Attributes:
        m_max: largest batch.
        config: the winner's config.
        source: what the emitter made of it.
        ptx: PTX text, for study.
        cubin: machine code, as compiled.
        resources: of the cubin.
        measurement: time and error, measured or predicted; None for a config nobody timed.
        dequantize_first: dequantize + matmul is the faster way at measurement.m.
    """

    m_max: int
    config: KernelConfig
    source: KernelSource
    ptx: str
    cubin: bytes
    resources: Resources
    measurement: Measurement | None
    dequantize_first: bool = False


@dataclass(frozen=True, slots=True)
class UnpackingSpec:
    """The dequantize kernel to export: what was emitted, PTX text and machine code."""

    source: KernelSource
    ptx: str
    cubin: bytes


@dataclass(frozen=True, slots=True)
class BundleSpec:
    """What to export: one problem on one device, a kernel for each bucket (in any order).

    unpacking is needed where any bucket has dequantize_first.
    """

    problem: Problem
    buckets: tuple[BucketSpec, ...]
    device: DeviceInfo
    toolchain: ToolchainInfo
    unpacking: UnpackingSpec | None = None


def write_bundle(out_dir: Path | str, spec: BundleSpec, force: bool = False) -> Path:
    """Writes a bundle; see the bundle's own README for what is in it.

    Everything is written to a hidden folder beside out_dir, which is then renamed, so that out_dir
    is a whole bundle or is not there. Of two writers to one out_dir one fails.

    Args:
        out_dir: folder to create.
        spec: what to export.
        force: replace out_dir where it is an older bundle with nothing else in it, or empty.

    Returns:
        The absolute path of the folder.

    Raises:
        BundleError: out_dir exists, the spec is inconsistent, or the disk refused.
    """
    target = bundle_target(out_dir)
    _check_spec(spec)
    selftest.check_size(spec.problem)
    try:
        check_target(target, force)
        contents = _contents(spec)
        with folders_made(target.parent):
            _write(target, contents, force)
    except OSError as error:
        raise _disk_error(target, error) from None
    return target


def check_out_dir(out_dir: Path | str, force: bool = False) -> None:
    """Asks before anything is compiled whether write_bundle would be refused.

    Raises:
        BundleError: out_dir is taken, or cannot be written.
    """
    target = bundle_target(out_dir)
    try:
        check_target(target, force)
    except OSError as error:
        raise _disk_error(target, error) from None


def bundle_target(out_dir: Path | str) -> Path:
    """The absolute path of a bundle that is to be written. Raises BundleError for no path."""
    return path(out_dir, "bundle folder", error=BundleError).absolute()


def _check_spec(spec: BundleSpec) -> None:
    sizes = [bucket.m_max for bucket in spec.buckets]
    archs = {bucket.source.arch for bucket in spec.buckets}
    entries = {bucket.source.entry for bucket in spec.buckets}
    if not sizes or len(set(sizes)) != len(sizes) or not all(0 < m <= MAX_M for m in sizes):
        raise BundleError(
            f"buckets {sizes} cannot be exported: they must be different batches 1..{MAX_M}, "
            f"at least one. Name each M once."
        )
    if len(archs) != 1 or len(entries) != 1:
        raise BundleError(
            f"kernels for {', '.join(sorted(archs))} with entries {', '.join(sorted(entries))} do "
            f"not fit one bundle, which is for one arch. Export a bundle for each."
        )
    arch_named(archs.pop())
    if spec.unpacking is None and any(bucket.dequantize_first for bucket in spec.buckets):
        raise BundleError(
            "a bucket has dequantize_first and the bundle has no dequantize kernel; give it one "
            "(unpacking), or leave that bucket to its own kernel."
        )
    for bucket in spec.buckets:
        if not bucket.cubin.startswith(ELF_MAGIC):
            raise BundleError(
                f"the cubin of bucket {bucket.m_max} ({len(bucket.cubin)} bytes) is not an ELF "
                f"image; compile {bucket.config.key()} again (an empty compile cache helps)."
            )


def _contents(spec: BundleSpec) -> dict[str, bytes]:
    """Every file of the bundle, by relative name."""
    buckets = sorted(spec.buckets, key=lambda bucket: bucket.m_max)
    test = selftest.self_test(spec.problem)
    files = {selftest.EXPECTED_FILE: selftest.expected(spec.problem, test).astype("<f4").tobytes()}
    entries = []
    below = 0
    for bucket in buckets:
        names = _kernel_names(bucket.m_max, len(buckets) == 1)
        files[names["cu"]] = bucket.source.text.encode()
        files[names["ptx"]] = bucket.ptx.encode()
        files[names["cubin"]] = bucket.cubin
        entries.append(_bucket_entry(bucket, names, below))
        below = bucket.m_max
    if spec.unpacking is not None:
        names = unpacking.FILES
        files[names["cu"]] = spec.unpacking.source.text.encode()
        files[names["ptx"]] = spec.unpacking.ptx.encode()
        files[names["cubin"]] = spec.unpacking.cubin
    draft = _manifest(spec, tuple(entries), {})
    cubins = {bucket.m_max: bucket.cubin for bucket in buckets}
    files[c_header.HEADER_NAME] = c_header.header(draft, cubins).encode()
    files[c_header.EXAMPLE_NAME] = c_header.example(draft).encode()
    files[README_NAME] = readme.readme(draft).encode()
    sums = {name: hashlib.sha256(data).hexdigest() for name, data in sorted(files.items())}
    files[MANIFEST_NAME] = _manifest(spec, tuple(entries), sums).to_json().encode()
    return files


def _kernel_names(m_max: int, single: bool) -> dict[str, str]:
    folder = "" if single else f"m{m_max}/"
    return {kind: f"{folder}kernel.{kind}" for kind in ("cu", "ptx", "cubin")}


def _bucket_entry(bucket: BucketSpec, names: dict[str, str], below: int) -> Bucket:
    plan = bucket.source.plan
    return Bucket(
        m_max=bucket.m_max,
        config=bucket.config.to_dict(),
        config_key=bucket.config.key(),
        plan=plan,
        resources=bucket.resources,
        measurement=bucket.measurement,
        files=names,
        source_digest=bucket.source.digest(),
        self_test_m=selftest.batch_for(plan, bucket.m_max, below),
        dequantize_first=bucket.dequantize_first,
    )


def _manifest(spec: BundleSpec, buckets: tuple[Bucket, ...], files: dict[str, str]) -> Manifest:
    return Manifest(
        problem=spec.problem,
        arch=spec.buckets[0].source.arch,
        device=spec.device,
        toolchain=spec.toolchain,
        buckets=buckets,
        self_test=selftest.info(spec.problem),
        files=files,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        entry=spec.buckets[0].source.entry,
        unpacking=None if spec.unpacking is None else _unpacking(spec.unpacking),
    )


def _unpacking(spec: UnpackingSpec) -> unpacking.Unpacking:
    source = spec.source
    return unpacking.Unpacking(source.entry, source.plan, source.digest(), unpacking.FILES)


def _write(target: Path, contents: Mapping[str, bytes], force: bool) -> None:
    staging = beside(target)
    try:
        _write_files(staging, contents)
        publish(staging, target, force)
    finally:
        remove_files(staging, contents)  # nothing, where it was published


def _write_files(folder: Path, contents: Mapping[str, bytes]) -> None:
    folder.mkdir()
    folders = {folder}
    for name, data in contents.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        write_synced(path, data)
        folders.add(path.parent)
    for made in folders:
        sync_folder(made)


def _disk_error(target: Path, error: OSError) -> BundleError:
    return BundleError(
        f"cannot write the bundle {target}: {error.strerror or error} "
        f"({error.filename or target}): {advice(error)}. Nothing was left behind."
    )
