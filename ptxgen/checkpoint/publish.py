"""A folder that appears whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ptxgen.errors import CheckpointError
from ptxgen.publish import rename_new

SPARE_BYTES = 64 << 20


@contextlib.contextmanager
def staged_folder(out: Path, marker: str, num_bytes: int, force: bool = False) -> Iterator[Path]:
    """A temporary folder beside out, which is renamed to out when the block ends well.

    Args:
        out: the folder to create.
        marker: a file that tells an older folder of the same kind.
        num_bytes: that will be written, about; a disk with less room is refused first.
        force: replace an older folder that has the marker.

    Raises:
        CheckpointError: out exists, is no such folder, or the disk refused.
    """
    target = out.expanduser().absolute()
    _check_target(target, marker, force)
    staging: Path | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(target.parent).free
        if free < num_bytes + SPARE_BYTES:
            raise CheckpointError(
                f"{target} needs about {num_bytes / 1e9:.1f} GB and the disk has {free / 1e9:.1f} "
                f"GB free; choose a folder on another disk."
            )
        staging = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        yield staging
        staging.chmod(0o755)  # mkdtemp's folders are private; a checkpoint is meant to be read
        if force:
            _replace(staging, target)
        else:
            rename_new(staging, target)  # fails where a folder has appeared since
    except OSError as error:
        full = error.errno == errno.ENOSPC
        why = "the disk is full; free some space" if full else "choose another folder"
        raise CheckpointError(
            f"cannot write {target}: {error.strerror or error}: {why}. Nothing was left behind."
        ) from error
    finally:
        if staging is not None:
            shutil.rmtree(staging, ignore_errors=True)


def _check_target(target: Path, marker: str, force: bool) -> None:
    if not target.exists() and not target.is_symlink():
        return
    if not force:
        raise CheckpointError(
            f"{target} exists already; choose another folder, or overwrite it (--force)."
        )
    folder = target.is_dir() and not target.is_symlink()
    if not folder or not ((target / marker).is_file() or not any(target.iterdir())):
        raise CheckpointError(
            f"{target} exists and was not written by ptxtune convert (it has no {marker}), so it "
            f"is not overwritten; choose another folder."
        )


def _replace(staging: Path, target: Path) -> None:
    """Renames staging to target; an older folder there is put aside first, and back on failure."""
    if not target.exists():
        staging.rename(target)
        return
    aside = Path(tempfile.mkdtemp(prefix=f".{target.name}.old.", dir=target.parent))
    target.rename(aside / "old")
    try:
        staging.rename(target)
    except OSError:
        (aside / "old").rename(target)
        raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)
