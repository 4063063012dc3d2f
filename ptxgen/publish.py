"""Puts what was written in place: names that appear whole, and never in place of something else.

`rename` replaces files, and empty folders, without a word, and looking first helps against nobody
who comes in between. So a new name is made by the one call that fails where there is one:
renameat2(RENAME_NOREPLACE) on Linux, renamex_np(RENAME_EXCL) on macOS. Where the kernel or the
file system knows neither (NFS, FAT, old kernels), a file is linked (link fails where the name is
taken), and a folder takes its name by mkdir (which fails likewise) and then replaces that empty
folder, which is all that rename of a folder can replace. Without links a file takes its name by
O_EXCL.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
import sys
import uuid
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

UNSUPPORTED = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP}
"""What a kernel or file system says that does not know the call or its flag."""

NO_CALL = UNSUPPORTED | {errno.EPERM}
"""Some containers answer EPERM to every call that they do not know."""

NO_LINKS = UNSUPPORTED | {errno.EPERM, errno.EMLINK, errno.EXDEV}
"""What a file system says that has no hard links."""

AT_FDCWD = -100
NEW, SWAP = "new", "swap"
LINUX_FLAGS = {NEW: 1, SWAP: 2}  # RENAME_NOREPLACE, RENAME_EXCHANGE
MACOS_FLAGS = {NEW: 4, SWAP: 2}  # RENAME_EXCL, RENAME_SWAP

SHOWN_NAME = 40
"""Characters of a target's name that a temporary one repeats: in UTF-8 always short enough."""

Renamer = Callable[[Path, Path, str], bool]


def rename_new(source: Path, target: Path) -> None:
    """Renames a file or folder to a name that is free, in the same folder or file system.

    Of several processes that rename to one name exactly one succeeds.

    Raises:
        FileExistsError: there is something at target, if only a link that leads nowhere.
        OSError: the file system refused; source is where it was.
    """
    if _kernel_rename()(source, target, NEW):
        return
    if stat.S_ISDIR(source.lstat().st_mode):
        _rename_folder(source, target)
    else:
        _rename_file(source, target)


def swap(one: Path, other: Path) -> bool:
    """Exchanges two names in one step; False where kernel or file system cannot. Raises OSError."""
    return _kernel_rename()(one, other, SWAP)


def beside(target: Path, purpose: str = "new") -> Path:
    """A hidden name in the target's folder that nobody else uses, such as .bundle.1f0c....new"""
    return target.with_name(f".{target.name[:SHOWN_NAME]}.{uuid.uuid4().hex}.{purpose}")


def left_beside(target: Path, purpose: str) -> list[Path]:
    """What processes that ended before their time have left under such names."""
    start, end = f".{target.name[:SHOWN_NAME]}.", f".{purpose}"
    try:
        names = sorted(os.listdir(target.parent))
    except OSError:
        return []
    found = [name for name in names if name.startswith(start) and name.endswith(end)]
    return [target.with_name(name) for name in found]


@contextlib.contextmanager
def folders_made(folder: Path) -> Iterator[None]:
    """Makes a folder and those above it; takes back the ones it made where the body fails."""
    missing = [path for path in (folder, *folder.parents) if not os.path.lexists(path)]
    try:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except FileExistsError:  # as mkdir calls a file that is in the way
            raise _error(errno.ENOTDIR, folder) from None
        yield
    except BaseException:
        for path in missing:
            with contextlib.suppress(OSError):  # only empty ones go
                path.rmdir()
        raise


def check_writable(folder: Path) -> None:
    """Raises OSError where a folder cannot be made or written to; nothing is created."""
    place = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not place.is_dir():
        raise _error(errno.ENOTDIR, place)
    if not os.access(place, os.W_OK | os.X_OK):  # also where the file system is read-only
        raise _error(errno.EACCES, place)


def write_synced(path: Path, data: bytes, mode: int | None = None) -> None:
    """Writes a new file to the disk; its mode is what umask leaves of 0666, or the given one.

    Raises:
        OSError: it exists, or the disk refused; an unfinished file is then left to the caller.
    """
    with path.open("xb") as file:
        if mode is not None:
            os.fchmod(file.fileno(), mode)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder last; some file systems cannot, which is no fault of the write.

    Raises:
        OSError: the disk failed.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
    finally:
        os.close(descriptor)


def advice(error: OSError) -> str:
    """What a user can do about a refusal to write, for the end of a sentence."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "the disk is full; free some space or choose a folder on another disk"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "it may not be written to; choose a folder that you own"
    if error.errno == errno.ENAMETOOLONG:
        return "choose a shorter name"
    return "choose another folder, or repair the disk"


def _rename_folder(source: Path, target: Path) -> None:
    os.mkdir(target)  # takes the name, or fails
    try:
        os.rename(source, target)
    except OSError as error:
        os.rmdir(target)  # fails where somebody wrote there: then it is theirs
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.EACCES):
            raise
        # A file system whose rename replaces no folder at all, not even an empty one.
        os.rename(source, target)


def _rename_file(source: Path, target: Path) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except FileExistsError:
        # NFS may repeat a request whose answer was lost: then the name is taken by this very file.
        if not os.path.samestat(source.lstat(), target.lstat()):
            raise
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        try:
            os.replace(source, target)
        except OSError:
            os.unlink(target)
            raise
        return
    os.unlink(source)


@cache
def _kernel_rename() -> Renamer:
    """The kernel's rename with flags; one that is never supported where there is none."""
    library = ctypes.CDLL(None, use_errno=True)
    if sys.platform == "darwin":
        call = getattr(library, "renamex_np", None)
        return _never if call is None else _with_flags(call, MACOS_FLAGS, ())
    call = getattr(library, "renameat2", None)  # glibc 2.28, musl 1.2.6
    return _never if call is None else _with_flags(call, LINUX_FLAGS, (AT_FDCWD,))


def _with_flags(
    call: Callable[..., int], flags: dict[str, int], folder: tuple[int, ...]
) -> Renamer:
    def renamed(source: Path, target: Path, how: str) -> bool:
        """False where it is not supported. Raises OSError where it is and failed."""
        names = (*folder, os.fsencode(source), *folder, os.fsencode(target))
        if call(*names, ctypes.c_uint(flags[how])) == 0:
            return True
        number = ctypes.get_errno()
        if number in NO_CALL:
            return False
        raise OSError(number, os.strerror(number), str(source), None, str(target))

    return renamed


def _error(number: int, path: Path) -> OSError:
    return OSError(number, os.strerror(number), str(path))


def _never(_source: Path, _target: Path, _how: str) -> bool:
    return False
