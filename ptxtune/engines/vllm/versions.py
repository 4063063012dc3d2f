"""Which vLLM the plugin knows; another is left alone, with one line."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KnownVersion:
    """A release of vLLM whose interface is known.

    Attributes:
        release: (major, minor).
        how: how it is known, as the log says it.
    """

    release: tuple[int, int]
    how: str


KNOWN = (
    KnownVersion((0, 26), "run on an H200"),
    KnownVersion((0, 33), "read from its files"),
)


def known_version(text: str) -> KnownVersion | None:
    """The known release that a version such as "0.26.0" or "0.26.1+cu130" belongs to."""
    found = re.match(r"(\d+)\.(\d+)", text)
    if found is None:
        return None
    release = (int(found[1]), int(found[2]))
    return next((known for known in KNOWN if known.release == release), None)


def unknown_text(text: str) -> str:
    """Why the plugin does nothing, in one line."""
    names = ", ".join(f"{major}.{minor}" for major, minor in (k.release for k in KNOWN))
    return (
        f"ptxtune: vLLM {text or 'of unknown version'} is none of those known ({names}); serving "
        f"goes on with vLLM's own kernels"
    )
