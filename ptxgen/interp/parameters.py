"""Kernel arguments by value that are structures: their layout, their addresses and their bytes.

A kernel takes the address of such a parameter (PTX ISA, "cvta"); instructions that read through it
see the bytes the launch passed. Parameters of 16 to 64 bits live in registers instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ptxgen.errors import MisalignedError, OutOfBoundsError

PARAM_WINDOW = 0x7F00_0000_0000
"""Generic address of parameter address 0."""


class Structure(NamedTuple):
    """A parameter that is a structure: which one, and where in the parameter window it lies."""

    number: int
    name: str
    offset: int
    nbytes: int


def placed(sizes: Sequence[tuple[int, str, int, int]]) -> tuple[Structure, ...]:
    """Structures one behind the other, each aligned.

    Args:
        sizes: number among the arguments, name, bytes and alignment of each.
    """
    found, end = [], 0
    for number, name, nbytes, align in sizes:
        offset = -(-end // align) * align
        found.append(Structure(number, name, offset, nbytes))
        end = offset + nbytes
    return tuple(found)


class Parameters:
    """The structures of one launch."""

    def __init__(self, structures: Sequence[Structure], args: Sequence[int | bytes]) -> None:
        """Raises ValueError where an argument is not the bytes of its structure."""
        self._held: list[tuple[int, bytes]] = []
        for structure in structures:
            value = args[structure.number]
            if not isinstance(value, bytes) or len(value) != structure.nbytes:
                raise ValueError(
                    f"argument {structure.number} ({structure.name}) must be {structure.nbytes} "
                    f"bytes, not {value!r:.60}"
                )
            self._held.append((PARAM_WINDOW + structure.offset, value))

    def read(self, address: int, nbytes: int, align: int) -> bytes:
        """Bytes at a generic address. Raises OutOfBoundsError, MisalignedError."""
        for start, value in self._held:
            if start <= address and address + nbytes <= start + len(value):
                if address % align:
                    raise MisalignedError(
                        f"parameter address {address:#x} is no multiple of {align} bytes."
                    )
                return value[address - start : address - start + nbytes]
        raise OutOfBoundsError(
            f"{nbytes} bytes at generic address {address:#x} lie in no parameter of the kernel; "
            f"cvta.param makes a generic address of a parameter's."
        )
