"""Cubin -> SASS instructions, by nvdisasm; no device. Only this module runs a toolkit program."""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ptxgen.errors import ToolError

TOOL = "nvdisasm"
PACKAGE = "nvidia-cuda-nvdisasm"
TIMEOUT_S = 60.0

_INSTRUCTION = re.compile(
    r"^\s*/\*(?P<address>[0-9a-f]+)\*/\s+(?:@(?P<guard>!?U?P\w+)\s+)?"
    r"(?P<opcode>[A-Z][A-Z0-9_.]*)\s*(?P<operands>[^;]*);"
)
_LABEL = re.compile(r"^\s*(?P<name>\.L\w+):")
_TARGET = re.compile(r"`\((?P<name>\.L\w+)\)")
_SECTION = re.compile(r"^//-+ (?P<name>\S+) +-+$")


@dataclass(frozen=True, slots=True)
class SassInstruction:
    """One machine instruction.

    Attributes:
        address: byte offset in the kernel.
        opcode: with its suffixes, such as "LDS.128".
        operands: the text after the opcode.
        guard: predicate, such as "!P0"; empty where there is none.
    """

    address: int
    opcode: str
    operands: str
    guard: str = ""

    def is_a(self, *words: str) -> bool:
        """True where the opcode starts with words[0] and has the other words as suffixes."""
        head, *suffixes = self.opcode.split(".")
        return head == words[0] and all(word in suffixes for word in words[1:])


@dataclass(frozen=True, slots=True)
class Disassembly:
    """A kernel's instructions in order, and the address of each label."""

    instructions: tuple[SassInstruction, ...]
    labels: dict[str, int]

    def loops(self) -> list[tuple[int, int]]:
        """(first, last) address of each loop, read off the backward branches; inner ones too."""
        found = []
        for item in self.instructions:
            target = _TARGET.search(item.operands) if item.is_a("BRA") else None
            if target is None:
                continue
            start = self.labels.get(target["name"], item.address)
            if start < item.address:
                found.append((start, item.address))
        return found

    def between(self, first: int, last: int) -> tuple[SassInstruction, ...]:
        return tuple(item for item in self.instructions if first <= item.address <= last)


def count(items: Iterable[SassInstruction], *words: str) -> int:
    """How many of the instructions are this opcode with these suffixes."""
    return sum(item.is_a(*words) for item in items)


def disassemble(cubin: bytes, entry: str) -> Disassembly:
    """The instructions of a kernel. Those that never execute (guard !PT) are left out.

    Args:
        cubin: ELF image of a kernel.
        entry: name of the __global__ function.

    Raises:
        ToolError: nvdisasm is missing, failed, or the cubin has no such kernel.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        text = _run(nvdisasm_path(), "-c", str(path))
    found = parse(text, entry)
    if not found.instructions:
        raise ToolError(
            f"{TOOL} found no kernel named {entry!r} in a cubin of {len(cubin)} bytes; "
            f"pass the entry name that the source declares."
        )
    return found


def parse(text: str, entry: str) -> Disassembly:
    """What nvdisasm -c printed about one kernel."""
    instructions: list[SassInstruction] = []
    labels: dict[str, int] = {}
    waiting: list[str] = []
    inside = False
    for line in text.splitlines():
        if section := _SECTION.match(line):
            inside = section["name"] == f".text.{entry}"
        if not inside:
            continue
        if label := _LABEL.match(line):
            waiting.append(label["name"])
        elif found := _INSTRUCTION.match(line):
            address = int(found["address"], 16)
            labels.update((name, address) for name in waiting)
            waiting.clear()
            if found["guard"] not in ("!PT", "!UPT"):
                guard = found["guard"] or ""
                operands = found["operands"].strip()
                instructions.append(SassInstruction(address, found["opcode"], operands, guard))
    return Disassembly(tuple(instructions), labels)


@cache
def nvdisasm_path() -> str:
    """Path of nvdisasm: of the wheel in this environment, else of PATH.

    Raises:
        ToolError: there is none.
    """
    try:
        files = importlib.metadata.files(PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for item in files:
        if item.stem == TOOL and item.suffix in ("", ".exe"):
            return str(item.locate())
    on_path = shutil.which(TOOL)
    if on_path is None:
        raise ToolError(
            f"{TOOL} is neither in this Python environment nor on PATH, so a kernel's machine code "
            f"cannot be read. pip install '{PACKAGE}>=13,<14' installs it without a CUDA toolkit."
        )
    return on_path


def _run(tool: str, *arguments: str) -> str:
    try:
        done = subprocess.run(
            [tool, *arguments], capture_output=True, text=True, check=False, timeout=TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolError(f"{tool} could not be run: {error}. Reinstall {PACKAGE}.") from error
    if done.returncode:
        raise ToolError(
            f"{tool} refused the cubin (exit code {done.returncode}): {done.stderr.strip()} "
            f"A cubin of a newer toolkit needs a newer {PACKAGE}."
        )
    return done.stdout
