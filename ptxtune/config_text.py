"""Configs as users write them: JSON, a file, or one of the forms in which ptxtune prints them."""

from __future__ import annotations

import re
from pathlib import Path

from ptxgen.arguments import path, shown
from ptxgen.config import KernelConfig, Scalar
from ptxgen.errors import ConfigError
from ptxgen.families import FAMILIES, config_from_dict
from ptxgen.families.base import Family
from ptxgen.json_text import parse_json

MAX_BYTES = 1 << 20
"""No config is longer; a larger file was named by mistake."""

FORMS = (
    'JSON such as {"family": "mma", ...}, a file with it (its path, or @path), mma(block_m=8, ...) '
    "as ptxtune best prints it, or the short form of its tables, mma bm8 wm8 ..."
)
_CALL = re.compile(r"(\w+)\s*\((.*)\)", re.DOTALL)
_KNOB = re.compile(r"\s*(\w+)\s*=\s*('[^']*'|\"[^\"]*\"|[\w.+-]+)\s*")


def read_config(text: str, where: str) -> KernelConfig:
    """The config of an option's value; `where` names the option in errors.

    Raises:
        ConfigError: the text is none of FORMS, or no config of a known family.
    """
    text = text.strip()
    if text.startswith(("{", "[")):
        return _from_json(text, where)
    if text.startswith("@"):
        return _from_text(_file_text(path(text[1:], where, error=ConfigError), where), where)
    if "(" not in text and (file := _file(text)):
        return _from_text(_file_text(file, where), where)
    return _from_text(text, where)


def _from_text(text: str, where: str) -> KernelConfig:
    text = text.strip()
    if text.startswith(("{", "[")):
        return _from_json(text, where)
    if call := _CALL.fullmatch(text):
        return _from_call(call[1], call[2], where)
    words = text.split()
    if words and words[0] in FAMILIES:
        return _from_short(words, where)
    raise ConfigError(f"{where} {_shown(text)} is no config and no file; write it as {FORMS}.")


def _from_json(text: str, where: str) -> KernelConfig:
    hint = "write a config as ptxtune best --json prints it."
    return config_from_dict(parse_json(text, where, hint, error=ConfigError))


def _from_call(name: str, body: str, where: str) -> KernelConfig:
    """family(knob=value,...), or the config class in place of the family."""
    family = _family(name, where)
    knobs: dict[str, Scalar] = {}
    place = 0
    while place < len(body.rstrip()):
        found = _KNOB.match(body, place)
        if found is None or body[found.end() : found.end() + 1] not in {"", ","}:
            raise ConfigError(
                f"{where} {_shown(body)} has no knob=value at {_shown(body[place:])}; write a "
                f"config as {FORMS}."
            )
        if found[1] in knobs:
            raise ConfigError(f"{where} gives knob {found[1]} twice.")
        knobs[found[1]] = _value(found[2])
        place = found.end() + 1
    return config_from_dict({"family": family.name, **knobs})


def _from_short(words: list[str], where: str) -> KernelConfig:
    """The form of tables: each knob's initials with its value, in the order of the knobs.

    Knobs that share initials are told apart by that order; a word of three letters must be the
    beginning of one choice only.
    """
    family = FAMILIES[words[0]]
    knobs: dict[str, Scalar] = {}
    rest = words[1:]
    for name, choices in family.knobs().items():
        initials = "".join(part[0] for part in name.split("_"))
        if all(isinstance(choice, bool) for choice in choices):
            knobs[name] = rest[:1] == [initials]
            rest = rest[1:] if knobs[name] else rest
            continue
        found = _short_value(rest[0], initials, choices) if rest else None
        if found is None:
            told = _shown(rest[0]) if rest else "its end"
            raise ConfigError(
                f"{where} {_shown(' '.join(words))} has {told} where knob {name} "
                f"({initials}...) of {family.name} should be; write a config as {FORMS}."
            )
        knobs[name], rest = found, rest[1:]
    if rest:
        raise ConfigError(f"{where} has {_shown(' '.join(rest))} after the last knob.")
    return config_from_dict({"family": family.name, **knobs})


def _short_value(word: str, initials: str, choices: tuple[Scalar, ...]) -> Scalar | None:
    """The value of one word; None where it is none of this knob's, or of several."""
    if not word.startswith(initials):
        return None
    text = word[len(initials) :]
    if text.startswith(":"):
        fitting = [item for item in choices if isinstance(item, str) and item[:3] == text[1:]]
        return fitting[0] if len(fitting) == 1 else None
    return int(text) if re.fullmatch(r"-?[0-9]{1,9}", text) else None


def _family(name: str, where: str) -> Family:
    named = {family.config_type.__name__: family for family in FAMILIES.values()}
    found = FAMILIES.get(name) or named.get(name)
    if found is None:
        raise ConfigError(
            f"{where} names family {name!r}, which is not known; choose one of "
            f"{', '.join(FAMILIES)}."
        )
    return found


def _value(text: str) -> Scalar:
    if text in {"True", "False"}:
        return text == "True"
    return int(text) if re.fullmatch(r"-?[0-9]{1,9}", text) else text.strip("'\"")


def _file(text: str) -> Path | None:
    """The file that a text names; None where it is none."""
    try:
        named = path(text, "--config", error=ConfigError)
        return named if named.is_file() else None
    except (OSError, ConfigError):
        return None


def _file_text(named: Path, where: str) -> str:
    try:
        with named.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise ConfigError(f"{where} file {named} has over {MAX_BYTES} bytes: it is no config.")
        return content.decode()
    except (OSError, ValueError) as error:
        raise ConfigError(f"{where} file {named} cannot be read: {error}.") from error


def _shown(text: str) -> str:
    return shown(" ".join(text.split()))
