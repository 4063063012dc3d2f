"""The wgmma family's config: weights as the register A operand, tokens along n, sm_90a."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ptxgen.config import KernelConfig, Scalar
from ptxgen.weights.layout import BLOCK_K

KNOBS: dict[str, tuple[Scalar, ...]] = {
    "block_m": (8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 256),
    "block_n": (64, 128, 256, 512),
    "warpgroups": (1, 2, 4),
    "num_stages": (3, 4, 5, 6, 8),
    "split_k": (1, 2, 3, 4, 6, 8),
    "weights_first": (False, True),
    "min_ctas": (1, 2),
    "raster": (1, 4, 8, 16),
    "cluster": (False, True),
}

WARPGROUP_WARPS = 4


@dataclass(frozen=True, slots=True)
class WgmmaConfig(KernelConfig):
    """One wgmma kernel. A stage of the pipeline holds 128 inputs.

    Attributes:
        block_m: tokens of a CTA's tile: the n of wgmma (multiple of 8).
        block_n: output features of a CTA's tile.
        warpgroups: warpgroups of a CTA, which share out the features, 64 or 128 each.
        num_stages: slots of the cp.async ring. One of them is always held by the wgmma in flight.
        split_k: CTAs that split K; they reduce in FP32 through the workspace, or as a cluster.
        weights_first: as in the mma family.
        min_ctas: CTAs per SM that the register allocation must allow.
        raster: tiles along M that are worked on together: with 1 all of them come before the next
            tile along N, otherwise groups of so many, so that what a wave reads fits into L2.
        cluster: as in the mma family.
    """

    family: ClassVar[str] = "wgmma"
    young_knobs: ClassVar[frozenset[str]] = frozenset({"cluster"})

    block_m: int
    block_n: int
    warpgroups: int
    num_stages: int
    split_k: int
    weights_first: bool
    min_ctas: int
    raster: int = 1
    cluster: bool = False

    # What the parts shared with the mma family ask of a config.

    @property
    def warp_m(self) -> int:
        return self.block_m

    @property
    def warp_n(self) -> int:
        """Output features of one warp: 16 of every 64 of its warpgroup."""
        return self.block_n // (WARPGROUP_WARPS * self.warpgroups)

    @property
    def block_k(self) -> int:
        return BLOCK_K

    @property
    def warps_k(self) -> int:
        return 1

    @property
    def dequant(self) -> str:
        return "magic"

    @property
    def scale_on(self) -> str:
        return "weights"

    @property
    def trigger(self) -> str:
        return "start"
