"""Damage: rows that no ptxtune wrote so: found value by value, named by table and row, left out.

A database outlives disks, copies and other tools' edits. One bad value must not hide the rest, so
the column types hand it on as Unreadable, and checked() names it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import JSON, Boolean, Float, Integer, String, inspect
from sqlalchemy.types import TypeDecorator

from ptxgen.errors import StoreError

SHOWN_CHARS = 60
_NUMBER = (int, float)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Stands for a stored value that has not its column's form."""

    raw: object


class DamagedRowError(StoreError):
    """A row that cannot be used.

    Attributes:
        table: its table.
        row: its id.
        why: what is wrong with it.
    """

    def __init__(self, table: str, row: object, why: str) -> None:
        super().__init__(f"table {table}, row {row}: {why}")
        self.table, self.row, self.why = table, row, why


class DamagedRowWarning(UserWarning):
    """A row was left out, because it is damaged."""


def tolerant_json(text: Any) -> Any:
    """The JSON value of a text; Unreadable where it is none."""
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return Unreadable(text)


def tolerant_text(data: bytes) -> str:
    """A column's text; bytes that are no UTF-8 become lone surrogates, which checked() sees."""
    return data.decode("utf-8", "surrogateescape")


def checked(row: Any) -> Any:
    """The row, whose every value is of its column's type.

    Raises:
        DamagedRowError: one is not.
    """
    for name, nullable, is_good in _columns(row.__class__):
        value = getattr(row, name)
        if value is None:
            if nullable:
                continue
        elif is_good(value):
            continue
        raise damaged(row, f"{name} is {shown(value)}")
    return row


def damaged(row: Any, why: str) -> DamagedRowError:
    """The error that names a row."""
    return DamagedRowError(row.__tablename__, row.id, why)


def shown(value: object) -> str:
    """A stored value for a message, short and printable."""
    text = ascii(value.raw if isinstance(value, Unreadable) else value)
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}..."


@cache
def _columns(table: Any) -> tuple[tuple[str, bool, Callable[[Any], bool]], ...]:
    """Of each column: its name, whether it may be empty, and what its values must be."""
    attributes: Any = inspect(table).column_attrs
    return tuple(
        (item.key, bool(item.columns[0].nullable), _rule(item.columns[0].type))
        for item in attributes
    )


def _rule(kind: Any) -> Callable[[Any], bool]:
    if isinstance(kind, TypeDecorator):
        return _is_moment
    rules: tuple[tuple[Any, Callable[[Any], bool]], ...] = (
        (Boolean, lambda value: isinstance(value, bool)),
        (Integer, _is_count),
        (Float, is_number),
        (String, _is_text),
        (JSON, _is_json),
    )
    return next(rule for family, rule in rules if isinstance(kind, family))


def is_number(value: object) -> bool:
    """A finite number, and no truth value."""
    return isinstance(value, _NUMBER) and not isinstance(value, bool) and math.isfinite(value)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_text(value: object) -> bool:
    if not isinstance(value, str):
        return False
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_moment(value: object) -> bool:
    return isinstance(value, datetime)


def _is_json(value: object) -> bool:
    return isinstance(value, dict | list)
