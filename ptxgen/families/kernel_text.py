"""A whole kernel from its template: its PTX is put in, constants that nothing uses are left out."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ptxgen.arch import ArchSpec
from ptxgen.families.template import render
from ptxgen.ptx.instruction import Instruction, render_all
from ptxgen.source import ENTRY
from ptxgen.weights.layout import LAYOUT_VERSION, WEIGHT_BYTES

PTX_HERE = "//@ PTX\n"
"""The line of a template in whose place the functions of the PTX instructions come."""

CONSTANT = re.compile(r"enum : int \{ (\w+) = \d+ \};")
CONSTANT_NAME = re.compile(r"\b[A-Z][A-Z0-9_]*\b")


def kernel_text(
    template: str, arch: ArchSpec, instructions: Iterable[Instruction], **values: object
) -> str:
    """The whole translation unit.

    Args:
        template: see ptxgen.families.template.render; it has the line PTX_HERE once, behind the
            constants.
        arch: what it is for.
        instructions: PTX that it calls.
        values: what the template calls by name, beside arch, entry, layout_version and
            weight_bytes.

    Raises:
        ArchError: an instruction does not exist on the arch.
    """
    constants = {
        "entry": ENTRY,
        "layout_version": LAYOUT_VERSION,
        "weight_bytes": WEIGHT_BYTES,
    }
    text = render(template, arch=arch, **{**constants, **values})
    head, _, code = text.partition(PTX_HERE)
    code = f"{render_all(instructions, arch)}\n{code}"
    used = set(CONSTANT_NAME.findall(code))
    lines = [line for line in head.splitlines(keepends=True) if _is_used(line, used)]
    return "".join([*lines, code])


def _is_used(line: str, used: set[str]) -> bool:
    constant = CONSTANT.match(line)
    return constant is None or constant[1] in used
