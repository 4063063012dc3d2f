"""Arguments: what a caller passed, checked and turned into a plain Python value, in one place.

Integers may be numpy's; a float is refused even where its value is whole (64.0), and so is a bool.
Flags are bools, numpy's included: a word such as "no" is true in Python and hence refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Integral, Real
from os import PathLike, fsencode, fspath
from pathlib import Path
from typing import Any

import numpy as np

from ptxgen.errors import ArgumentError, PtxtuneError
from ptxgen.suggestion import did_you_mean

Error = type[PtxtuneError]


def as_int(value: Any) -> int | None:
    """The integer, numpy's included; None for anything else: bools, floats, words."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        return None
    return int(value)


def integer(
    value: Any, name: str, *, least: int | None = None, error: Error = ArgumentError
) -> int:
    """An integer of at least `least`. Raises the error where the value is none."""
    found = as_int(value)
    if found is None or (least is not None and found < least):
        limit = "" if least is None else f" of at least {least}"
        raise error(f"{name} = {shown(value)} must be an integer{limit}.")
    return found


def real(value: Any, name: str, *, error: Error = ArgumentError) -> float:
    """A finite number. Raises the error for bools, words, NaN and infinities."""
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise error(f"{name} = {shown(value)} must be a number.")
    return float(value)


def flag(value: Any, name: str, *, error: Error = ArgumentError) -> bool:
    """A bool, numpy's included. Raises the error for anything else, such as "no", 0 or 1."""
    if not isinstance(value, (bool, np.bool_)):
        raise error(f"{name} = {shown(value)} must be True or False.")
    return bool(value)


def choice(value: Any, name: str, choices: Iterable[str], *, error: Error = ArgumentError) -> str:
    """One of the words. Raises the error with all of them, and the closest."""
    known = tuple(choices)
    if isinstance(value, str) and value in known:
        return str(value)  # also of an enum whose members are words
    hint = did_you_mean(value, known) if isinstance(value, str) else ""
    raise error(f"{name} {shown(value)} is not supported; {hint}choose one of {', '.join(known)}.")


def choices_of(value: Any, name: str, choices: Iterable[str]) -> tuple[str, ...]:
    """One word, or several in a sequence. Raises ArgumentError for others, or none."""
    known = tuple(choices)
    words = (value,) if isinstance(value, str) else _items(value, name)
    if not words:
        raise ArgumentError(f"{name} names nothing; choose of {', '.join(known)}.")
    return tuple(choice(word, name, known) for word in words)


def integers(value: Any, name: str) -> tuple[int, ...]:
    """One integer, or several in a sequence, a range or an array. Raises ArgumentError."""
    single = as_int(value)
    if single is not None:
        return (single,)
    if isinstance(value, (str, bytes)):
        raise ArgumentError(
            f"{name} = {shown(value)} must be an integer or several in a list, not a string."
        )
    return tuple(integer(item, name) for item in _items(value, name))


def path(value: Any, name: str, *, error: Error = ArgumentError) -> Path:
    """A path, with ~ and ~user expanded.

    Raises:
        error: it is no path, is empty, holds a NUL character, or ~user is not known.
    """
    if not isinstance(value, (str, PathLike)) or not isinstance(fspath(value), str):
        raise error(f"{name} = {shown(value)} must be a path.")
    text = fspath(value)
    if not text or "\0" in text:
        raise error(f"{name} = {shown(value)} is no path: it is empty or holds a NUL character.")
    try:
        fsencode(text)
        return Path(text).expanduser()
    except UnicodeError:
        raise error(
            f"{name} = {shown(value)} is no path: it holds half of a surrogate pair."
        ) from None
    except RuntimeError as problem:
        raise error(
            f"{name} = {shown(value)} is no path: the home folder is not known ({problem}); write "
            f"it out in full."
        ) from None


def text_of(value: Any, name: str, *, error: Error = ArgumentError) -> str:
    """A string. Raises the error for anything else."""
    if not isinstance(value, str):
        raise error(f"{name} = {shown(value)} must be a string.")
    return value


def _items(value: Any, name: str) -> tuple[Any, ...]:
    try:
        return tuple(value)
    except TypeError:
        raise ArgumentError(
            f"{name} = {shown(value)} is neither one value nor a list of them."
        ) from None


SHOWN_CHARS = 80


def shown(value: Any) -> str:
    """A value as errors show it: its repr, cut where it is long."""
    try:
        text = repr(value)
    except ValueError:  # an integer of thousands of digits, which Python does not write out
        text = f"an integer of {value.bit_length()} bits"
    return text if len(text) <= SHOWN_CHARS else text[: SHOWN_CHARS - 3] + "..."
