"""Ctrl-C: every command that it ends, ends with exit code 130, wherever it arrived."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from types import FrameType

INTERRUPTED = 130
"""The shell's exit code of a command that Ctrl-C ended."""

MESSAGE = "Interrupted."


class Interrupts:
    """Remembers that a SIGINT arrived.

    KeyboardInterrupt alone does not tell: an extension module that is interrupted while it is
    imported may make an ImportError of it, or lose it.

    Attributes:
        seen: whether one arrived since watch().
    """

    def __init__(self) -> None:
        self.seen = False

    def watch(self) -> None:
        """From now on; nothing changes where the caller ignores SIGINT (nohup) or handles it."""
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._handle)

    def end(self) -> None:
        """The command is done: a SIGINT while the interpreter ends does not change its result."""
        if signal.getsignal(signal.SIGINT) == self._handle:
            signal.signal(signal.SIGINT, signal.SIG_IGN)

    def leave(self) -> None:
        """Ends the process with INTERRUPTED where one arrived; for the end of everything else.

        Python itself ends by SIGINT, whatever sys.exit says, where the interrupt left a module that
        runs Python text while it is imported, as torch does.
        """
        if self.seen:
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(OSError, ValueError):
                    stream.flush()
            os._exit(INTERRUPTED)

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        self.seen = True
        raise KeyboardInterrupt
