"""verify: is a folder a whole, untampered bundle, and does a device run it? No GPU needed."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from ptxgen.arch import arch_named
from ptxgen.arguments import path as as_path
from ptxgen.bundle.c_header import runs_on_exactly
from ptxgen.bundle.manifest import MANIFEST_NAME, MAX_MANIFEST_BYTES, Manifest
from ptxgen.bundle.names import is_inside
from ptxgen.bundle.publish import kept_aside
from ptxgen.errors import ArchError, BundleError, NotABundleError

AGAIN = "Export the bundle again."


def verify(path: Path | str) -> Manifest:
    """Reads a bundle's manifest and checks every file against it.

    Raises:
        NotABundleError: the folder is none, or of another schema.
        BundleError: a file is missing or changed; says which.
    """
    folder = as_path(path, "bundle", error=BundleError)
    manifest = read_manifest(folder)
    for fault in file_faults(folder, manifest):
        raise BundleError(fault)
    return manifest


def file_faults(folder: Path, manifest: Manifest) -> Iterator[str]:
    """What is wrong with a bundle's files, a sentence or two each; nothing where all are whole."""
    for name in sorted(manifest.files):
        if fault := _file_fault(folder, name, manifest.files[name]):
            yield fault
    for name in _needed(manifest):
        if name not in manifest.files:
            yield f"{MANIFEST_NAME} in {folder} has no checksum for {name}. {AGAIN}"


def check_device(
    manifest: Manifest, name: str, capability: tuple[int, int], smem_per_cta: int
) -> None:
    """Raises BundleError where a device cannot run a bundle's kernels.

    Args:
        manifest: of the bundle.
        name: of the device.
        capability: its compute capability.
        smem_per_cta: most shared memory that a CTA may opt in to, in bytes.
    """
    try:
        arch = arch_named(manifest.arch)
    except ArchError as error:
        raise BundleError(f"the bundle cannot be loaded: {error}") from None
    major, minor = arch.capability
    same_major = capability[0] == major and capability[1] >= minor
    if not same_major or (runs_on_exactly(arch) and capability != arch.capability):
        raise BundleError(
            f"the bundle holds kernels for {manifest.arch} (compute capability {major}.{minor}) "
            f"and {name} has {capability[0]}.{capability[1]}; tune and export on that GPU."
        )
    for bucket in manifest.buckets:
        if bucket.plan.smem_bytes > smem_per_cta:
            raise BundleError(
                f"the kernel for batches up to {bucket.m_max} needs {bucket.plan.smem_bytes} bytes "
                f"of shared memory and {name} allows {smem_per_cta}; tune and export on that GPU."
            )


def read_manifest(folder: Path) -> Manifest:
    """The manifest, checked in itself; no other file is looked at.

    Raises:
        NotABundleError: the folder is no bundle, or one of another schema.
        BundleError: the manifest is damaged or cannot be read.
    """
    file = folder / MANIFEST_NAME
    try:
        if not stat.S_ISREG(file.stat().st_mode) or file.stat().st_size > MAX_MANIFEST_BYTES:
            raise NotABundleError(f"{file} is no manifest: no file, or a huge one. {AGAIN}")
        text = file.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        raise NotABundleError(
            f"{folder} is not a bundle: there is no {MANIFEST_NAME} in it. Name the folder that "
            f"`ptxtune export` wrote.{_recovery(folder)}"
        ) from None
    except OSError as error:
        raise BundleError(
            f"{file} cannot be read: {error.strerror or error}. Make the folder and its files "
            f"readable, or copy the bundle to a folder that you own."
        ) from None
    except UnicodeDecodeError as error:
        raise BundleError(f"{file} is not UTF-8 ({error}). {AGAIN}") from None
    try:
        return Manifest.from_json(text)
    except NotABundleError as error:
        raise NotABundleError(f"{folder}: {error}") from None
    except BundleError as error:
        raise BundleError(f"{folder}: {error}") from None


def _recovery(folder: Path) -> str:
    """Where the bundle is that an export was about to replace when its process died."""
    aside = None if os.path.lexists(folder) else kept_aside(folder)
    if aside is None:
        return ""
    return f" An export that was cut off left the older bundle in {aside}: rename it to have it."


def _needed(manifest: Manifest) -> list[str]:
    kernels = [name for bucket in manifest.buckets for name in bucket.files.values()]
    unpacking = [] if manifest.unpacking is None else [*manifest.unpacking.files.values()]
    return [manifest.self_test.file, *kernels, *unpacking]


def _file_fault(folder: Path, name: str, sha256: str) -> str:
    """What is wrong with one file, in words; empty where nothing is."""
    if not is_inside(name):
        return f"{MANIFEST_NAME} names the file {name!r:.300}, outside the bundle. {AGAIN}"
    try:
        with open(folder / name, "rb", opener=_opened) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return f"{name} of the bundle {folder} is no file. {AGAIN}"
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        return f"{name} of the bundle {folder} cannot be read ({error.strerror}). {AGAIN}"
    if found == sha256:
        return ""
    return (
        f"{name} of the bundle {folder} was changed after the export: sha256 {found[:16]}..., "
        f"and {MANIFEST_NAME} says {sha256[:16]}.... {AGAIN}"
    )


def _opened(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a pipe with no writer must not stop it
