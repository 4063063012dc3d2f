"""What a folder or file that a user names holds: a bundle of ours, or a checkpoint."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from ptxgen.bundle.manifest import MANIFEST_NAME
from ptxgen.errors import FileError, NotABundleError

CHECKPOINT_FILE = "config.json"
GGUF = ".gguf"


class FolderKind(StrEnum):
    """What is in a folder, by the one file that every such folder has."""

    BUNDLE = "bundle"
    CHECKPOINT = "checkpoint"


def folder_kind(folder: Path) -> FolderKind:
    """What a folder holds; a manifest decides, whatever else is there.

    Raises:
        NotABundleError: neither a bundle nor a checkpoint.
        FileError: it may not be entered.
    """
    try:
        if (folder / MANIFEST_NAME).exists():
            return FolderKind.BUNDLE
        if (folder / CHECKPOINT_FILE).exists() or (folder.suffix == GGUF and folder.is_file()):
            return FolderKind.CHECKPOINT
    except OSError as error:
        raise FileError(
            f"{folder} cannot be looked into: {error.strerror or error}. Make it readable, or copy "
            f"it to a folder that you own."
        ) from None
    raise NotABundleError(
        f"{folder} is not a bundle: there is no {MANIFEST_NAME} in it. Name the folder that "
        f"`ptxtune export` wrote."
    )
