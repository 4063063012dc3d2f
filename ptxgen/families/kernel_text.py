"""A whole kernel from its template: its PTX is put in, constants that nothing uses are left out."""

from __future__ import annotations

import re

from ptxgen.arch import ArchSpec
from ptxgen.families.template import render
from ptxgen.problem import Problem
from ptxgen.ptx.instruction import render_all
from ptxgen.ptx.registry import called_instructions
from ptxgen.source import ENTRY
from ptxgen.weights.layout import LAYOUT_VERSION, WEIGHT_BYTES, packed_layout

PTX_HERE = "//@ PTX\n"
"""The line of a template in whose place the functions of the PTX instructions come."""

_CONSTANT = re.compile(r"enum : \w+ \{ (\w+) = \w+ \};")
_CONSTANT_NAME = re.compile(r"\b[A-Z][A-Z0-9_]*\b")
_COMMENT = re.compile(r"//.*")


def kernel_text(template: str, problem: Problem, arch: ArchSpec, **values: object) -> str:
    """The whole translation unit.

    Args:
        template: see ptxgen.families.template.render; it has the line PTX_HERE once, behind the
            constants. The PTX that the text below it calls is put there.
        problem: what is computed.
        arch: what it is for.
        values: what the template calls by name, beside problem, arch, layout, entry,
            layout_version and weight_bytes.

    Raises:
        ArchError: an instruction that it calls does not exist on the arch.
    """
    usual = {
        "entry": ENTRY,
        "layout": packed_layout(problem),
        "layout_version": LAYOUT_VERSION,
        "weight_bytes": WEIGHT_BYTES,
    }
    text = render(template, problem=problem, arch=arch, **{**usual, **values})
    head, _, code = text.partition(PTX_HERE)
    functions = render_all(called_instructions(code, problem.dtype, arch), arch)
    code = f"{functions}\n{code}"
    used = set(_CONSTANT_NAME.findall(_COMMENT.sub("", code)))
    lines = [line for line in head.splitlines(keepends=True) if _is_used(line, used)]
    return "".join([*lines, code])


def _is_used(line: str, used: set[str]) -> bool:
    constant = _CONSTANT.match(line)
    return constant is None or constant[1] in used
