"""JSON from outside: parsed whole, or refused with a reason: a value or one PtxtuneError."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from ptxgen.errors import PtxtuneError

MAX_DEPTH = 64
"""Far deeper than any file of ours, and far from Python's own limit of recursion."""

MAX_DIGITS = 20
"""No integer of ours is longer; longer ones overflow floats and databases, or take minutes."""


def parse_json(text: str | bytes, where: str, hint: str, *, error: type[PtxtuneError]) -> Any:
    """The value of a JSON text, as json_value reads it.

    Args:
        text: of the document; bytes are UTF-8.
        where: names the source in errors.
        hint: the way out, which ends the message.
        error: what is raised.

    Raises:
        error: see json_value.
    """
    try:
        return json_value(text)
    except ValueError as problem:
        raise error(f"{where} is not JSON that can be read ({problem}); {hint}") from None


def json_value(text: str | bytes) -> Any:
    """The value of one JSON document that every later step can take as it is.

    Raises:
        ValueError: not JSON, nested over MAX_DEPTH, an integer of over MAX_DIGITS digits, a number
            that is not finite, or a string with a NUL or a lone surrogate (no file name, no
            database and no UTF-8 holds those). The message is one line.
    """
    try:
        found = json.loads(text, parse_constant=_not_finite, parse_int=_integer)
    except RecursionError:
        raise ValueError(f"it is nested too deep, over {MAX_DEPTH} levels") from None
    _check(found)
    return found


def _check(document: Any) -> None:
    waiting = [(document, 1)]
    while waiting:  # no recursion: the depth is what is checked
        value, depth = waiting.pop()
        if depth > MAX_DEPTH:
            raise ValueError(f"it is nested too deep, over {MAX_DEPTH} levels")
        if isinstance(value, dict):
            for name, item in value.items():
                _check_text(name)
                waiting.append((item, depth + 1))
        elif isinstance(value, list):
            waiting.extend((item, depth + 1) for item in value)
        elif isinstance(value, str):
            _check_text(value)
        elif isinstance(value, float) and not math.isfinite(value):
            raise ValueError("a number is too large")


def _check_text(text: str) -> None:
    if "\0" in text:
        raise ValueError(f"the string {text!r:.60} holds a NUL")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"the string {text!r:.60} holds half of a surrogate pair") from None


def _integer(digits: str) -> int:
    if len(digits.lstrip("-")) > MAX_DIGITS:
        raise ValueError(f"a number has {len(digits.lstrip('-'))} digits, over {MAX_DIGITS}")
    return int(digits)


def _not_finite(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number of JSON")
