"""Paths as users name them: `~` in front, and everything that no file system takes refused."""

from __future__ import annotations

import os
from pathlib import Path

from ptxgen.errors import FileError


def user_path(named: str | os.PathLike[str], what: str) -> Path:
    """The path of a file or folder that a user named, `~` and `~user` expanded; may not exist.

    Args:
        named: as the user wrote it.
        what: what it is to be, for the error: such as "--out".

    Raises:
        FileError: no such user, or characters that no file name can hold.
    """
    text = os.fspath(named)
    try:
        if "\0" in text:
            raise ValueError("it holds a NUL")
        os.fsencode(text)
        return Path(text).expanduser()
    except (RuntimeError, ValueError) as error:  # RuntimeError: ~user of nobody
        reason = "half of a surrogate pair" if isinstance(error, UnicodeError) else str(error)
        raise FileError(
            f"{what} {text!r:.300} is no path ({reason.rstrip('.')}); write it out in full."
        ) from None
