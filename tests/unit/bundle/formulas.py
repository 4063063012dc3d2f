"""The value of a manifest's formulas, without Python's own evaluation."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

CHOICES: dict[str, Callable[[int, int], int]] = {"min": min, "max": max}


def evaluated(text: str, known: dict[str, Any]) -> int:
    """The value of a formula with whole-number division: names, + - * /, min, max, parentheses."""
    tokens = re.findall(r"\w+|[^\w\s]", text)
    return summed(tokens, known)


def summed(tokens: list[str], known: dict[str, Any]) -> int:
    value = multiplied(tokens, known)
    while tokens and tokens[0] in "+-":
        sign = 1 if tokens.pop(0) == "+" else -1
        value += sign * multiplied(tokens, known)
    return value


def multiplied(tokens: list[str], known: dict[str, Any]) -> int:
    value = atom(tokens, known)
    while tokens and tokens[0] in "*/":
        times = tokens.pop(0) == "*"
        other = atom(tokens, known)
        value = value * other if times else value // other
    return value


def atom(tokens: list[str], known: dict[str, Any]) -> int:
    first = tokens.pop(0)
    if first in CHOICES:
        assert tokens.pop(0) == "("
        one = summed(tokens, known)
        assert tokens.pop(0) == ","
        other = summed(tokens, known)
        assert tokens.pop(0) == ")"
        return CHOICES[first](one, other)
    if first == "(":
        value = summed(tokens, known)
        assert tokens.pop(0) == ")"
        return value
    return int(first) if first.isdigit() else int(known[first])
