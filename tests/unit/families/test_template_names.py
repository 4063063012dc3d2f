"""A reader of a template finds every name declared above its use, or told as another's."""

from __future__ import annotations

from pathlib import Path

import pytest
from emitted.names import code_of, declared, flattened, foreign, told

from ptxgen.families import FAMILIES
from ptxgen.families.template import TEMPLATES

KERNELS = ["dequantize/kernel.cu.jinja", *(f"families/{name}/kernel.cu.jinja" for name in FAMILIES)]
SECTIONS = sorted(
    path
    for path in TEMPLATES.glob("families/**/*.cu.jinja")
    if str(path.relative_to(TEMPLATES)) not in KERNELS
)


@pytest.mark.parametrize("name", KERNELS)
def test_every_name_is_declared_above(name: str) -> None:
    text = flattened(name)
    assert len(declared(code_of(text))) > 20
    assert foreign(text) == []


@pytest.mark.parametrize("name", KERNELS)
def test_a_line_moved_up_is_noticed(name: str) -> None:
    entry, rest = flattened(name).split('extern "C"')
    assert "lane" in foreign(f'{entry}void early() {{ int a = lane; }}\nextern "C"{rest}')


@pytest.mark.parametrize("path", SECTIONS, ids=lambda path: path.name)
def test_a_section_tells_what_it_uses_of_the_kernel(path: Path) -> None:
    text = path.read_text()
    assert told(text) == foreign(text)


def test_declarations_are_seen() -> None:
    code = """\
    const int a = f(x, y), b[4] = {1, 2}, *c = d;
    auto go = [&](u32 (&from)[4], int to) {
      for (u32 i = 0, j; i < a; ++i) e;
    };
    float sum;
    """
    assert set(declared(code)) == {"a", "b", "c", "go", "from", "to", "i", "j", "sum"}
