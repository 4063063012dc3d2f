"""PTX text -> one entry's statements in order, with their lines; parsed by pyptx."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from pyptx.ir import nodes
from pyptx.parser import parse
from pyptx.parser.lexer import LexError
from pyptx.parser.parser import ParseError

from ptxgen.errors import UnsupportedPtxError

Operand: TypeAlias = nodes.Operand

_LOC = re.compile(r"\s*\.loc\s+\d+\s+(\d+)\s+\d+(?:.*inlined_at\s+\d+\s+(\d+))?")
_DEBUG = re.compile(r"\s*\.(loc|file)\b")
_SECTION = re.compile(r"\s*\.section\b")


@dataclass(frozen=True, slots=True)
class Statement:
    """One instruction.

    Attributes:
        opcode: base opcode, such as ld.
        modifiers: without dots, such as ("global", "nc", "b32").
        operands: pyptx operands, destination first.
        guard: predicate register and whether it is negated, or None.
        scope: innermost register scope; resolves names (see Entry.scopes).
        line: line of the PTX text, from 1.
        source_line: line of the CUDA text, or 0.
        text: the instruction as written, on one line.
    """

    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: tuple[str, bool] | None
    scope: int
    line: int
    source_line: int
    text: str

    @property
    def name(self) -> str:
        """The opcode with its modifiers."""
        return ".".join((self.opcode, *self.modifiers))


@dataclass(frozen=True, slots=True)
class Variable:
    """A shared variable: its bytes (0: sized by the launch) and its alignment."""

    name: str
    nbytes: int
    align: int


class Param(NamedTuple):
    """A parameter: its name and type, and for a structure its bytes and alignment (else 0)."""

    name: str
    kind: str
    nbytes: int = 0
    align: int = 0


@dataclass(frozen=True, slots=True)
class Entry:
    """A kernel.

    Attributes:
        statements: instructions in order.
        labels: (scope, label) -> index of the statement that follows it.
        scopes: per scope its parent (-1: none) and its registers (name -> type).
        params: each parameter in order.
        variables: shared variables of the module and of the kernel.
        cluster: CTAs of a cluster in x, y, z as the kernel itself states them, or None.
    """

    statements: tuple[Statement, ...]
    labels: dict[tuple[int, str], int]
    scopes: tuple[tuple[int, dict[str, str]], ...]
    params: tuple[Param, ...]
    variables: tuple[Variable, ...]
    cluster: tuple[int, int, int] | None = None

    def target(self, label: str, scope: int) -> int | None:
        """Index of the statement behind a label as seen from a scope; None for an unknown one."""
        while scope >= 0:
            if (scope, label) in self.labels:
                return self.labels[scope, label]
            scope = self.scopes[scope][0]
        return None


def parse_entry(ptx: str, entry: str) -> Entry:
    """The named kernel of a PTX module.

    Raises:
        UnsupportedPtxError: the text does not parse, has no such entry, or declares what the
            interpreter has no place for.
    """
    text, source_lines = _without_debug(ptx)
    try:
        module = parse(text)
    except (ParseError, LexError) as error:
        raise UnsupportedPtxError(f"the PTX text does not parse: {error}") from error
    functions = [item for item in module.directives if isinstance(item, nodes.Function)]
    found = next((item for item in functions if item.is_entry and item.name == entry), None)
    if found is None:
        names = ", ".join(item.name for item in functions) or "none"
        raise UnsupportedPtxError(
            f"the PTX text has no entry {entry!r}; its functions are {names}."
        )
    reader = _Reader(text, source_lines)
    reader.read(found.body, reader.open_scope(-1))
    variables = [item for item in module.directives if isinstance(item, nodes.VarDecl)]
    return Entry(
        tuple(reader.statements),
        reader.labels,
        tuple(reader.scopes),
        tuple(_param(item) for item in found.params),
        tuple(_variable(item) for item in (*variables, *reader.variables)),
        _cluster(found),
    )


def _without_debug(ptx: str) -> tuple[str, list[int]]:
    """The text with debug lines blanked, and the CUDA line of every PTX line (0: unknown)."""
    lines, sources, current, section = [], [], 0, False
    for line in ptx.split("\n"):
        if found := _LOC.match(line):
            current = int(found[2] or found[1])
        section = section or bool(_SECTION.match(line))
        lines.append("" if section or _DEBUG.match(line) else line)
        sources.append(current)
        section = section and not line.strip().startswith("}")
    return "\n".join(lines), sources


def _cluster(function: nodes.Function) -> tuple[int, int, int] | None:
    for item in function.directives:
        if item.name == "reqnctapercluster":
            x, y, z = (*map(int, item.values), 1, 1)[:3]
            return x, y, z
    return None


def _param(item: nodes.Param) -> Param:
    kind = item.type.value
    if item.array_size is None:
        return Param(item.name, kind)
    element = int(re.sub(r"\D", "", kind)) // 8
    return Param(item.name, kind, element * item.array_size, item.alignment or element)


def _variable(decl: nodes.VarDecl) -> Variable:
    if decl.state_space.value != "shared":
        raise UnsupportedPtxError(
            f"variable {decl.name!r} is in .{decl.state_space.value}; the interpreter knows only "
            f".shared variables."
        )
    element = int(re.sub(r"\D", "", decl.type.value)) // 8
    count = 1 if decl.array_size is None else decl.array_size
    if decl.name.endswith("[]"):  # how pyptx gives an extern array, sized by the launch
        count = 0
    return Variable(decl.name.removesuffix("[]"), element * count, decl.alignment or element)


class _Reader:
    """Flattens nested scopes and finds each instruction's line again, which pyptx drops."""

    def __init__(self, text: str, source_lines: list[int]) -> None:
        self.statements: list[Statement] = []
        self.labels: dict[tuple[int, str], int] = {}
        self.scopes: list[tuple[int, dict[str, str]]] = []
        self.variables: list[nodes.VarDecl] = []
        self._lines = text.split("\n")
        self._source_lines = source_lines
        self._line = 0
        self._taken = 0

    def open_scope(self, parent: int) -> int:
        self.scopes.append((parent, {}))
        return len(self.scopes) - 1

    def read(self, body: Iterable[nodes.Statement], scope: int) -> None:
        for item in body:
            if isinstance(item, nodes.Instruction):
                self.statements.append(self._statement(item, scope))
            elif isinstance(item, nodes.RegDecl):
                self.scopes[scope][1].update(_registers(item))
            elif isinstance(item, nodes.Label):
                self.labels[scope, item.name] = len(self.statements)
            elif isinstance(item, nodes.VarDecl):
                self.variables.append(item)
            elif isinstance(item, nodes.Block):
                self.read(item.body, self.open_scope(scope))
            elif not isinstance(item, nodes.Comment | nodes.BlankLine | nodes.PragmaDirective):
                raise UnsupportedPtxError(f"the interpreter cannot read {item!r}.")

    def _statement(self, item: nodes.Instruction, scope: int) -> Statement:
        raw = (item.formatting.raw_line if item.formatting else None) or ""
        line = self._locate(raw)
        modifiers = tuple(part.removeprefix(".") for part in item.modifiers)
        guard = (item.predicate.register, item.predicate.negated) if item.predicate else None
        name = ".".join((item.opcode, *modifiers))
        source = self._source_lines[line]
        return Statement(
            item.opcode, modifiers, item.operands, guard, scope, line + 1, source, _one(raw, name)
        )

    def _locate(self, raw: str) -> int:
        """Index of the next line with unread instructions that equals the statement's first."""
        first = raw.split("\n", maxsplit=1)[0]
        while self._line < len(self._lines):
            if self._lines[self._line] == first and self._taken < _instructions_on(first):
                self._taken += 1
                return self._line
            self._line, self._taken = self._line + 1, 0
        raise UnsupportedPtxError(f"the PTX parser lost the line of {first.strip()!r}.")


def _instructions_on(line: str) -> int:
    """How many instructions start on a line."""
    parts = (part.strip(" \t{}") for part in line.split("//", maxsplit=1)[0].split(";"))
    return sum(1 for part in parts if part and not part.startswith("."))


def _one(raw: str, name: str) -> str:
    """The one statement of that name out of a raw line that may hold several."""
    for part in re.split(r"[;\n]", raw):
        found = part.find(name)
        if found >= 0:
            words = " ".join(part[found:].split())
            return words if words.count("}") == words.count("{") else words.rstrip(" }")
    return name


def _registers(decl: nodes.RegDecl) -> Iterator[tuple[str, str]]:
    """Name and type of every register of a declaration; pyptx keeps only the first name."""
    raw = (decl.formatting.raw_line if decl.formatting else None) or ""
    kind = decl.type.value
    for found in re.finditer(rf"\.reg\s+\.{kind}\s+([^;]+);", raw):
        names = [part.strip() for part in found[1].split(",")]
        if re.sub(r"<\d+>$", "", names[0]) == decl.name:
            for name in names:
                yield from ((item, kind) for item in _numbered(name))
            return
    count = "" if decl.count is None else f"<{decl.count}>"
    yield from ((item, kind) for item in _numbered(decl.name + count))


def _numbered(name: str) -> list[str]:
    """The names that a declared one stands for: a<2> is a0 and a1."""
    found = re.fullmatch(r"(.+)<(\d+)>", name)
    return [f"{found[1]}{index}" for index in range(int(found[2]))] if found else [name]
