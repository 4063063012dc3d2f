"""Derived sizes of a wgmma kernel: those of the mma family, with activations where wgmma wants them."""

from __future__ import annotations

from dataclasses import dataclass

from ptxgen.families.mma.shape import Shape

SWIZZLE_ATOM = 1024
"""8 rows of 128 bytes: what a 128-byte swizzle repeats after (PTX ISA, "Asynchronous Warpgroup
Level Matrix Shared Memory Layout")."""


@dataclass(frozen=True, slots=True)
class WgmmaShape(Shape):
    """See ptxgen.families.mma.shape.Shape."""

    @property
    def private(self) -> bool:
        return False

    @property
    def x_offset(self) -> int:
        raw = self.weight_stage_bytes + self.meta_stage_bytes
        return -(-raw // SWIZZLE_ATOM) * SWIZZLE_ATOM

    @property
    def stage_bytes(self) -> int:
        return self.x_offset + self.x_stage_bytes
