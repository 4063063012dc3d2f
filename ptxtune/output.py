"""What commands print: results on stdout (text or one JSON document), all else on stderr."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import click


def say(text: str) -> None:
    """A result, on stdout; what its encoding does not know (a name of odd bytes) is escaped."""
    try:
        click.echo(text)
    except UnicodeEncodeError:
        click.echo(text.encode("ascii", "backslashreplace").decode())


def say_json(document: Any) -> None:
    """The one JSON document of a command, on stdout."""
    click.echo(json.dumps(document, indent=2))


def note(text: str) -> None:
    """Something worth knowing that is not the result, on stderr; never a reason to end."""
    if text:
        with contextlib.suppress(OSError):
            click.echo(text, err=True)
