"""KernelConfig: one point of the space. Each family has its own frozen subclass of scalar knobs."""

from __future__ import annotations

import hashlib
import json
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, Self

from ptxgen.errors import ConfigError

Scalar = int | str | bool


@dataclass(frozen=True, slots=True)
class KernelConfig:
    """Base of every family's config: knobs are fields, all of them int, str or bool."""

    family: ClassVar[str] = ""
    young_knobs: ClassVar[frozenset[str]] = frozenset()
    """Knobs that the key names only off their default: keys stored before them stay valid."""

    @classmethod
    def knob_names(cls) -> tuple[str, ...]:
        return tuple(item.name for item in fields(cls))

    def to_dict(self) -> dict[str, Scalar]:
        """The family and every knob; the inverse is ptxgen.families.config_from_dict."""
        return {"family": self.family, **{name: getattr(self, name) for name in self.knob_names()}}

    @classmethod
    def from_knobs(cls, knobs: dict[str, Any]) -> Self:
        """A config from this family's knobs.

        A knob with a default may be missing: it is younger than some stored configs, and its
        default is what kernels did before it.

        Raises:
            ConfigError: a knob is missing, unknown or of another type.
        """
        defaults = {item.name: item.default for item in fields(cls) if item.default is not MISSING}
        knobs = {**defaults, **knobs}
        expected = {item.name: item.type for item in fields(cls)}
        missing, unknown = expected.keys() - knobs.keys(), knobs.keys() - expected.keys()
        if missing or unknown:
            raise ConfigError(
                f"config of family {cls.family!r} has unknown knobs {sorted(unknown)} and lacks "
                f"{sorted(missing)}; its knobs are {', '.join(expected)}."
            )
        for name, type_name in expected.items():
            if type(knobs[name]).__name__ != type_name:
                raise ConfigError(f"knob {name} = {knobs[name]!r} must be of type {type_name}.")
        return cls(**knobs)

    def plain(self) -> Self:
        """The config that stands for this one where launches are not chained; itself as a rule."""
        return self

    def chained(self) -> Self:
        """This config made ready for chained launches, for a default; itself as a rule."""
        return self

    def key(self) -> str:
        """Readable unique key, such as mma(block_m=8,block_n=64,...)."""
        told = []
        for name, hidden in _told_unless(type(self)):
            value = getattr(self, name)
            if value != hidden:
                told.append(f"{name}={value}")
        return f"{self.family}({','.join(told)})"

    def digest(self) -> str:
        """Short hash of the key, for file names."""
        canonical = json.dumps(self.to_dict(), sort_keys=True)
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]


_NEVER = object()
_TOLD: dict[type, tuple[tuple[str, object], ...]] = {}
"""By config class, as a search asks for tens of thousands of keys."""


def _told_unless(config_type: type[KernelConfig]) -> tuple[tuple[str, object], ...]:
    """Every knob, and the value with which a key leaves it out: of a young knob its default."""
    if config_type not in _TOLD:
        young = config_type.young_knobs
        _TOLD[config_type] = tuple(
            (item.name, item.default if item.name in young else _NEVER)
            for item in fields(config_type)
        )
    return _TOLD[config_type]
