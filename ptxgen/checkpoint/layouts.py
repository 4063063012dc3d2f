"""Layers that keep a `qweight`: which of the layouts of that name the shapes allow.

AWQ and GPTQ use the same tensor names for different layouts, and in a square layer two AWQ layouts
have a qweight of the same shape. So the config names the layout, and all shapes must agree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ptxgen.checkpoint.stored import INTEGERS, WHOLE_K, StoredLayer
from ptxgen.errors import CheckpointError

GEMV_PADDING = {32: 4, 64: 2}
"""AWQ gemv pads the words of a row's zero points to a multiple of this, by group size."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A layer's N, K and group size (K where it is one group)."""

    n: int
    k: int
    group_size: int


def gemv_zero_words(groups: int, group_size: int) -> int:
    """Words of 8 zero points that AWQ gemv keeps for a row of so many groups."""
    multiple = GEMV_PADDING.get(group_size, 1)
    words = -(-groups // 8)
    return -(-words // multiple) * multiple


def check_layout(stored: StoredLayer, group: int, declared: str, source: str) -> Shape:
    """The layer's dimensions, if its tensors can be of the declared layout.

    Args:
        stored: a layer with a qweight.
        group: group size of the config, WHOLE_K for one group.
        declared: a key of LAYOUTS.
        source: the config file, for messages.

    Raises:
        CheckpointError: the shapes contradict the config.
    """
    fitting = fitting_layouts(stored, group)
    if declared in fitting:
        return fitting[declared]
    other = " or ".join(fitting) or "none that is known"
    group_words = "-1 (whole K)" if group == WHOLE_K else str(group)
    raise CheckpointError(
        f"layer {stored.name} contradicts {source}: that says {declared} with group size "
        f"{group_words}, but its tensors ({stored.words()}) have the layout of {other}. Correct "
        f"the config, or download the checkpoint again."
    )


def fitting_layouts(stored: StoredLayer, group: int) -> dict[str, Shape]:
    """Every layout that the shapes and dtypes of a layer allow."""
    for suffix in ("qweight", "scales"):
        stored.need(suffix, 2)
    found = ((name, fits(stored, group)) for name, fits in LAYOUTS.items())
    return {name: shape for name, shape in found if shape is not None}


def _awq_gemm(stored: StoredLayer, group: int) -> Shape | None:
    k, words = _pair(stored, "qweight")
    groups, n = _pair(stored, "scales")
    size = k if group == WHOLE_K else group
    fits = (
        stored.dtype("qweight") == "I32"
        and n == 8 * words
        and groups * size == k
        and _zeros_are(stored, (groups, words), "I32")
    )
    return Shape(n, k, size) if fits else None


def _awq_gemv(stored: StoredLayer, group: int) -> Shape | None:
    n, words = _pair(stored, "qweight")
    k = 8 * words
    size = k if group == WHOLE_K else group
    width = gemv_zero_words(k // size, size) if k % size == 0 else 0
    fits = (
        stored.dtype("qweight") == "I32"
        and width > 0
        and stored.shape("scales") == (n, 8 * width)
        and _zeros_are(stored, (n, width), "I32")
    )
    return Shape(n, k, size) if fits else None


def _awq_gemv_fast(stored: StoredLayer, group: int) -> Shape | None:
    quarter, k = _pair(stored, "qweight")
    n = 4 * quarter
    size = k if group == WHOLE_K else group
    width = gemv_zero_words(k // size, size) if k % size == 0 else 0
    zeros = "scaled_zeros" if "scaled_zeros" in stored else "qzeros"
    fits = (
        stored.dtype("qweight") == "I16"
        and k % 64 == 0
        and width > 0
        and stored.shape("scales") == (8 * width, n) == stored.shape(zeros)
        and stored.dtype(zeros) == stored.dtype("scales")
    )
    return Shape(n, k, size) if fits else None


def _gptq(stored: StoredLayer, group: int) -> Shape | None:
    rows, n = _pair(stored, "qweight")
    per_word = 2 * INTEGERS.get(stored.dtype("qweight"), 0)
    if not per_word:
        return None
    indices = stored.shape("g_idx")
    k = indices[0] if indices and indices[0] else per_word * rows
    size = k if group == WHOLE_K else group
    groups = -(-k // size)
    fits = (
        -(-k // per_word) == rows
        and stored.shape("scales") == (groups, n)
        and _zeros_are(stored, (groups, -(-n // per_word)), stored.dtype("qweight"))
    )
    return Shape(n, k, size) if fits else None


def _pair(stored: StoredLayer, suffix: str) -> tuple[int, int]:
    shape = stored.shape(suffix)
    if shape is None or len(shape) != 2:
        raise CheckpointError(f"layer {stored.name} has no {suffix} of two dimensions.")
    return shape[0], shape[1]


def _zeros_are(stored: StoredLayer, shape: tuple[int, int], dtype: str) -> bool:
    """True where zero points are absent or are as they should be."""
    return "qzeros" not in stored or (
        stored.shape("qzeros") == shape and stored.dtype("qzeros") == dtype
    )


LAYOUTS: dict[str, Callable[[StoredLayer, int], Shape | None]] = {
    "AWQ gemm": _awq_gemm,
    "AWQ gemv": _awq_gemv,
    "AWQ gemv_fast": _awq_gemv_fast,
    "GPTQ": _gptq,
}
