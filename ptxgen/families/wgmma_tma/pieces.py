"""Pieces of text that every emitted kernel starts with: its heading, types and constants."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Protocol

from ptxgen.arch import ArchSpec
from ptxgen.problem import Problem
from ptxgen.weights.layout import LAYOUT_VERSION

TYPES = """\
typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
"""


class Keyed(Protocol):
    """A config, as far as a heading names it."""

    def key(self) -> str:
        """Readable unique key."""
        ...


def heading(problem: Problem, config: Keyed, arch: ArchSpec, about: str) -> str:
    """Comment lines that say what the kernel is and what it was made from; `about` is the last."""
    return f"""\
// ptxtune W4A16: y[m, N] = x[m, K] @ W[N, K]^T, weights dequantized in registers.
// problem: {problem.key()}
// config:  {config.key()}
// target:  {arch.name}; packed layout version {LAYOUT_VERSION}
//
{about}"""


def declared(rows: Iterable[tuple[str, int, str]], code: str) -> list[str]:
    """Declarations of the constants that the code uses; an enum takes no memory.

    Args:
        rows: name, value and what it means ("" where the name says it).
        code: the text that may use them.
    """
    return [
        f"enum : int {{ {name} = {value} }};{f'  // {what}' if what else ''}"
        for name, value, what in rows
        if re.search(rf"\b{name}\b", code)
    ]


KEEP_ALIVE = """\
// Pins a register in the compiler's eyes: it is not given away before this point.
__device__ __forceinline__ void keep_alive(u32& value) { asm volatile("" : "+r"(value)::"memory"); }
__device__ __forceinline__ void keep_alive(float& value) { asm volatile("" : "+f"(value)::"memory"); }
"""
