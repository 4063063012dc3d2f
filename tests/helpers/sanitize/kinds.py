"""The kinds of kernels that make sanitize runs: one small launch with tails for each."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from ptxgen.arch import ArchSpec
from ptxgen.config import KernelConfig
from ptxgen.cpucheck.buffers import crowded
from ptxgen.families import family_named, violations
from ptxgen.families.mma.config import MmaConfig
from ptxgen.families.wgmma.config import WgmmaConfig
from ptxgen.families.wgmma_tma.config import WgmmaTmaConfig
from ptxgen.problem import Problem
from ptxgen.source import ENTRY, LaunchPlan

TAILS = Problem(136, 544, 32, "bf16", "int", bias=True)
"""Tails in features and inputs, more than one group in a stage, every operand there is."""

SYMMETRIC = replace(TAILS, group_size=544, dtype="fp16", zero="sym", bias=False)
WIDE = Problem(264, 544, 32, "fp16", "int", bias=True)

MMA = MmaConfig(8, 8, 32, 32, 256, 2, 3, 1, "accumulators", True, 1)
WGMMA = WgmmaConfig(24, 128, 2, 3, 1, False, 1)
TMA = WgmmaTmaConfig(16, 64, 1, 2, 2, 1, 1, 1, 0)


@dataclass(frozen=True, slots=True)
class Kind:
    """One launch.

    Attributes:
        name: in words.
        problem: what is computed.
        config: of the kernel.
        m: batch.
    """

    name: str
    problem: Problem
    config: KernelConfig
    m: int

    @property
    def entry(self) -> str:
        """The kernel's own entry name: the tools name it in whatever they report."""
        return f"{ENTRY}_{re.sub('[^a-z0-9]+', '_', self.name.lower())}_kernel"

    @property
    def opened_for_racecheck(self) -> bool:
        """Its warps release slots by one lane, which racecheck takes for a race: open_arrivals."""
        return self.config.family == "wgmma_tma"

    def plan(self, arch: ArchSpec) -> LaunchPlan:
        """How it is launched: a persistent grid is so small that its CTAs walk, as elsewhere."""
        return crowded(
            family_named(self.config.family).plan(self.problem, self.config, arch), self.m
        )


KINDS = (
    Kind("mma decode", TAILS, MMA, 5),
    Kind("mma decode, subnormal nibbles", WIDE, replace(MMA, dequant="subnormal"), 5),
    Kind("mma split K, workspace", TAILS, replace(MMA, block_k=128, warps_k=1, split_k=3), 13),
    Kind("mma split K, cluster", TAILS, replace(MMA, split_k=2, cluster=True), 13),
    Kind(
        "mma, several warps in M and N",
        SYMMETRIC,
        replace(MMA, block_m=32, warp_m=16, block_n=64),
        37,
    ),
    Kind("wgmma", TAILS, WGMMA, 29),
    Kind("wgmma split K, cluster", SYMMETRIC, replace(WGMMA, split_k=2, cluster=True), 29),
    Kind("wgmma_tma", TAILS, replace(TMA, block_n=128, block_m=24, chunk=4), 29),
    Kind("wgmma_tma, whole K", SYMMETRIC, replace(TMA, block_n=128, warpgroups=2, chunk=1), 5),
    Kind("wgmma_tma persistent", TAILS, replace(TMA, max_ctas=132, raster=4), 90),
    Kind("wgmma_tma in turns", TAILS, replace(TMA, warpgroups_k=2, num_stages=4), 17),
    Kind("wgmma_tma split K, cluster", TAILS, replace(TMA, split_k=2, num_stages=3), 17),
    Kind("wgmma_tma multicast", TAILS, replace(TMA, multicast=2), 17),
    Kind("wgmma_tma multicast and split K", TAILS, replace(TMA, multicast=2, split_k=2), 17),
    Kind("wgmma_tma stream-K", TAILS, replace(TMA, max_ctas=132, stream_k=True), 40),
    Kind(
        "wgmma_tma stream-K, more CTAs than stages",
        SYMMETRIC,
        replace(TMA, max_ctas=132, stream_k=True),
        33,
    ),
    Kind(
        "wgmma_tma three warpgroups", WIDE, replace(TMA, block_m=64, block_n=192, warpgroups=3), 70
    ),
    Kind(
        "wgmma_tma seven warpgroups, split K",
        WIDE,
        replace(TMA, block_n=448, warpgroups=7, chunk=1, split_k=2),
        17,
    ),
    Kind(
        "wgmma_tma moved registers", WIDE, replace(TMA, block_m=128, block_n=256, warpgroups=2), 150
    ),
)


def kinds_for(arch: ArchSpec) -> tuple[Kind, ...]:
    """Those that the arch has instructions for."""
    return tuple(each for each in KINDS if not violations(each.problem, each.config, arch))
