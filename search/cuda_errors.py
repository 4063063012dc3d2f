"""Errors that torch raises for CUDA, as the typed error that the worker protocol knows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ptxgen.errors import DriverError

PREFIX = "CUDA error:"
"""How torch begins the message of a failed CUDA call, whatever the exception's type."""


def loses_context(error: RuntimeError) -> bool:
    """Whether torch reports a failed CUDA call: nothing works in this process any more."""
    return str(error).startswith(PREFIX)


@contextmanager
def typed_cuda_errors() -> Iterator[None]:
    """Turns torch's CUDA errors into sticky DriverErrors; running out of memory stays what it is.

    An error that torch reports came from a kernel that ran before (the calls are asynchronous), and
    the context is lost with it. Kept alive, a worker would fail every later candidate: 306 of them
    after one illegal access on an H200 (2026-11-29).

    Raises:
        DriverError: sticky.
    """
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        if not loses_context(error):
            raise
        text = str(error)
        code = getattr(error, "error_code", None)
        message = text.splitlines()[0].removeprefix(PREFIX).strip()
        raise DriverError(
            message, code=code if isinstance(code, int) else 0, sticky=True
        ) from error
