"""Scales in another dtype than they were stored in: converted explicitly, the rounding reported."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ptxgen.errors import TensorError


@dataclass(frozen=True, slots=True)
class Rounding:
    """What converting the scales of a layer cost.

    Attributes:
        changed: how many scales are not the same number any more.
        largest: the largest relative change of a scale; 1.0 where one became 0.
    """

    changed: int = 0
    largest: float = 0.0

    def words(self) -> str:
        """One sentence, empty where nothing changed."""
        if not self.changed:
            return ""
        return f"{self.changed} scales were rounded, by at most {self.largest:.2e} of their value"


def convert_scales(scales: Tensor, dtype: torch.dtype, name: str) -> tuple[Tensor, Rounding]:
    """Scales in a kernel's dtype.

    Args:
        scales: floating point, any shape.
        dtype: torch.float16 or torch.bfloat16.
        name: the layer, for messages.

    Raises:
        TensorError: a finite scale is beyond the dtype's range.
    """
    if scales.dtype == dtype:
        return scales.contiguous(), Rounding()
    converted = scales.to(dtype)
    exact = scales.double()
    difference = (converted.double() - exact).abs()
    overflowed = torch.isfinite(exact) & ~torch.isfinite(converted)
    if bool(overflowed.any()):
        worst = float(exact[overflowed].abs().max())
        raise TensorError(
            f"layer {name} has scales up to {worst:g}, and {dtype} ends at "
            f"{torch.finfo(dtype).max:g}; use bf16, or scale the layer down."
        )
    changed = difference > 0
    count = int(changed.sum())
    if not count:
        return converted.contiguous(), Rounding()
    largest = float((difference[changed] / exact[changed].abs()).max())
    return converted.contiguous(), Rounding(count, largest)
