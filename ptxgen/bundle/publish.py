"""Puts a finished bundle in place: under a new name, or instead of an older one, never lost.

Where kernel and file system can, old and new exchange their names in one step. Elsewhere the old
bundle is renamed to a hidden name beside, the new one takes its place, and the old one goes; a
process that dies in between leaves the old bundle there, and `kept_aside` finds it.
"""

from __future__ import annotations

import os
from pathlib import Path

from ptxgen.bundle.owned import check_replaceable, listed_files, remove_files
from ptxgen.errors import BundleError
from ptxgen.publish import beside, check_writable, left_beside, rename_new, swap, sync_folder

ASIDE = "old"


def check_target(target: Path, force: bool) -> None:
    """Asks before the work whether publish would be refused.

    Args:
        target: absolute path of the bundle.
        force: whether an older bundle there is to be replaced.

    Raises:
        BundleError: something is in the way; says what, and by which file.
        OSError: its folder may not be read or written to.
    """
    check_writable(target.parent)
    if os.path.lexists(target):
        if not force:
            raise _taken(target)
        check_replaceable(target)


def publish(staging: Path, target: Path, force: bool) -> None:
    """Gives a finished bundle its name.

    Args:
        staging: folder of the finished bundle, beside target.
        target: its name.
        force: replace an older bundle there.

    Raises:
        BundleError: something is in the way, and was left as it is.
        OSError: the file system refused; target is as it was.
    """
    if not force or not os.path.lexists(target):
        try:
            rename_new(staging, target)
        except FileExistsError:
            if not force:
                raise _taken(target) from None
            _replace(staging, target)
    else:
        _replace(staging, target)
    sync_folder(target.parent)


def kept_aside(target: Path) -> Path | None:
    """The older bundle that an export to target put aside and did not live to replace."""
    found = left_beside(target, ASIDE)
    return found[0] if found else None


def _replace(staging: Path, target: Path) -> None:
    check_replaceable(target)
    if not swap(staging, target):
        _replace_in_steps(staging, target)
        return
    try:
        check_replaceable(staging, shown=target)  # what came into it since the last look
    except BaseException:
        swap(staging, target)
        raise
    remove_files(staging, listed_files(staging))


def _replace_in_steps(staging: Path, target: Path) -> None:
    aside = beside(target, ASIDE)
    os.rename(target, aside)
    try:
        check_replaceable(aside, shown=target)
        rename_new(staging, target)
    except BaseException:
        _put_back(aside, target)
        raise
    remove_files(aside, listed_files(aside))


def _put_back(aside: Path, target: Path) -> None:
    try:
        rename_new(aside, target)
    except OSError as error:
        raise BundleError(
            f"{target} could not be replaced, and the bundle that was there could not be put back "
            f"({error.strerror or error}): it is whole in {aside}. Rename that folder to have it."
        ) from None


def _taken(target: Path) -> BundleError:
    return BundleError(
        f"{target} exists already; choose another folder, or overwrite it (--force)."
    )
