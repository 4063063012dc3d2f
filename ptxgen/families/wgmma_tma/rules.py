"""The one statement of which wgmma_tma configs are legal, and why the others are not."""

from __future__ import annotations

from collections.abc import Iterator

from ptxgen.arch import RESERVED_SMEM_BYTES, ArchSpec
from ptxgen.families.choices import choice_violations, feature_share_violations
from ptxgen.families.wgmma_tma.config import KNOBS, WgmmaTmaConfig
from ptxgen.families.wgmma_tma.shape import TmaShape
from ptxgen.problem import Problem

MAX_CLUSTER = 8
MAX_WARPGROUPS = 7
"""That multiply; an eighth would leave no room for the producer among the 1,024 threads of a CTA."""


def violations(problem: Problem, config: WgmmaTmaConfig, arch: ArchSpec) -> list[str]:
    """Why the config is illegal for the problem on the arch; empty where it is legal."""
    found = [*_choice_violations(config, arch)]
    if found:
        return found
    shape = TmaShape(problem, config)
    return [
        *_turn_violations(shape),
        *_split_violations(shape),
        *_sharing_violations(shape),
        *_resource_violations(shape, arch),
    ]


def _choice_violations(config: WgmmaTmaConfig, arch: ArchSpec) -> Iterator[str]:
    if not arch.has_wgmma:
        yield f"wgmma and TMA need sm_90a; {arch.name} does not have them"
    yield from choice_violations(config, KNOBS)
    yield from feature_share_violations(config.block_n, config.warpgroups)
    if config.warpgroups * config.warpgroups_k > MAX_WARPGROUPS:
        yield (
            f"warpgroups = {config.warpgroups} x warpgroups_k = {config.warpgroups_k} are more than "
            f"{MAX_WARPGROUPS}"
        )


def _turn_violations(shape: TmaShape) -> Iterator[str]:
    """Of warpgroups that take the stages in turns."""
    config, turns = shape.config, shape.config.warpgroups_k
    if turns == 1:
        return
    if config.num_stages % turns or config.num_stages < 2 * turns:
        # A slot that changed hands could be taken for full: its new owner has not seen the phase before.
        yield (
            f"num_stages = {config.num_stages} does not give each of warpgroups_k = {turns} slots of "
            "its own, two or more"
        )
    if shape.layout.k_blocks < turns * config.split_k:
        yield (
            f"the {shape.layout.k_blocks} stages of K are fewer than warpgroups_k = {turns} x "
            f"split_k = {config.split_k}"
        )
    if config.max_ctas:
        yield (
            f"max_ctas = {config.max_ctas} needs warpgroups_k = 1: sums meet in the ring, where a "
            "persistent grid loads the next tile"
        )


def _split_violations(shape: TmaShape) -> Iterator[str]:
    config = shape.config
    if config.split_k > shape.layout.k_blocks:
        yield f"split_k = {config.split_k} is more than the {shape.layout.k_blocks} stages of K"
    if shape.token_tiles % config.split_k:
        yield (
            f"the {shape.token_tiles} n8 tiles of block_m = {config.block_m} do not share out over "
            f"the split_k = {config.split_k} CTAs of a cluster"
        )
    if config.split_k > 1 and config.max_ctas:
        yield (
            f"max_ctas = {config.max_ctas} needs split_k = 1: the CTAs of a cluster that split K "
            "exchange the sums of one tile"
        )
    if config.max_ctas % config.multicast:
        yield (
            f"max_ctas = {config.max_ctas} is no whole number of clusters of multicast = "
            f"{config.multicast} CTAs"
        )
    if shape.cluster > MAX_CLUSTER:
        yield (
            f"split_k = {config.split_k} x multicast = {config.multicast} CTAs are more than the "
            f"{MAX_CLUSTER} of a cluster"
        )
    if config.block_m % (8 * config.multicast):
        yield (
            f"block_m = {config.block_m} does not give each of multicast = {config.multicast} CTAs "
            "whole rows of 8 tokens to copy"
        )


def _sharing_violations(shape: TmaShape) -> Iterator[str]:
    """Of CTAs that share the last tiles along K."""
    config = shape.config
    if not config.stream_k:
        return
    if not config.max_ctas:
        yield "stream_k shares tiles over a persistent grid; it needs max_ctas above 0"
    if config.multicast > 1:
        yield (
            f"stream_k needs multicast = 1, not {config.multicast}: CTAs that share activations "
            "work on the same inputs"
        )
    if not shape.parts_together:
        yield (
            f"stream_k needs a slot that {shape.batch_tiles * shape.unit_bytes} bytes of sums fit into; "
            f"it has {shape.slot_room}"
        )
    if shape.sum_slots > config.num_stages:
        yield (
            f"stream_k needs a ring that the {shape.part_bytes} bytes of a tile's sums fit into; "
            f"num_stages = {config.num_stages} slots have room for {shape.sum_units} of "
            f"{shape.units} n8 tiles each"
        )


def _resource_violations(shape: TmaShape, arch: ArchSpec) -> Iterator[str]:
    config = shape.config
    if shape.smem_bytes > arch.smem_per_cta:
        yield (
            f"{shape.smem_bytes} bytes of shared memory are more than the {arch.smem_per_cta} "
            f"that a CTA may have on {arch.name}"
        )
    elif config.min_ctas * (shape.smem_bytes + RESERVED_SMEM_BYTES) > arch.smem_per_sm:
        yield (
            f"min_ctas = {config.min_ctas} CTAs of {shape.smem_bytes} bytes do not fit into the "
            f"{arch.smem_per_sm} bytes of shared memory of an SM"
        )
    if shape.needed_registers > shape.available_registers:
        yield (
            f"about {shape.needed_registers} registers a thread, {shape.accumulators} of them "
            f"accumulators, are more than {shape.available_registers}"
        )
