"""cp.async: copies from global to shared memory that land when their thread waits for their group
(PTX ISA, "Asynchronous Copy")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ptxgen.interp.bulk import bulk_copy
from ptxgen.interp.decode import Decode, Decoder
from ptxgen.interp.ops import Op
from ptxgen.interp.registers import LANES, Lanes
from ptxgen.interp.tensor_copies import tensor_copy
from ptxgen.interp.transfers import Address, address_of, shared_addresses

if TYPE_CHECKING:
    from ptxgen.interp.warp import Warp


@dataclass(slots=True)
class Copy:
    """One cp.async of a warp: per lane where to, what, and in which of the lane's groups."""

    lanes: Lanes
    indices: Lanes
    values: Lanes
    groups: Lanes


class CopyQueue:
    """A warp's copies that have not landed. Groups are counted lane by lane, as PTX has it."""

    def __init__(self) -> None:
        self._committed = np.zeros(LANES, dtype=np.int64)
        self._copies: list[Copy] = []

    def issue(self, lanes: Lanes, indices: Lanes, values: Lanes) -> None:
        self._copies.append(Copy(lanes, indices, values, self._committed[lanes]))

    def commit(self, lanes: Lanes) -> None:
        """Closes the lanes' current groups."""
        self._committed[lanes] += 1

    def wait(self, warp: Warp, lanes: Lanes, pending: int) -> None:
        """Lands all of the lanes' groups but their latest `pending`; -1 means uncommitted too."""
        limit = np.full(LANES, -1, dtype=np.int64)  # lands groups below it
        limit[lanes] = (
            self._committed[lanes] + 1 if pending < 0 else self._committed[lanes] - pending
        )
        kept = []
        for copy in self._copies:
            ready = copy.groups < limit[copy.lanes]
            if ready.any():
                warp.cta.shared.land_copy(warp, copy.indices[ready], copy.values[ready])
            if not ready.all():
                late = ~ready
                kept.append(
                    Copy(copy.lanes[late], copy.indices[late], copy.values[late], copy.groups[late])
                )
        self._copies = kept


def copy_async(d: Decoder) -> Op:
    """cp.async, its groups, or cp.async.bulk{.tensor}; no cache policy, no ignore-src predicate."""
    if d.modifiers[:1] != ("async",):
        raise d.fail("only cp.async is known")
    if d.modifiers[1:3] == ("bulk", "tensor"):
        return tensor_copy(d)
    if d.modifiers[1:2] == ("bulk",):
        return bulk_copy(d)
    rest = d.modifiers[1:]
    if rest == ("commit_group",):
        return Op(d.statement, "lsu", lambda warp, mask: warp.copies.commit(warp.active(mask)))
    if rest in (("wait_group",), ("wait_all",)):
        pending = d.number(0) if rest == ("wait_group",) else -1
        return Op(
            d.statement,
            "lsu",
            lambda warp, mask: warp.copies.wait(warp, warp.active(mask), pending),
        )
    return _copy(d, rest)


def _copy(d: Decoder, modifiers: tuple[str, ...]) -> Op:
    known = {"shared::cta": "shared", "L2::64B": "", "L2::128B": "", "L2::256B": ""}
    plain = [known.get(item, item) for item in modifiers if known.get(item, item)]
    if plain not in (["ca", "shared", "global"], ["cg", "shared", "global"]):
        raise d.fail("its modifiers are not known")
    d.count(3, 4)
    size = d.number(2)
    if size not in (4, 8, 16) or (plain[0] == "cg" and size != 16):
        raise d.fail(f"it cannot copy {size} bytes")
    to, source = address_of(d, 0, shared=True), address_of(d, 1)
    length = d.src(3, "b32") if len(d.operands) == 4 else -1

    def effect(warp: Warp, mask: Lanes | None) -> None:
        lanes = warp.active(mask)
        indices = warp.cta.shared.check(shared_addresses(warp, to, mask), size)
        values = _source_bytes(warp, source, mask, length, size)
        warp.cta.shared.issue_copy(warp, indices, size, lanes)
        warp.copies.issue(lanes, indices, values)
        warp.cta.record("async_copy", warp, indices, size)

    return Op(d.statement, "lsu", effect)


def _source_bytes(warp: Warp, source: Address, mask: Lanes | None, length: int, size: int) -> Lanes:
    """[lanes, size] bytes: what was read, and zeros behind it."""
    lanes, addresses = warp.active(mask), source.lanes(warp, mask)
    memory = warp.cta.memory
    if length >= 0:
        warp.require_clean(length, mask, "the size of a copy")
        lengths = np.minimum(warp.registers[length][lanes].astype(np.int64), size)
        if (lengths < size).any():
            return memory.read_bytes(addresses, lengths, size)
    words = memory.read(addresses, 4, size // 4) if size > 4 else memory.read(addresses, 4)
    return np.ascontiguousarray(words).view(np.uint8).reshape(len(lanes), size)


COPIES: dict[str, Decode] = {"cp": copy_async}
