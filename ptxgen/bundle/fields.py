"""Typed reading of a manifest's JSON: a wrong or missing field is a BundleError with its path."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ptxgen.errors import BundleError, PtxtuneError

MAX_INT = 2**31 - 1
"""Of a C int, which is what launches take."""


@dataclass(frozen=True, slots=True)
class Fields:
    """One JSON object, and where it stands in the manifest.

    Attributes:
        data: the parsed value; must be an object.
        path: its place in words, such as "buckets[0].plan".
    """

    data: Any
    path: str = "manifest"

    def text(self, name: str) -> str:
        return str(self._typed(name, str, "a string"))

    def integer(self, name: str, least: int = 0, most: int = MAX_INT) -> int:
        value: int = self._typed(name, int, "an integer")
        if value < least:
            raise BundleError(f"{self.path}.{name} = {value} must be at least {least}. {REFUSED}")
        if value > most:
            raise BundleError(f"{self.path}.{name} = {value} must be at most {most}. {REFUSED}")
        return value

    def flag(self, name: str) -> bool:
        return bool(self._typed(name, bool, "true or false"))

    def number(self, name: str) -> float:
        value = self._typed(name, (int, float), "a number")
        return float(value)

    def optional_number(self, name: str) -> float | None:
        """The number, or None where the field is null."""
        return None if self._get(name) is None else self.number(name)

    def child(self, name: str) -> Fields:
        value = self._typed(name, dict, "an object")
        return Fields(value, f"{self.path}.{name}")

    def children(self, name: str) -> list[Fields]:
        """The objects of a list field."""
        values: list[Any] = self._typed(name, list, "a list")
        return [Fields(value, f"{self.path}.{name}[{i}]") for i, value in enumerate(values)]

    def optional_pair(self, name: str) -> tuple[int, int] | None:
        """Two integers of at least 1, or None where the field is null."""
        if self._get(name) is None:
            return None
        values: list[Any] = self._typed(name, list, "a list")
        if len(values) != 2 or not all(type(item) is int and item >= 1 for item in values):
            raise BundleError(
                f"{self.path}.{name} = {values!r:.60} must be two integers of at least 1. {REFUSED}"
            )
        return values[0], values[1]

    def rebuilt(self, build: Callable[[Any], Any], path: str = "") -> Any:
        """What a from_dict makes of the object; its errors name the place in the manifest."""
        path = path or self.path
        try:
            return build(self.data)
        except (KeyError, TypeError) as error:
            raise BundleError(f"{path} lacks or has an unknown field: {error}. {REFUSED}") from None
        except PtxtuneError as error:
            raise BundleError(f"{path}: {error} {REFUSED}") from None

    def strings(self) -> dict[str, str]:
        """The whole object, where every value is a string."""
        self._object()
        return {name: self.text(name) for name in self.data}

    def _object(self) -> dict[str, Any]:
        if not isinstance(self.data, dict):
            raise BundleError(f"{self.path} is {self.data!r:.60}, not an object. {REFUSED}")
        return self.data

    def _get(self, name: str) -> Any:
        found = self._object()
        if name not in found:
            raise BundleError(f"{self.path} has no field {name!r}. {REFUSED}")
        return found[name]

    def _typed(self, name: str, kind: Any, words: str) -> Any:
        value = self._get(name)
        # bool is an int to isinstance, but never a size.
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise BundleError(f"{self.path}.{name} = {value!r:.60} must be {words}. {REFUSED}")
        return value


REFUSED = "The manifest is damaged or was edited; export the bundle again."
