"""JSON from outside: whatever the text holds, a value or one PtxtuneError."""

from __future__ import annotations

import json
from typing import Any

from ptxgen.errors import PtxtuneError


def parse_json(text: str | bytes, where: str, hint: str, *, error: type[PtxtuneError]) -> Any:
    """The value of a JSON text.

    Args:
        text: of the document; bytes are UTF-8.
        where: names the source in errors.
        hint: the way out, which ends the message.
        error: what is raised.

    Raises:
        error: no JSON or no UTF-8, nested too deep, or a number with more digits than Python reads.
    """
    try:
        return json.loads(text.decode() if isinstance(text, bytes) else text)
    except RecursionError:
        raise error(f"{where} is nested too deep for JSON that anything reads; {hint}") from None
    except ValueError as problem:  # also of bytes that are no UTF-8, and of endless numbers
        raise error(f"{where} is not JSON ({problem}); {hint}") from None
