"""The exported formula, read by an interpreter of its own, finds every value of a packed weight."""

from __future__ import annotations

import ast
import json
import math
import operator
import re
import struct

import pytest
import torch

from ptxgen.problem import Problem
from ptxgen.reference import random_quantized
from ptxgen.weights.layout import packed_layout
from ptxgen.weights.layout_text import layout_formula, layout_words
from ptxgen.weights.pack import pack
from ptxgen.weights.quantize import QuantizedWeight
from ptxgen.weights.spread import spread

OPERATORS = {
    ast.Add: operator.add,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.Mod: operator.mod,
    ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_,
}


def value_of(node: ast.expr, names: dict[str, int]) -> int:
    if isinstance(node, ast.Constant):
        return int(node.value)  # type: ignore[arg-type]
    if isinstance(node, ast.Name):
        return names[node.id]
    assert isinstance(node, ast.BinOp)
    operate = OPERATORS[type(node.op)]
    return int(operate(value_of(node.left, names), value_of(node.right, names)))


def read_by_formula(words: dict[str, object], data: bytes, n: int, k: int) -> tuple[int, int, int]:
    """(q, zero, scale bits) at (n, k), following the formula's lines one after the other."""
    names = {name: value for name, value in words.items() if isinstance(value, int)}
    names |= {"n": n, "k": k}
    text = str(words["formula"]).replace("(uint32 at word)", "loaded_word")
    text = text.replace("zero byte >>", "loaded_zero >>")
    text = re.sub(r"group j = (.+) of the block:", r"j = \1", text.replace("For ", ""))
    for match in re.finditer(r"^ *(.+)$", text, re.MULTILINE):
        for part in re.split(r",  ", match.group(1)):
            placed = re.fullmatch(r"(scale|zero byte) at (.+)", part)
            named = re.fullmatch(r"(\w+) = ([^=]+)", part)
            if placed:
                offset = value_of(ast.parse(placed.group(2), mode="eval").body, names)
                if placed.group(1) == "scale":
                    names["scale"] = int.from_bytes(data[offset : offset + 2], "little")
                else:
                    names["loaded_zero"] = data[offset]
            elif named:
                names[named.group(1)] = value_of(ast.parse(named.group(2), mode="eval").body, names)
                if named.group(1) == "word":
                    word = data[names["word"] : names["word"] + 4]
                    names["loaded_word"] = int.from_bytes(word, "little")
    return names["q"], names["zero"], names["scale"]


@pytest.mark.parametrize("zero", ["sym", "int"])
@pytest.mark.parametrize("group", [32, 64, 128, 384])
@pytest.mark.parametrize("n", [72, 128])
def test_the_formula_finds_every_value(n: int, group: int, zero: str) -> None:
    problem = Problem(n, 384, group, "fp16", zero)  # type: ignore[arg-type]
    weight = random_quantized(problem, torch.Generator().manual_seed(n))
    data = bytes(pack(weight, problem).tolist())
    words = layout_words(problem)
    scales = weight.scales.view(torch.int16).tolist()
    zeros = weight.zeros.tolist() if weight.zeros is not None else None
    generator = torch.Generator().manual_seed(0)
    for feature in range(n):
        for k in torch.randint(0, 384, (6,), generator=generator).tolist():
            j = k // problem.group_size
            assert read_by_formula(words, data, feature, k) == (
                int(weight.q[feature, k]),
                8 if zeros is None else zeros[feature][j],
                scales[feature][j],
            )


FACTOR = re.compile(
    r"One factor a feature.*\n  fp16 at (.+)\n  its exponent field = (.+), its mantissa 0"
)


@pytest.mark.parametrize("zero", ["sym", "int"])
@pytest.mark.parametrize("group", [32, 128])
def test_the_formula_finds_every_row_factor(group: int, zero: str) -> None:
    """Which brings the row's largest scale, of any size, to 2^-9..2^-8 or is 2^12 * 2^3."""
    problem = Problem(72, 384, group, "fp16", zero)  # type: ignore[arg-type]
    weight = random_quantized(problem, torch.Generator().manual_seed(1))
    sizes = torch.tensor([2.0 ** (n % 25 - 9) for n in range(72)]).unsqueeze(1)
    weight.scales.mul_(sizes.half())
    data = bytes(pack(weight, problem).tolist())
    words = layout_words(problem)
    ((place, field),) = FACTOR.findall(str(words["formula"]))
    assert field == "min(30, 33 - exponent field of the row's largest scale)"
    assert spread(weight).wide_rows == 0
    found = set()
    for feature in range(72):
        names = {name: value for name, value in words.items() if isinstance(value, int)}
        names |= {"strip": feature // 64, "r": feature % 64 // 16}
        names |= {"h": feature % 16 // 8, "g": feature % 8}
        offset = value_of(ast.parse(place, mode="eval").body, names)
        (factor,) = struct.unpack_from("<e", data, offset)
        assert math.frexp(factor)[0] == 0.5
        largest = float(weight.scales[feature].abs().max()) * factor / 2**12
        assert 2.0**-9 <= largest < 2.0**-8 or (factor == 2.0**15 and largest < 2.0**-9)
        found.add(factor)
    assert len(found) > 15


@pytest.mark.parametrize("problem", [Problem(64, 128, 128, "bf16"), Problem(64, 96, 96)])
def test_other_layouts_have_no_row_factors(problem: Problem) -> None:
    assert "factor" not in layout_formula(problem)
    assert packed_layout(problem).factor_bytes == 0


def test_words_are_json_and_carry_the_sizes() -> None:
    problem = Problem(4096, 4096, 128, "bf16", "int")
    words = layout_words(problem)
    assert json.loads(json.dumps(words)) == words
    assert words["TOTAL_BYTES"] == packed_layout(problem).total_bytes == 64 * 32 * (4096 + 160)
    assert words["formula"] == layout_formula(problem)


def test_the_reader_would_notice_a_wrong_formula() -> None:
    problem = Problem(64, 128, 128)
    q = torch.arange(64 * 128, dtype=torch.int32).view(64, 128).remainder(15).to(torch.uint8)
    weight = QuantizedWeight(q, torch.ones(64, 1, dtype=torch.float16))
    data = bytes(pack(weight, problem).tolist())
    words = layout_words(problem)
    words["formula"] = str(words["formula"]).replace("2 * b + 4 * c", "2 * c + 4 * b")
    assert any(
        read_by_formula(words, data, n, k)[0] != int(q[n, k]) for n in range(4) for k in range(16)
    )
