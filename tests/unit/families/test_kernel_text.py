"""What holds of every emitted text: nothing is declared in vain, nothing is missing."""

from __future__ import annotations

import re
from collections import Counter
from itertools import islice

import pytest
from emitted.samples import AnyBlock, DenseBlock, ResultsBlock, blocks
from jinja2 import UndefinedError

from ptxgen.families.template import ENVIRONMENT, deeper, render

BLOCKS = [block for block in blocks() if not isinstance(block, ResultsBlock)]
COMMENT = re.compile(r"//.*")
DECLARED = re.compile(r"enum : \w+ \{ (\w+) =|constexpr int (\w+) =")
FUNCTION = re.compile(r"^__device__ __forceinline__ [\w ]+?(\w+)\(", re.MULTILINE)


def code_of(text: str) -> str:
    """The text without its comments."""
    return COMMENT.sub("", text)


@pytest.mark.sampled(every=12)
@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.name)
def test_constants_and_functions_are_used(block: AnyBlock) -> None:
    kernels = islice(block.kernels(), 0, None, 1 if isinstance(block, DenseBlock) else 5)
    for name, source in kernels:
        code = code_of(source.text)
        names = [first or second for first, second in DECLARED.findall(code)]
        names += set(FUNCTION.findall(code))
        assert len(names) > 5, name
        uses = Counter(re.findall(r"\w+", code))
        vain = [item for item in names if uses[item] == 1]
        assert not vain, name


def test_a_name_without_a_value_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="problem"):
        render("dequantize/kernel.cu.jinja")


def test_statements_and_comments_of_a_template_leave_nothing_behind() -> None:
    text = "a\n//% if yes\n  b << 2;  // ${n} {c}\n//% endif\n/*# for readers #*/\n{x{1}};\n"
    assert ENVIRONMENT.from_string(text).render(yes=True, n=3) == (
        "a\n  b << 2;  // 3 {c}\n{x{1}};\n"
    )


def test_directives_stay_at_the_start_of_their_lines() -> None:
    assert deeper("a;\n#pragma unroll\n\n  b;\n") == "  a;\n#pragma unroll\n\n    b;\n"
