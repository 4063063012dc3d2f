"""StopRequest: Ctrl-C once ends after the running trial; twice ends at once."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType


class StopRequest:
    """Whether the user asked for the end. Also usable without any signal: call request()."""

    def __init__(self) -> None:
        self.requested = False

    def request(self) -> None:
        """Asks for the end after the running trial."""
        self.requested = True

    @contextlib.contextmanager
    def on_interrupt(self, on_first: Callable[[], None]) -> Iterator[None]:
        """Within the block the first SIGINT requests the end, later ones raise KeyboardInterrupt.

        Only the main thread may set signal handlers; elsewhere this does nothing.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def handle(_number: int, _frame: FrameType | None) -> None:
            if self.requested:
                raise KeyboardInterrupt
            self.request()
            on_first()

        before = signal.signal(signal.SIGINT, handle)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
