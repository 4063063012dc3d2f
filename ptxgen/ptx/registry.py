"""Which PTX instruction a device function's name stands for, found in this package by itself.

Every function of the modules below that returns an Instruction is one entry. Its parameters say how
it is looked up: `dtype` and `arch` are those of the kernel, `half` is tried both ways, and a number
is read from the name, such as the 3 of cp_async_wait_3.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from types import ModuleType

from ptxgen.arch import ARCHS, ArchSpec
from ptxgen.problem import Dtype
from ptxgen.ptx import (
    bulk,
    cluster,
    cp_async,
    global_memory,
    launch_control,
    matrix_move,
    mbarrier,
    mma,
    named_barrier,
    packed16,
    registers,
    shared,
    shuffle,
    tensor,
    tile_counter,
    wgmma,
)
from ptxgen.ptx.instruction import Instruction

MODULES = (
    bulk,
    cluster,
    cp_async,
    global_memory,
    launch_control,
    matrix_move,
    mbarrier,
    mma,
    named_barrier,
    packed16,
    registers,
    shared,
    shuffle,
    tensor,
    tile_counter,
    wgmma,
)
SAMPLE = 24
"""A number that every numbered instruction takes, to learn how its name is made."""

Maker = Callable[..., Instruction]

_COMMENT = re.compile(r"//.*")
_CALL = re.compile(r"\b([a-z]\w*)\(")


@lru_cache(maxsize=4096)
def instruction_named(name: str, dtype: Dtype, arch: ArchSpec) -> Instruction | None:
    """The instruction of a device function's name; None where there is none of that name.

    Args:
        name: as C++ calls it, such as "cp_async_wait_3".
        dtype: of the kernel that calls it.
        arch: that the kernel is for.

    Raises:
        ConfigError: the number in the name is none that the instruction takes.
    """
    fixed, numbered = _entries()
    values: dict[str, object] = {"dtype": dtype, "arch": arch}
    if name in fixed:
        return _made(*fixed[name], values)
    for pattern, maker, number in numbered:
        if found := pattern.fullmatch(name):
            return _made(maker, {number: int(found[1])}, values)
    return None


def called_instructions(code: str, dtype: Dtype, arch: ArchSpec) -> list[Instruction]:
    """The instructions that C++ code calls, each once, in the order of their first calls."""
    names = dict.fromkeys(_CALL.findall(_COMMENT.sub("", code)))
    found = (instruction_named(name, dtype, arch) for name in names)
    return [instruction for instruction in found if instruction is not None]


def makers(module: ModuleType) -> Iterator[Maker]:
    """The functions of a module that make an instruction of a fixed or a numbered name."""
    for name, function in vars(module).items():
        if name.startswith("_") or not inspect.isfunction(function):
            continue
        signature = inspect.signature(function)
        own = function.__module__ == module.__name__
        if own and signature.return_annotation == "Instruction" and "name" not in _taken(function):
            yield function


@lru_cache(maxsize=1)
def _entries() -> tuple[
    dict[str, tuple[Maker, dict[str, object]]], list[tuple[re.Pattern[str], Maker, str]]
]:
    fixed: dict[str, tuple[Maker, dict[str, object]]] = {}
    numbered = []
    sample: dict[str, object] = {"dtype": "fp16", "arch": ARCHS["sm_90a"]}
    for maker in (maker for module in MODULES for maker in makers(module)):
        numbers = _taken(maker) - {"dtype", "arch", "half"}
        if numbers:
            (number,) = numbers
            name = _made(maker, {number: SAMPLE}, sample).name
            pattern = re.compile(re.escape(name).replace(str(SAMPLE), r"(\d+)"))
            numbered.append((pattern, maker, number))
            continue
        halves = ("low", "high") if "half" in _taken(maker) else (None,)
        for half in halves:
            given: dict[str, object] = {} if half is None else {"half": half}
            fixed[_made(maker, given, sample).name] = (maker, given)
    return fixed, numbered


def _taken(maker: Maker) -> set[str]:
    return set(inspect.signature(maker).parameters)


def _made(maker: Maker, given: dict[str, object], values: dict[str, object]) -> Instruction:
    taken = _taken(maker)
    made = maker(**{**given, **{name: values[name] for name in values if name in taken}})
    about = (inspect.getdoc(maker) or "").partition("\n\n")[0]
    for name, value in given.items():
        about = about.replace(f"`{name}`", str(value))
    return replace(made, about=about)
