"""Names of a bundle's files, as a manifest may give them."""

from __future__ import annotations

from pathlib import PurePosixPath


def is_inside(name: str) -> bool:
    """Whether a relative name leads to a file inside the folder, is written plainly, and prints."""
    path = PurePosixPath(name)
    plain = str(path) == name and bool(path.parts) and name.isprintable() and "\\" not in name
    return plain and not path.is_absolute() and ".." not in path.parts
