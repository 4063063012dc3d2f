"""Warned: shows our warnings as notes on stderr, one paragraph each, as errors are shown."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from db.damage import DamagedRowWarning
from ptxtune.output import note


@contextmanager
def warnings_as_notes() -> Iterator[None]:
    """Every damaged row that is left out is told; other warnings are shown as Python does."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", DamagedRowWarning)
        usual = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if issubclass(category, DamagedRowWarning):
                note(f"Warning: {message}")
            else:
                usual(message, category, *where, **more)

        warnings.showwarning = show
        yield
