"""What may be replaced: a folder that is provably a bundle of ours, with nothing else in it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from ptxgen.bundle.manifest import KIND, MANIFEST_NAME, MAX_MANIFEST_BYTES
from ptxgen.bundle.names import is_inside
from ptxgen.errors import BundleError
from ptxgen.json_text import json_value


def check_replaceable(folder: Path, shown: Path | None = None) -> None:
    """Raises BundleError where a folder is not empty and holds anything but a bundle's files.

    Args:
        folder: to be replaced.
        shown: its name in the error, where it was put aside.

    Raises:
        BundleError: it is no folder, has no manifest of ours, or holds a file or folder that the
            manifest does not list, which is named.
        OSError: it cannot be read.
    """
    shown = shown or folder
    way_out = "so it is not overwritten; choose another folder"
    if folder.is_symlink() or not folder.is_dir():
        raise BundleError(f"{shown} exists and is not a bundle (it is no folder), {way_out}.")
    names = listed_files(folder)
    foreign = next((name for name in _entries(folder) if not _belongs(folder, name, names)), None)
    if foreign is None:
        return
    if not names:
        raise BundleError(
            f"{shown} exists and is not a bundle (it holds {foreign!r}, and no {MANIFEST_NAME} of "
            f"ours), {way_out}."
        )
    raise BundleError(
        f"{shown} is a bundle, but {foreign!r} in it is not of the bundle (its {MANIFEST_NAME} "
        f"does not list it), {way_out}, or move that file elsewhere."
    )


def listed_files(folder: Path) -> frozenset[str]:
    """Relative names of a bundle's files, its manifest among them; none where it is no bundle."""
    file = folder / MANIFEST_NAME
    if file.is_symlink() or not file.is_file() or file.stat().st_size > MAX_MANIFEST_BYTES:
        return frozenset()
    try:
        found = json_value(file.read_bytes())
    except ValueError:
        return frozenset()
    if not isinstance(found, dict) or found.get("kind") != KIND:
        return frozenset()
    files = found.get("files")
    if not isinstance(files, dict) or not all(is_inside(name) for name in files):
        return frozenset()
    return frozenset([*files, MANIFEST_NAME])


def foreign_files(folder: Path, listed: Iterable[str]) -> tuple[str, ...]:
    """Names in a bundle's folder that are not of the bundle; those of folders stand for all inside.

    A folder that cannot be read has none.
    """
    names = frozenset([*listed, MANIFEST_NAME])
    found: list[str] = []
    try:
        for name in _entries(folder):
            inside = name.startswith(tuple(item for item in found if item.endswith("/")))
            if not inside and not _belongs(folder, name, names):
                found.append(f"{name}/" if (folder / name).is_dir() else name)
    except OSError:
        return ()
    return tuple(found)


def remove_files(folder: Path, names: Iterable[str]) -> None:
    """Removes a bundle's files, then the folders that this leaves empty; all else stays."""
    folders = {folder}
    for name in names:
        path = folder / name
        with contextlib.suppress(OSError, ValueError):
            path.unlink()
        folders |= {folder / part for part in PurePosixPath(name).parents}
    for path in sorted(folders, key=lambda item: len(item.parts), reverse=True):
        with contextlib.suppress(OSError):
            path.rmdir()


def _entries(folder: Path, inside: str = "") -> Iterator[str]:
    """Relative names of all that is in a folder, in order; a folder before what is in it."""
    with os.scandir(folder / inside) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        name = f"{inside}{entry.name}"
        yield name
        if entry.is_dir(follow_symlinks=False):
            yield from _entries(folder, f"{name}/")


def _belongs(folder: Path, name: str, names: frozenset[str]) -> bool:
    path = folder / name
    if path.is_symlink():
        return False
    if path.is_dir():
        return any(listed.startswith(f"{name}/") for listed in names)
    return name in names and path.is_file()
