"""Kernel templates: CUDA C++ files that Jinja2 fills in.

`${name}` is a value; a line that starts with `//%` is a statement of Jinja2 and leaves nothing
behind, not even the blank lines that follow it: a blank line that is wanted stands before it.
`/*# ... #*/` is a comment for readers of the template alone. A name that has no value is an error,
not an empty text.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

TEMPLATES = Path(__file__).parents[1]
"""Templates are named by their path below the package ptxgen."""

ENVIRONMENT = Environment(
    loader=FileSystemLoader(TEMPLATES),
    autoescape=False,  # noqa: S701  (what it writes is C++)
    undefined=StrictUndefined,
    variable_start_string="${",
    variable_end_string="}",
    block_start_string="/*%",
    block_end_string="%*/",
    comment_start_string="/*#",
    comment_end_string="#*/",
    line_statement_prefix="//%",
    trim_blocks=True,
    keep_trailing_newline=True,
    auto_reload=False,
    cache_size=-1,
)


def deeper(text: str) -> str:
    """The text inside one more pair of braces; directives stay at the start of their lines."""
    lines = text.splitlines(keepends=True)
    return "".join(line if line.startswith(("#", "\n")) else f"  {line}" for line in lines)


ENVIRONMENT.filters["deeper"] = deeper


@lru_cache
def _template(name: str) -> Template:
    return ENVIRONMENT.get_template(name)


def render(name: str, **values: object) -> str:
    """The text of a template.

    Args:
        name: its path below ptxgen, such as "families/mma/kernel.cu.jinja".
        values: what it calls by name; their attributes and methods may be used too.

    Raises:
        jinja2.UndefinedError: the template uses a name that has no value.
    """
    return _template(name).render(values)
