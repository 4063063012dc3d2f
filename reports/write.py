"""Writes report files whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from ptxgen.errors import PtxtuneError


class ReportError(PtxtuneError):
    """A report file that cannot be written."""


def write_text(path: Path, text: str) -> Path:
    """Writes UTF-8 text beside the target and renames it over the target.

    Raises:
        ReportError: the folder is unwritable, or the disk is full; the target is as it was.
    """
    temporary: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except OSError as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        raise ReportError(
            f"{str(path)!r} cannot be written ({error.strerror}); free some space or name another "
            f"file. Nothing was changed."
        ) from error
    return path
