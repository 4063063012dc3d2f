"""Owner: which process wrote a row, and whether that process still lives."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
"""Where Linux describes its processes; systems without it answer less exactly."""

_STAT_STATE, _STAT_START_TIME = 0, 19
"""Fields of /proc/<pid>/stat, counted from the one after the process's name (proc(5))."""


@dataclass(frozen=True, slots=True)
class Owner:
    """A process, told apart from later ones that get the same pid.

    Attributes:
        host: host name, boot and pid namespace: pids are comparable only where it is equal.
        pid: process id.
        started: start time in clock ticks since boot; empty where the system does not tell.
    """

    host: str
    pid: int
    started: str

    def encode(self) -> str:
        return f"{self.host}|{self.pid}|{self.started}"

    @classmethod
    def decode(cls, text: str) -> Owner:
        """The inverse of encode; a text of another form becomes an owner of an unknown host."""
        host, _, rest = text.partition("|")
        pid, _, started = rest.partition("|")
        return cls(host, int(pid), started) if pid.isdecimal() else cls("", 0, "")

    def is_alive(self) -> bool | None:
        """Whether the process lives; None where this process cannot know (another host)."""
        if self.host != _host():
            return None
        if not (PROC / "self" / "stat").exists():
            return _answers_signals(self.pid)
        fields = _stat_fields(self.pid)
        return (
            bool(fields) and fields[_STAT_STATE] != "Z" and fields[_STAT_START_TIME] == self.started
        )


def current_owner() -> Owner:
    """This process."""
    pid = os.getpid()
    fields = _stat_fields(pid)
    return Owner(_host(), pid, fields[_STAT_START_TIME] if fields else "")


def _host() -> str:
    boot = _read(PROC / "sys/kernel/random/boot_id")[:8]
    try:
        namespace = os.readlink(PROC / "self/ns/pid")
    except OSError:
        namespace = ""
    return f"{socket.gethostname()}/{boot}/{namespace}".replace("|", "_")


def _stat_fields(pid: int) -> list[str]:
    """Fields after the name, which may itself hold spaces and brackets; empty for no process."""
    return _read(PROC / str(pid) / "stat").rpartition(")")[2].split()


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _answers_signals(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
