"""Runs the emitted dequantization of wgmma_tma in Python: C statements, the PTX that they call, and
what the epilogue multiplies by. Arrays for registers; exact arithmetic, rounded where PTX rounds.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.arch import ARCHS
from ptxgen.families.wgmma_tma.config import WgmmaTmaConfig
from ptxgen.families.wgmma_tma.emit import emit
from ptxgen.problem import Problem

CONFIG = WgmmaTmaConfig(
    block_m=64,
    block_n=64,
    warpgroups=1,
    num_stages=4,
    chunk=2,
    split_k=1,
    multicast=1,
    min_ctas=1,
    max_ctas=0,
)
Words = NDArray[np.uint32]
Floats = NDArray[np.float64]

PTX = re.compile(r'u32 (\w+)\([^)]*\) \{\n  u32 d;\n  asm\("([^"]*)"\n +: "=r"')
SPLIT = re.compile(r"mov\.b32 \{(\w), (\w)\}, (\S+)")
JOIN = re.compile(r"mov\.b32 (\S+), \{(\w), (\w)\}")
ARITHMETIC = re.compile(r"(fma|sub|mul)\.rn\.(b?f16)x2 (.+)")
CONSTANT = re.compile(r"enum : u32 \{ (\w+) = (0x\w+) \};")
BODY = re.compile(
    r"void dequantize\(u32 \(&a\)\[4\], u32 word, u32 (\w+), u32 (\w+)\) \{\n(.*?)\n\}", re.DOTALL
)
CALL = re.compile(r" dequantize\(a\[.*\], words\[.*\], (\w+)\[\w+\], (\w+)\[\w+\]\);")
ASSIGNED = re.compile(
    r"^ +(?:const u32 )?(scale|zero|group_\w+)(?:\[\w+\])? = \{?([^{};\n]+)\}?;$", re.MULTILINE
)
STATEMENT = re.compile(r"a\[(\d)\] = (.+);|word >>= (\d+);")
UNIT = re.compile(r"(unit_[08])\[rb\] (\*?)= (.+?)(?:, (?=unit)|;)")
APPLIED = re.compile(r" v0 \*= (.+), v1 \*= (.+), v2 \*= (.+), v3 \*= (.+);")
HEX_FLOAT = re.compile(r"(-?0x\w+p-?\d+)f")

OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}


@dataclass(frozen=True)
class Half:
    """A 16-bit format: bits of the significand, exponents of the smallest and largest binade."""

    precision: int
    lowest: int
    highest: int

    @property
    def smallest(self) -> float:
        """The smallest subnormal number."""
        return 2.0 ** (self.lowest - self.precision + 1)

    def values(self, bits: NDArray[np.integer[Any]]) -> Floats:
        """Of finite bits."""
        fraction_bits = self.precision - 1
        fraction = (bits & (2**fraction_bits - 1)).astype(np.float64)
        field = ((bits & 0x7FFF) >> fraction_bits).astype(np.int64)
        whole = np.where(field > 0, fraction + 2**fraction_bits, fraction)
        size = np.ldexp(whole, np.maximum(field, 1) - 1 + self.lowest - fraction_bits)
        return np.where(bits & 0x8000, -size, size)

    def round(self, values: Floats) -> Floats:
        """To nearest, ties to even, once."""
        exponent = np.maximum(np.frexp(values)[1] - 1, self.lowest) - (self.precision - 1)
        rounded = np.ldexp(np.rint(np.ldexp(values, -exponent)), exponent)
        assert np.all(np.abs(rounded) < 2.0 ** (self.highest + 1)), "no infinities here"
        return rounded

    def bits(self, values: Floats) -> Words:
        """Of numbers of the format."""
        size = np.abs(values)
        exponent = np.maximum(np.frexp(size)[1] - 1, self.lowest)
        exponent = np.where(size == 0, self.lowest, exponent)
        units = np.ldexp(size, self.precision - 1 - exponent).astype(np.int64)
        found = (exponent - self.lowest << self.precision - 1) + units
        return (found | np.where(np.signbit(values), 0x8000, 0)).astype(np.uint32)


HALVES = {"fp16": Half(11, -14, 15), "bf16": Half(8, -126, 127)}


def exact_fma(a: Floats, b: Floats, c: Floats) -> Floats:
    """a * b + c of 16-bit floats, which must need no more than the 53 bits of a double."""
    product = a * b  # 22 bits
    total = product + c
    other = total - product
    assert np.all((product - (total - other)) + (c - other) == 0)
    return total


class EmittedDequantize:
    """The dequantization of a problem, as its kernel's text has it."""

    def __init__(self, problem: Problem) -> None:
        self.text = emit(problem, CONFIG, ARCHS["sm_90a"]).text
        self.half = HALVES[problem.dtype]
        self.constants = {
            name: np.uint32(int(bits, 16)) for name, bits in CONSTANT.findall(self.text)
        }
        self.ptx = dict(PTX.findall(self.text))
        first, second, body = BODY.findall(self.text)[0]
        self.parameters, self.statements = (first, second), STATEMENT.findall(body)
        assert len(self.statements) == 5

    def weights(self, word: Words, scales: Words, zeros: Words, factors: Words) -> list[Floats]:
        """The eight values of a word, in the order of its nibbles, in the kernel's unit.

        Args:
            word: packed nibbles.
            scales: of features g (low half) and g + 8, as they are packed.
            zeros: bytes of two zero points, as they are packed.
            factors: the two row factors.
        """
        names = {
            **self.constants,
            "scales": scales,
            "zeros": zeros,
            "zero": zeros,
            "factors": factors,
        }
        for name, expression in ASSIGNED.findall(self.text):
            names[name] = self._value(expression, names)
        ((first, second),) = CALL.findall(self.text)
        inner = dict(zip(self.parameters, (names[first], names[second]), strict=True))
        inner["word"] = word
        registers: dict[int, Words] = {}
        for index, expression, shift in self.statements:
            if shift:
                inner["word"] = inner["word"] >> np.uint32(int(shift))
            else:
                registers[int(index)] = self._value(expression, inner)
        low = [self.half.values(registers[index] & np.uint32(0xFFFF)) for index in range(4)]
        high = [self.half.values(registers[index] >> np.uint32(16)) for index in range(4)]
        return low + high

    def inverse_units(self, scales: Words, factors: Words) -> list[Floats]:
        """What the epilogue multiplies sums by: of features g and g + 8, two tokens each."""
        names: dict[str, Any] = {"factors": factors}
        if "unpack_to_float(unit_0[rb], unit_8[rb]," in self.text:
            names["unit_0"] = self.half.values(scales & np.uint32(0xFFFF))
            names["unit_8"] = self.half.values(scales >> np.uint32(16))
        for name, times, expression in UNIT.findall(self.text):
            found = self._value(expression, names)
            names[name] = names[name] * found if times else found
        ((v0, v1, v2, v3),) = APPLIED.findall(self.text)
        units = [np.asarray(self._value(v, names), np.float64) for v in (v0, v1, v2, v3)]
        assert all(np.array_equal(unit, unit.astype(np.float32)) for unit in units)
        return units

    def _value(self, expression: str, names: dict[str, Any]) -> Any:
        if found := HEX_FLOAT.fullmatch(expression):
            return float.fromhex(found.group(1))
        return self._of(ast.parse(expression, mode="eval").body, names)

    def _of(self, node: ast.expr, names: dict[str, Any]) -> Any:
        if isinstance(node, ast.Constant):
            return np.uint32(node.value)  # type: ignore[arg-type]
        if isinstance(node, ast.Subscript):  # which row block and which group are not looked at
            return self._of(node.value, names)
        if isinstance(node, ast.Name):
            return names[node.id]
        if isinstance(node, ast.Call):
            assert isinstance(node.func, ast.Name)
            return self._called(node.func.id, [self._of(item, names) for item in node.args])
        assert isinstance(node, ast.BinOp)
        return OPERATORS[type(node.op)](self._of(node.left, names), self._of(node.right, names))

    def _called(self, name: str, arguments: list[Any]) -> Any:
        if name == "__uint_as_float":
            return arguments[0].view(np.float32).astype(np.float64)
        if name == "inverse_factor":
            ((parameter, returned),) = re.findall(
                r"float inverse_factor\(u32 (\w+)\) \{\n  return (.+);\n\}", self.text
            )
            return self._value(returned, {parameter: arguments[0]})
        return self._run_ptx(self.ptx[name], arguments)

    def _run_ptx(self, ptx: str, arguments: list[Words]) -> Words:
        registers: dict[str, Any] = {f"%{i}": value for i, value in enumerate(arguments, start=1)}
        body = re.sub(r"^\{ | \}$", "", ptx)
        for statement in filter(None, map(str.strip, body.split(";"))):
            if found := SPLIT.fullmatch(statement):
                low, high, source = found.groups()
                registers[low] = registers[source] & np.uint32(0xFFFF)
                registers[high] = registers[source] >> np.uint32(16)
            elif found := JOIN.fullmatch(statement):
                target, low, high = found.groups()
                registers[target] = registers[low] | registers[high] << np.uint32(16)
            elif found := ARITHMETIC.fullmatch(statement):
                target, *sources = found.group(3).split(", ")
                assert HALVES[{"f16": "fp16", "bf16": "bf16"}[found.group(2)]] == self.half
                registers[target] = self._packed(found.group(1), [registers[s] for s in sources])
            else:
                assert statement.startswith(".reg "), statement
        return np.asarray(registers["%0"], np.uint32)

    def _packed(self, operation: str, words: list[Words]) -> Words:
        results = []
        for shift in (0, 16):
            parts = [word >> np.uint32(shift) & np.uint32(0xFFFF) for word in words]
            a, b, *c = (self.half.values(part) for part in parts)
            exact = {
                "fma": lambda a, b, c: exact_fma(a, b, *c),
                "mul": lambda a, b, c: a * b,
                "sub": lambda a, b, c: exact_fma(a, np.ones_like(a), -b),
            }[operation](a, b, c)
            results.append(self.half.bits(self.half.round(exact)))
        return results[0] | results[1] << np.uint32(16)
