"""What ptxas says of a kernel (--ptxas-options=-v), from NVRTC's log. Text in, numbers out."""

from __future__ import annotations

import re
from dataclasses import dataclass

_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_FRAME = re.compile(
    r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", re.MULTILINE
)
_USED = re.compile(r"Used (\d+) registers")
_SMEM = re.compile(r"(\d+) bytes smem")


@dataclass(frozen=True, slots=True)
class PtxasReport:
    """What one kernel uses.

    Attributes:
        registers: a thread.
        local_bytes: local memory a thread: the largest of stack frame, spill stores and spill loads
            over the kernel and its functions. Not 0 means that something is not held in registers.
        static_smem_bytes: statically declared shared memory of a CTA.
    """

    registers: int
    local_bytes: int
    static_smem_bytes: int


def read_ptxas_log(log: str, entry: str) -> PtxasReport | None:
    """The report of the kernel named entry, or None where the log does not tell of it."""
    sections = _ENTRY.split(log)
    names, texts = sections[1::2], sections[2::2]
    for name, text in zip(names, texts, strict=True):
        used = _USED.search(text)
        if name != entry or used is None:
            continue
        frames = [int(value) for found in _FRAME.findall(text) for value in found]
        # The line of the kernel itself is the one that counts registers.
        line = text[used.start() :].splitlines()[0]
        smem = _SMEM.search(line)
        return PtxasReport(
            registers=int(used.group(1)),
            local_bytes=max(frames, default=0),
            static_smem_bytes=int(smem.group(1)) if smem else 0,
        )
    return None
