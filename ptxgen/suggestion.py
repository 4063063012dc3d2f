"""Suggestions: which known names an unknown word may have meant. Text alone, so it is cheap."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

CUTOFF = 0.6
"""Share of matching characters; below it a suggestion is more confusing than helpful."""

MOST = 3


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """ "did you mean A or B? ", or nothing where no known name is close.

    Case, hyphens, dots, blanks and underscores do not count: llama3-8b is close to llama-3-8b.
    """
    names = {_bare(name): name for name in known}
    wanted = _bare(word)
    found = [bare for bare in names if wanted and (bare in wanted or wanted in bare)]
    found.sort(key=lambda bare: abs(len(bare) - len(wanted)))
    found += difflib.get_close_matches(wanted, names, n=MOST, cutoff=CUTOFF)
    close = list(dict.fromkeys(names[bare] for bare in found))[:MOST]
    return f"did you mean {' or '.join(close)}? " if close else ""


def _bare(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())
