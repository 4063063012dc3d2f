"""Random operands for the comparison with hardware: every kind with its corners."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ptxgen.interp.hardware_cases import Values

_CORNERS32 = (0, 1, 2, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFF, 0xFFFF, 0x10000)
_FLOATS = (0.0, -0.0, 1.0, -1.0, 65504.0, 65520.0, 6e-8, 1e-45, 3.4e38, np.inf, -np.inf, np.nan)
Words = NDArray[np.uint64]


def operand(values: Values, count: int, rng: np.random.Generator) -> Words:
    """`count` operands of a kind, each in 8 bytes."""
    return _KINDS[values](count, rng)


def _bits(count: int, rng: np.random.Generator) -> Words:
    words = rng.integers(0, 2**32, count, dtype=np.uint64)
    words[rng.random(count) < 0.1] = rng.choice(np.array(_CORNERS32, dtype=np.uint64))
    return _with(words, np.array(_CORNERS32, dtype=np.uint64), rng)


def _bits64(count: int, rng: np.random.Generator) -> Words:
    return _bits(count, rng) << np.uint64(32) | _bits(count, rng)


def _nonzero(count: int, rng: np.random.Generator) -> Words:
    words = _bits(count, rng)
    return np.where(words == 0, np.uint64(3), words)


def _shift(count: int, rng: np.random.Generator) -> Words:
    return rng.integers(0, 71, count, dtype=np.uint64)


def _copy_size(count: int, rng: np.random.Generator) -> Words:
    return rng.integers(0, 5, count, dtype=np.uint64)


def _f32(count: int, rng: np.random.Generator) -> Words:
    wild = rng.integers(0, 2**32, count, dtype=np.uint32)
    near = (rng.standard_normal(count) * 2.0 ** rng.integers(-20, 20, count)).astype(np.float32)
    mixed = np.where(rng.random(count) < 0.5, wild, near.view(np.uint32))
    return _with(mixed.astype(np.uint64), _patterns(), rng)


def _f32_unit(count: int, rng: np.random.Generator) -> Words:
    return rng.standard_normal(count).astype(np.float32).view(np.uint32).astype(np.uint64)


def _half(bf16: bool, nan: bool = True) -> Callable[[int, np.random.Generator], Words]:
    """16-bit floats: half of them any bits, half of a common size; one in ten a corner."""
    quiet = 0x7F80 if bf16 else 0x7C00

    def draw(count: int, rng: np.random.Generator) -> Words:
        wild = rng.integers(0, 2**16, count, dtype=np.uint64)
        near = _unit(bf16)(count, rng)
        words = np.where(rng.random(count) < 0.5, wild, near)
        corners = np.array([0, 0x8000, 1, quiet - 1, quiet, quiet | 0x8000, 0x7FFF], np.uint64)
        words = _with(words, corners, rng)
        is_nan = (words & np.uint64(0x7FFF)) > np.uint64(quiet)
        return words if nan else np.where(is_nan, np.uint64(quiet), words)

    return draw


def _unit(bf16: bool) -> Callable[[int, np.random.Generator], Words]:
    def draw(count: int, rng: np.random.Generator) -> Words:
        values = rng.standard_normal(count).astype(np.float32)
        if bf16:
            return (values.view(np.uint32) >> np.uint32(16)).astype(np.uint64)
        return values.astype(np.float16).view(np.uint16).astype(np.uint64)

    return draw


def _pair(
    half: Callable[[int, np.random.Generator], Words],
) -> Callable[[int, np.random.Generator], Words]:
    return lambda count, rng: half(count, rng) | half(count, rng) << np.uint64(16)


def _patterns() -> Words:
    return np.array(_FLOATS, dtype=np.float32).view(np.uint32).astype(np.uint64)


def _with(words: Words, corners: Words, rng: np.random.Generator) -> Words:
    """One word in ten becomes a corner."""
    return np.where(rng.random(len(words)) < 0.1, rng.choice(corners, len(words)), words)


_KINDS: dict[Values, Callable[[int, np.random.Generator], Words]] = {
    "bits": _bits,
    "bits64": _bits64,
    "nonzero": _nonzero,
    "shift": _shift,
    "copy_size": _copy_size,
    "f32": _f32,
    "f32_unit": _f32_unit,
    "f16": _half(bf16=False),
    "bf16": _half(bf16=True),
    "f16x2": _pair(_half(bf16=False)),
    "bf16x2": _pair(_half(bf16=True)),
    "f16_number": _half(bf16=False, nan=False),
    "bf16_number": _half(bf16=True, nan=False),
    "f16x2_number": _pair(_half(bf16=False, nan=False)),
    "bf16x2_number": _pair(_half(bf16=True, nan=False)),
    "f16x2_unit": _pair(_unit(bf16=False)),
    "bf16x2_unit": _pair(_unit(bf16=True)),
}
