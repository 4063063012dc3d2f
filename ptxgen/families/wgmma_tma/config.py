"""The wgmma_tma family's config: a producer warp feeds warpgroups by TMA, sm_90a."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ptxgen.config import KernelConfig, Scalar

KNOBS: dict[str, tuple[Scalar, ...]] = {
    "block_m": (16, 24, 32, 48, 64, 96, 128, 160, 192, 256),
    "block_n": (64, 128, 192, 256, 320, 384, 448),
    "warpgroups": (1, 2, 3, 4, 5, 6, 7),
    "num_stages": (2, 3, 4, 5, 6, 8),
    "chunk": (1, 2, 4),
    "split_k": (1, 2, 4, 8),
    "multicast": (1, 2, 4),
    "min_ctas": (1, 2),
    "max_ctas": (0, 114, 132, 228, 264),
    "raster": (1, 4, 8, 16),
    "stream_k": (False, True),
    "warpgroups_k": (1, 2),
}


@dataclass(frozen=True, slots=True)
class WgmmaTmaConfig(KernelConfig):
    """One kernel. A stage of the pipeline holds 128 inputs.

    Attributes:
        block_m: tokens of a CTA's tile: the n of wgmma.
        block_n: output features of a CTA's tile.
        warpgroups: warpgroups that multiply; they share out the features, 64 or 128 each.
        num_stages: slots of the ring that the producer warp fills.
        chunk: k16 steps that are dequantized at once, while the chunk before is multiplied.
        split_k: CTAs of a cluster that split K and exchange their FP32 sums through each other's
            shared memory.
        multicast: CTAs of a cluster that have neighbouring tiles along N: each copies its share of the
            activations into the shared memory of all of them.
        min_ctas: CTAs per SM that the register allocation must allow.
        max_ctas: CTAs of a persistent grid, which walk over the tiles, so that the loads of a tile
            run during the epilogue of the one before; 0: each tile has a CTA of its own.
        stream_k: the tiles that do not fill a last round of the persistent grid are cut along K, so that
            every CTA gets an equal share; their FP32 sums meet in the workspace.
        raster: tiles along M that are worked on together, as in the wgmma family.
        warpgroups_k: so many times the warpgroups: they take the stages of K in turns, and their sums
            meet in shared memory.
    """

    family: ClassVar[str] = "wgmma_tma"
    young_knobs: ClassVar[frozenset[str]] = frozenset({"stream_k", "warpgroups_k"})

    block_m: int
    block_n: int
    warpgroups: int
    num_stages: int
    chunk: int
    split_k: int
    multicast: int
    min_ctas: int
    max_ctas: int
    raster: int = 1
    stream_k: bool = False
    warpgroups_k: int = 1
