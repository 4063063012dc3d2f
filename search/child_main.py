"""The child's half of search.child: reads JSON requests from an inherited socket, answers each one.

Usage: python -m search.child_main FD PARENT_PID. The first line names the handler's factory.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any

Handler = Callable[[dict[str, Any]], Any]
PR_SET_PDEATHSIG = 1  # linux/prctl.h
READY = b'{"ready": true}\n'
"""Said once, when the process has started: the limits of requests count from then."""


def main(argv: list[str]) -> int:
    """Serves until the parent closes its end."""
    descriptor, parent = int(argv[0]), int(argv[1])
    die_with_parent(parent)
    with socket.socket(fileno=descriptor) as channel, channel.makefile("rb") as lines:
        handler: Handler | None = None
        start: dict[str, Any] = {}
        for line in lines:
            message = json.loads(line)
            if not start:
                start = message
                # What it imports takes seconds on a busy machine, and is no part of a request.
                with contextlib.suppress(Exception):
                    resolve(start["factory"])
                channel.sendall(READY)
                continue
            # The factory runs with the first request, so that its error is an answer, not a death.
            try:
                handler = handler or resolve(start["factory"])(start["options"])
                answer = json.dumps({"ok": handler(message)})
            except Exception as error:
                answer = json.dumps({"error": described(error)})
            channel.sendall(answer.encode() + b"\n")
    return 0


def die_with_parent(parent: int) -> None:
    """Asks Linux to kill this process when its parent ends, however it ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it ended before the request took effect
            os._exit(1)


def resolve(name: str) -> Callable[[dict[str, Any]], Handler]:
    """The function named "module:function"."""
    module, _, function = name.partition(":")
    found: Callable[[dict[str, Any]], Handler] = getattr(importlib.import_module(module), function)
    return found


def described(error: Exception) -> dict[str, Any]:
    """An exception as the parent's ChildFailedError expects it."""
    code = getattr(error, "code", 0)
    return {
        "kind": type(error).__name__,
        "message": str(error) or repr(error),
        "code": code if isinstance(code, int) else 0,
        "sticky": bool(getattr(error, "sticky", False)),
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
