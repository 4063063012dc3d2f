"""The mma family's config: mma.sync m16n8k16 with weights as the m16 operand and tokens as n8."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

from ptxgen.config import KernelConfig, Scalar

KNOBS: dict[str, tuple[Scalar, ...]] = {
    "block_m": (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128),
    "warp_m": (1, 2, 4, 8, 16, 24, 32, 48, 64),
    "block_n": (16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256),
    "warp_n": (16, 32, 48, 64, 80, 112),
    "block_k": (128, 256, 512, 1024, 2048),
    "warps_k": (1, 2, 4, 8, 16),
    "num_stages": (2, 3, 4, 5, 6, 8),
    "split_k": (1, 2, 3, 4, 6, 8, 12, 16),
    "scale_on": ("weights", "accumulators"),
    "weights_first": (False, True),
    "min_ctas": (1, 2, 3, 4),
    "trigger": ("start", "waited", "drained", "end"),
    "cluster": (False, True),
    "dequant": ("magic", "subnormal"),
}


@dataclass(frozen=True, slots=True)
class MmaConfig(KernelConfig):
    """One mma kernel.

    Attributes:
        block_m: tokens of a CTA's tile; below 8 it only saves shared memory: the n8 tile is padded.
        warp_m: tokens of a warp's tile.
        block_n: output features of a CTA's tile.
        warp_n: output features of a warp's tile (multiple of 16).
        block_k: inputs of one pipeline stage, shared out over warps_k warps.
        warps_k: warps that split a stage along K; they reduce through shared memory.
        num_stages: stages of the cp.async ring.
        split_k: CTAs that split K; they reduce in FP32 through the workspace, or as a cluster.
        scale_on: multiply the "weights", or the FP32 "accumulators" once a group.
        weights_first: prologue loads all weights before the first activations, so that under
            programmatic dependent launch they are in flight before the previous kernel ends.
        min_ctas: CTAs per SM that the register allocation must allow.
        trigger: when the next kernel of a chain may start its prologue: at the "start", once this
            one has "waited" for its own predecessor (two kernels of a chain are then resident at
            once, never three), once all loads are issued ("drained"), or at the "end" of the main
            loop.
        cluster: the CTAs that split K form a cluster and reduce in one another's shared memory.
        dequant: nibbles become q - zero by "magic" numbers, or stay FP16 "subnormal" numbers whose
            power of two and zero point the sums of a group take in.
    """

    family: ClassVar[str] = "mma"
    young_knobs: ClassVar[frozenset[str]] = frozenset({"cluster", "dequant"})

    block_m: int
    warp_m: int
    block_n: int
    warp_n: int
    block_k: int
    warps_k: int
    num_stages: int
    split_k: int
    scale_on: str
    weights_first: bool
    min_ctas: int
    trigger: str = "start"
    cluster: bool = False
    dequant: str = "magic"

    def plain(self) -> Self:
        """Triggers differ only in chains: elsewhere the kernel that triggers at the start is taken."""
        return replace(self, trigger="start")

    def chained(self) -> Self:
        """Weights come first, and a successor starts once this kernel has waited.

        A chain of 4096 x 4096 at M = 1 took 3.10 us a launch so, and 6.68 with the default's own
        order and trigger (H200, 2026-11-30).
        """
        return replace(self, weights_first=True, trigger="waited")
