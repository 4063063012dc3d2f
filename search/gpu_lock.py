"""One lock a GPU on this host, held only while something is timed on it: two tuners take turns."""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout

POLL_SECONDS = 1.0


class GpuLock:
    """A host-wide lock of one GPU.

    Args:
        gpu: its UUID, or its name where the UUID is not known.
        folder: where the lock file lives; by default the host's temporary folder, which all users
            share.
    """

    def __init__(self, gpu: str, folder: Path | None = None) -> None:
        digest = hashlib.sha256(gpu.encode()).hexdigest()[:16]
        path = (folder or Path(tempfile.gettempdir())) / f"ptxtune-gpu-{digest}.lock"
        self._lock = FileLock(path, mode=0o666)  # other users of the host must be able to take it

    @contextlib.contextmanager
    def held(self, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
        """Holds the lock; on_wait is called once a second while another process has it.

        An exception of on_wait ends the waiting.
        """
        while True:
            try:
                self._lock.acquire(timeout=POLL_SECONDS)
                break
            except Timeout:
                if on_wait is not None:
                    on_wait()
        try:
            yield
        finally:
            self._lock.release()
