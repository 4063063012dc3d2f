"""verify: is a folder a whole, untampered bundle, and does a device run it? No GPU needed."""

from __future__ import annotations

import hashlib
from pathlib import Path, PurePosixPath

from ptxgen.arch import arch_named
from ptxgen.arguments import path as as_path
from ptxgen.bundle.c_header import runs_on_exactly
from ptxgen.bundle.manifest import MANIFEST_NAME, Manifest
from ptxgen.errors import ArchError, BundleError

AGAIN = "Export the bundle again."


def verify(path: Path | str) -> Manifest:
    """Reads a bundle's manifest and checks every file against it.

    Raises:
        BundleError: no bundle, another schema, or a file is missing or changed; says which.
    """
    folder = as_path(path, "bundle", error=BundleError)
    manifest = _read_manifest(folder)
    for name in sorted(manifest.files):
        _check_file(folder, name, manifest.files[name])
    for name in _needed(manifest):
        if name not in manifest.files:
            raise BundleError(f"{MANIFEST_NAME} in {folder} has no checksum for {name}. {AGAIN}")
    return manifest


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


def _read_manifest(folder: Path) -> Manifest:
    try:
        text = (folder / MANIFEST_NAME).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BundleError(
            f"{folder} is not a bundle: there is no {MANIFEST_NAME} in it. Name the folder that "
            f"`ptxtune export` wrote."
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise BundleError(f"{folder / MANIFEST_NAME} cannot be read ({error}). {AGAIN}") from None
    return Manifest.from_json(text)


def _needed(manifest: Manifest) -> list[str]:
    kernels = [name for bucket in manifest.buckets for name in bucket.files.values()]
    unpacking = [] if manifest.unpacking is None else [*manifest.unpacking.files.values()]
    return [manifest.self_test.file, *kernels, *unpacking]


def _check_file(folder: Path, name: str, sha256: str) -> None:
    parts = PurePosixPath(name).parts
    if not parts or PurePosixPath(name).is_absolute() or ".." in parts or "\\" in name:
        raise BundleError(f"{MANIFEST_NAME} names the file {name!r}, outside the bundle. {AGAIN}")
    try:
        with (folder / name).open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise BundleError(
            f"{name} of the bundle {folder} cannot be read ({error.strerror}). {AGAIN}"
        ) from None
    if found != sha256:
        raise BundleError(
            f"{name} of the bundle {folder} was changed after the export: sha256 {found[:16]}..., "
            f"and {MANIFEST_NAME} says {sha256[:16]}.... {AGAIN}"
        )
