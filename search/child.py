"""Child: a killable helper process that answers JSON requests, one line each, over a socket pair.

The parent's half. The child runs search.child_main in its own session, so that one signal ends it
with everything it started, and Ctrl-C in the terminal reaches the parent alone. A plain interpreter
is started rather than multiprocessing's spawn, which would import the user's main script again.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from search.child_main import READY

MAX_REPLY_BYTES = 64 << 20
REAP_SECONDS = 20.0
START_S = 120.0
"""For a process to start and import what it needs, before the limit of its first request counts."""
STDERR_TAIL_BYTES = 2000


class ChildDiedError(Exception):
    """The process ended, or closed its end, before it answered."""


class ChildTimeoutError(Exception):
    """No answer in time."""


class ChildGarbageError(Exception):
    """The answer is not a JSON object on one line."""


class ChildFailedError(Exception):
    """The handler raised; the process lives on.

    Attributes:
        kind: name of the exception's class in the child.
        code: its `code` where it has one (a CUresult), else 0.
        sticky: its `sticky` where it has one.
    """

    def __init__(self, kind: str, message: str, code: int = 0, sticky: bool = False) -> None:
        super().__init__(message)
        self.kind = kind
        self.code = code
        self.sticky = sticky


class Child:
    """One helper process; it starts at construction.

    Start it from a thread that outlives it: Linux ends the child with the thread that started it.

    Args:
        factory: "module:function"; called in the child with options, it returns the handler.
        options: plain JSON data for the factory.
        gpu_uuid: the only GPU that CUDA shows the child; empty: those that it shows this process.
    """

    def __init__(self, factory: str, options: dict[str, Any], gpu_uuid: str = "") -> None:
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 (closed by kill)
        ours, theirs = socket.socketpair()
        # No import path of its own (-P), the parent's instead: also where ptxtune is not installed.
        paths = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
        limited = {"CUDA_VISIBLE_DEVICES": gpu_uuid} if gpu_uuid else {}
        command = [sys.executable, "-P", "-m", "search.child_main"]
        try:
            self._process = subprocess.Popen(
                [*command, str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=self._stderr,
                stderr=self._stderr,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                env={**os.environ, **limited, "PYTHONPATH": paths},
            )
        finally:
            theirs.close()
        self._socket = ours
        self._buffer = b""
        self._started = False
        with contextlib.suppress(
            OSError
        ):  # a child that died at once is noticed by the first request
            self._send({"factory": factory, "options": options})

    @property
    def pid(self) -> int:
        return self._process.pid

    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def request(
        self,
        message: dict[str, Any],
        timeout_s: float,
        meanwhile: Callable[[], None] | None = None,
    ) -> Any:
        """Sends one request and waits for its answer.

        Args:
            message: the request.
            timeout_s: counted from when `meanwhile` is over and the process has started.
            meanwhile: work of the parent while the child does its own; if it raises, the child must
                be killed, because its answer is still to come.

        Returns:
            What the handler returned.

        Raises:
            ChildFailedError: the handler raised. After the other three the child must be killed:
            ChildDiedError, ChildTimeoutError, ChildGarbageError.
        """
        try:
            self._send(message)
        except OSError as error:
            raise ChildDiedError(self._epitaph()) from error
        if meanwhile is not None:
            meanwhile()
        try:
            if not self._started:
                self._started = self._read_line(time.monotonic() + START_S) == READY.strip()
            line = self._read_line(time.monotonic() + timeout_s)
        except OSError as error:
            raise ChildDiedError(self._epitaph()) from error
        try:
            reply = json.loads(line)
        except ValueError as error:
            raise ChildGarbageError(f"the worker answered {line[:80]!r}") from error
        return _unwrap(reply)

    def kill(self) -> None:
        """SIGKILL to the whole group, then reaps it. Safe to call again, and from other threads."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(REAP_SECONDS)
        self._socket.close()
        self._stderr.close()

    def _send(self, message: dict[str, Any]) -> None:
        self._socket.settimeout(REAP_SECONDS)
        self._socket.sendall(json.dumps(message).encode() + b"\n")

    def _read_line(self, deadline: float) -> bytes:
        """One line, or ChildTimeoutError at the deadline even where half a line came."""
        while b"\n" not in self._buffer:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise ChildTimeoutError
            self._socket.settimeout(remaining)
            try:
                chunk = self._socket.recv(1 << 16)
            except TimeoutError as error:
                raise ChildTimeoutError from error
            if not chunk:
                raise ChildDiedError(self._epitaph())
            self._buffer += chunk
            if len(self._buffer) > MAX_REPLY_BYTES:
                raise ChildGarbageError(f"the worker answered over {MAX_REPLY_BYTES} bytes")
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _epitaph(self) -> str:
        """How the process ended, in words, with the tail of what it printed."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        code = self._process.returncode
        if code is None:
            ended = "closed its pipe"
        elif code < 0:
            ended = f"was killed by {signal.Signals(-code).name}"
        else:
            ended = f"exited with code {code}"
        return f"the worker process {ended}{self._printed()}"

    def _printed(self) -> str:
        try:
            size = self._stderr.seek(0, os.SEEK_END)
            self._stderr.seek(max(0, size - STDERR_TAIL_BYTES))
            text = self._stderr.read().decode(errors="replace").strip()
        except ValueError:  # closed by kill() in another thread
            return ""
        return f"; it printed: {text}" if text else ""


def _unwrap(reply: Any) -> Any:
    if isinstance(reply, dict) and reply.keys() == {"ok"}:
        return reply["ok"]
    if isinstance(reply, dict) and isinstance(reply.get("error"), dict):
        error = reply["error"]
        raise ChildFailedError(
            str(error.get("kind")),
            str(error.get("message")),
            int(error.get("code") or 0),
            bool(error.get("sticky")),
        )
    raise ChildGarbageError(f"the worker answered {str(reply)[:80]!r}")
