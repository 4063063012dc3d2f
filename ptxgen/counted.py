"""Counted: a number and its noun, so that one of them is not told as several."""

from __future__ import annotations


def counted(count: int, one: str, several: str = "") -> str:
    """Such as "1 search" or "3 searches"; the plural is the singular with an s unless given."""
    return f"{count} {one if count == 1 else several or one + 's'}"
