"""shared::cluster addresses: mapa, and accesses to the shared memory of any CTA of the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ptxgen.interp.decode import Decode, Decoder
from ptxgen.interp.ops import Op
from ptxgen.interp.registers import DTYPES, Lanes

if TYPE_CHECKING:
    from ptxgen.interp.cta import Cta
    from ptxgen.interp.warp import Warp

RANK_SHIFT = 24
"""A cluster address has a CTA's rank plus one above this bit; 0 there is the CTA that asks."""
MAX_RANKS = 16
_OFFSET = (1 << RANK_SHIFT) - 1


def owner(warp: Warp, address: int) -> tuple[Cta, int]:
    """The CTA of a cluster address, and the address in its memory. Raises OutOfBoundsError."""
    rank = address >> RANK_SHIFT
    cta = warp.cta.cluster.cta_at(rank - 1) if rank else warp.cta
    return cta, address & _OFFSET


def _parts(warp: Warp, addresses: Lanes) -> list[tuple[Cta, Lanes, Lanes]]:
    """Per CTA: it, which of the addresses are in its memory, and where there."""
    ranks = addresses >> addresses.dtype.type(RANK_SHIFT)
    found = []
    for rank in np.unique(ranks).tolist():
        which = np.flatnonzero(ranks == rank)
        cta, _ = owner(warp, rank << RANK_SHIFT)
        found.append((cta, which, addresses[which] & addresses.dtype.type(_OFFSET)))
    return found


def read(
    warp: Warp, addresses: Lanes, size: int, count: int, lanes: Lanes
) -> tuple[Lanes, Lanes | None]:
    """As SharedMemory.read."""
    values = np.zeros((len(lanes), count), dtype=np.uint8 if size == 1 else DTYPES[size * 8])
    missing = np.zeros((len(lanes), count), dtype=np.bool_)
    for cta, which, where in _parts(warp, addresses):
        values[which], bad = cta.shared.read(warp, where, size, count, lanes[which])
        if bad is not None:
            missing[which] = bad
    return values, missing if missing.any() else None


def write(warp: Warp, addresses: Lanes, values: Lanes, lanes: Lanes, missing: Lanes | None) -> None:
    """As SharedMemory.write."""
    for cta, which, where in _parts(warp, addresses):
        bad = None if missing is None else missing[which]
        cta.incoming.from_warp(warp)
        cta.shared.write(warp, where, values[which], lanes[which], bad)


def map_address(d: Decoder) -> Op:
    """mapa.shared::cluster: the address of the same place in the memory of another CTA."""
    if d.modifiers not in (("shared::cluster", "u32"), ("shared::cluster", "u64")):
        raise d.fail("only mapa.shared::cluster.{u32,u64} is known")
    d.count(3)
    bits = 32 if d.kind == "u32" else 64
    dst, a, rank = d.dst(0, bits), d.src(1, d.kind), d.src(2, "u32")

    def effect(warp: Warp, mask: Lanes | None) -> None:
        warp.require_clean(a, mask, "an address")
        warp.require_clean(rank, mask, "the rank of a CTA")
        for asked in np.unique(warp.registers[rank][warp.active(mask)]).tolist():
            warp.cta.cluster.require_rank(asked)
        dtype = DTYPES[bits]
        above = (warp.registers[rank].astype(dtype) + dtype(1)) << dtype(RANK_SHIFT)
        warp.set(dst, (warp.registers[a] & dtype(_OFFSET)) | above, mask)

    return Op(d.statement, "alu", effect)


REMOTE: dict[str, Decode] = {"mapa": map_address}
