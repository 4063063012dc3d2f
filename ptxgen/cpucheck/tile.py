"""Tile: the knobs that sizes follow from, with defaults for families that lack them."""

from __future__ import annotations

from dataclasses import dataclass

from ptxgen.config import KernelConfig


@dataclass(frozen=True, slots=True)
class Tile:
    """Tokens, features and inputs of a CTA's tile, its ring and its share of K."""

    block_m: int
    warp_m: int
    block_n: int
    block_k: int
    num_stages: int
    split_k: int

    @classmethod
    def of(cls, config: KernelConfig) -> Tile:
        """Read from a config's knobs or properties of those names."""
        block_m = getattr(config, "block_m", 8)
        return cls(
            block_m=block_m,
            warp_m=getattr(config, "warp_m", block_m),
            block_n=getattr(config, "block_n", 64),
            block_k=getattr(config, "block_k", 128),
            num_stages=getattr(config, "num_stages", 2),
            split_k=getattr(config, "split_k", 1),
        )
