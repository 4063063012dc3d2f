"""Files that a user named: each appears whole, and none replaces another unless that was asked for.

The one place that writes such files, whatever is in them.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from ptxgen.arguments import path as as_path
from ptxgen.errors import FileError
from ptxgen.publish import (
    advice,
    beside,
    check_writable,
    folders_made,
    rename_new,
    sync_folder,
    write_synced,
)

STREAM_FOLDERS = ("/dev", "/dev/fd", "/proc/self/fd")
"""Names in them stand for something that is open already, such as /dev/stdout."""


def check_outputs(paths: Iterable[Path | None], *, replace: bool) -> None:
    """Asks before the work whether write_file would be refused; None is passed over.

    Raises:
        FileError: a file or folder is in the way, may not be written, or is named twice.
    """
    seen: set[str] = set()
    for path in paths:
        if path is None:
            continue
        named = as_path(path, "the file", error=FileError)
        try:
            if _is_stream(named):
                continue
            target = _destination(named, replace)
            check_writable(target.parent)
        except OSError as error:
            raise _refusal(named, error) from None
        if (real := os.path.realpath(target)) in seen:
            raise FileError(f"{named} is named for two files; name another for one of them.")
        seen.add(real)


def write_file(path: Path, data: str | bytes, *, replace: bool = False) -> Path:
    """Writes a file in one step: whole and new, or not at all.

    Its mode is what umask leaves of 0666, and that of the file which it replaces. Folders above it
    are made. A link is followed, and what is no file, such as /dev/stdout or a pipe, is written to.

    Args:
        path: the file.
        data: bytes, or text that becomes UTF-8 with its line ends as they are.
        replace: whether a file that is there already is replaced.

    Returns:
        The path.

    Raises:
        FileError: there is something already, or the disk refused; all is as it was.
    """
    content = data.encode() if isinstance(data, str) else data
    named = as_path(path, "the file", error=FileError)
    try:
        if _is_stream(named):
            named.write_bytes(content)
        else:
            _write(_destination(named, replace), content, replace)
    except OSError as error:
        raise _refusal(named, error) from error
    return path


def _write(target: Path, content: bytes, replace: bool) -> None:
    mode = stat.S_IMODE(target.stat().st_mode) & 0o777 if os.path.lexists(target) else None
    staging = beside(target)
    with folders_made(target.parent):
        try:
            write_synced(staging, content, mode)
            if replace:
                os.replace(staging, target)
            else:
                rename_new(staging, target)
        except BaseException:
            with contextlib.suppress(OSError):
                staging.unlink()
            raise
        sync_folder(target.parent)


def _destination(path: Path, replace: bool) -> Path:
    """Where the file is to be; raises OSError or FileError for what is in the way there."""
    if not os.path.lexists(path):
        return path
    if path.is_dir():
        raise FileError(f"{path} is a folder; name a file. Nothing was changed.")
    if not replace:
        raise FileExistsError
    target = Path(os.path.realpath(path))
    if os.path.lexists(target) and not target.is_file():
        raise FileError(f"{path} is no plain file; name another. Nothing was changed.")
    return target


def _is_stream(path: Path) -> bool:
    """Whether writing there replaces nothing: a device, a pipe, a socket, an open descriptor."""
    if str(path.parent) in STREAM_FOLDERS:
        return os.path.lexists(path)
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    return stat.S_ISCHR(mode) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _refusal(path: Path, error: OSError) -> FileError:
    if isinstance(error, FileExistsError):
        return FileError(
            f"{path} exists already and is kept; name another file, or replace it (--force)."
        )
    return FileError(
        f"{path} cannot be written ({error.strerror or error}): {advice(error)}. Nothing was "
        f"changed."
    )
