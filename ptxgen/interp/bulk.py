"""cp.async.bulk: copies of rows of 16 bytes that land when the schedule chooses; an mbarrier counts
the loads, groups count the stores (PTX ISA, "cp.async.bulk")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ptxgen.errors import (
    InFlightError,
    KernelFaultError,
    MbarrierError,
    MisalignedError,
    UninitializedError,
)
from ptxgen.interp.decode import Decode, Decoder
from ptxgen.interp.incoming import on_its_way
from ptxgen.interp.mbarrier_ops import each
from ptxgen.interp.mbarriers import Mbarrier
from ptxgen.interp.ops import Op, pure
from ptxgen.interp.registers import LANES, Lanes
from ptxgen.interp.transfers import address_of

if TYPE_CHECKING:
    from ptxgen.interp.cta import Cta
    from ptxgen.interp.warp import Warp

ROW = 16
"""Addresses and sizes are multiples of it."""
POLICY = 0x6C32_706F_6C69_6379
"""What createpolicy gives; opaque by the PTX ISA."""


@dataclass(frozen=True, slots=True)
class BulkLoad:
    """One copy to shared memory: to where, what ([rows, 4] words), who is told, whose it is."""

    indices: Lanes
    values: Lanes
    target: Mbarrier
    address: int
    warp: Warp
    pc: int


class BulkLoads:
    """A CTA's copies to shared memory that have not landed, oldest first.

    Attributes:
        flying: those copies.
        issuers: by clock index of their mbarrier, the warp (its agent) that issued the last one.
    """

    def __init__(self, cta: Cta) -> None:
        self._cta = cta
        self.flying: list[BulkLoad] = []
        self.issuers: dict[int, int] = {}

    def issue(
        self, warp: Warp, lane: int | Lanes, indices: Lanes, values: Lanes, mbarrier: int
    ) -> None:
        """Starts a copy, by one lane or a lane a row, that counts its bytes on an mbarrier."""
        owners = np.full(len(indices), lane)
        target = self._cta.mbarriers.at(warp, int(owners[0]), mbarrier)
        self._cta.shared.issue_copy(warp, indices, ROW, owners)
        self.issuers[self._cta.first_copy_agent + target.agent] = warp.agent
        self.flying.append(BulkLoad(indices, values, target, mbarrier, warp, warp.pc - 1))

    def land(self, which: int) -> None:
        """Lands one copy. Raises MbarrierError where its mbarrier is gone or counts too much."""
        copy, cta = self.flying.pop(which), self._cta
        agent = cta.first_copy_agent + copy.target.agent
        tick = cta.mbarriers.tick(copy.target)
        cta.shared.land_bulk(copy.indices, copy.values, agent, tick)
        cta.incoming.from_copy(agent, tick, copy.warp, copy.pc)
        try:
            if not cta.mbarriers.valid(copy.address, copy.target):
                raise MbarrierError("the mbarrier of a copy in flight was invalidated.")
            cta.mbarriers.copied(copy.target, ROW * len(copy.indices))
        except KernelFaultError as error:
            place = copy.warp.cta.place(copy.warp.index, copy.pc)
            raise type(error)(f"{place}: {error}") from error

    def require_none(self) -> None:
        """Raises InFlightError where the CTA ends before its copies have landed."""
        if self.flying:
            raise on_its_way(self._cta, self.flying[0].warp, self.flying[0].pc)


@dataclass(slots=True)
class _Store:
    """One copy to global memory of one lane."""

    lane: int
    group: int
    indices: Lanes
    addresses: Lanes
    values: Lanes
    read: bool = False


class BulkStores:
    """A warp's copies to global memory that were not waited for, in groups lane by lane."""

    def __init__(self) -> None:
        self._committed = np.zeros(LANES, dtype=np.int64)
        self._stores: list[_Store] = []

    def issue(self, warp: Warp, lane: int, indices: Lanes, addresses: Lanes) -> None:
        """Reads the rows; others must keep off them until the wait. Raises UninitializedError."""
        values, missing = warp.cta.shared.start_matrix_read(warp, indices)
        if missing is not None:
            raise UninitializedError("shared memory that nobody wrote reached a bulk copy.")
        group = int(self._committed[lane])
        self._stores.append(_Store(lane, group, indices, addresses, values))

    def commit(self, lanes: Lanes) -> None:
        """Closes the lanes' current groups."""
        self._committed[lanes] += 1

    def wait(self, warp: Warp, lanes: Lanes, pending: int, written: bool) -> None:
        """Ends the lanes' groups but their latest `pending`: written, or (.read) only read."""
        active, kept = set(lanes.tolist()), []
        for store in self._stores:
            waits = store.lane in active and store.group < self._committed[store.lane] - pending
            if waits and not store.read:
                store.read = True
                warp.cta.shared.end_matrix_read(warp, store.indices)
            if waits and written:
                warp.cta.memory.store(store.addresses, store.values, 4)
            else:
                kept.append(store)
        self._stores = kept
        for store in kept:
            if not store.read:
                warp.cta.shared.hold_matrix_read(warp, store.indices)

    def end(self, warp: Warp) -> None:
        """The warp ends: what has been read from shared memory is written by then.

        Raises InFlightError where something has not been read: the CTA's memory goes.
        """
        if any(not store.read for store in self._stores):
            raise InFlightError("a warp ended before it had waited for its bulk copies.")
        for store in self._stores:
            warp.cta.memory.store(store.addresses, store.values, 4)
        self._stores = []


def bulk_copy(d: Decoder) -> Op:
    """cp.async.bulk between global memory and the CTA's own shared memory; no multicast."""
    form = d.modifiers[2:]
    if form == ("commit_group",):
        d.count(0)
        return Op(d.statement, "lsu", lambda warp, mask: warp.stores.commit(warp.active(mask)))
    if form in (("wait_group",), ("wait_group", "read")):
        d.count(1)
        pending, written = d.number(0), form[-1] != "read"
        return Op(
            d.statement,
            "lsu",
            lambda warp, mask: warp.stores.wait(warp, warp.active(mask), pending, written),
        )
    if form[:1] in (("shared::cluster",), ("shared::cta",)):
        return _load(d, form[1:])
    if form == ("global", "shared::cta", "bulk_group"):
        return _store(d)
    if form == ("prefetch", "L2", "global"):
        return _prefetch(d)
    raise d.fail("this form is not known")


def create_policy(d: Decoder) -> Op:
    """createpolicy.fractional: where to keep a copy in L2, which changes no value."""
    if d.modifiers[:1] != ("fractional",) or d.kind != "b64":
        raise d.fail("only createpolicy.fractional is known")
    d.count(1, 2)
    dst = d.dst(0, 64)
    return pure(d.statement, "alu", [dst], [], lambda _: np.full(LANES, POLICY, dtype=np.uint64))


def _load(d: Decoder, form: tuple[str, ...]) -> Op:
    if form[:2] != ("global", "mbarrier::complete_tx::bytes") or form[2:] not in (
        (),
        ("L2::cache_hint",),
    ):
        raise d.fail("only .global.mbarrier::complete_tx::bytes is known")
    d.count(4 + len(form[2:]))
    to, source = address_of(d, 0, shared=True), address_of(d, 1)
    size, mbarrier = d.src(2, "b32"), address_of(d, 3, shared=True)

    def effect(warp: Warp, mask: Lanes | None) -> None:
        warp.require_clean(size, mask, "the size of a copy")
        origins = [where for _, where in each(warp, source, mask)]
        targets = [where for _, where in each(warp, mbarrier, mask)]
        for (lane, where), origin, target in zip(
            each(warp, to, mask), origins, targets, strict=True
        ):
            count = _rows(int(warp.registers[size][lane]))
            indices = warp.cta.shared.check(_addresses(where, count), ROW)
            values = warp.cta.memory.read(_addresses(origin, count), 4, 4)
            warp.cta.loads.issue(warp, lane, indices, values, target)
            warp.cta.record("async_copy", warp, indices, ROW)

    return Op(d.statement, "lsu", effect)


def _store(d: Decoder) -> Op:
    d.count(3)
    to, source = address_of(d, 0), address_of(d, 1, shared=True)
    size = d.src(2, "b32")

    def effect(warp: Warp, mask: Lanes | None) -> None:
        warp.require_clean(size, mask, "the size of a copy")
        targets = [where for _, where in each(warp, to, mask)]
        for (lane, where), target in zip(each(warp, source, mask), targets, strict=True):
            count = _rows(int(warp.registers[size][lane]))
            addresses = _addresses(target, count)
            warp.cta.memory.check(addresses, ROW, True)
            warp.stores.issue(warp, lane, _addresses(where, count), addresses)
            warp.cta.record("global_write", warp, addresses, ROW)

    return Op(d.statement, "lsu", effect)


def _prefetch(d: Decoder) -> Op:
    """To L2: nothing but a check that the bytes are there."""
    d.count(2)
    source, size = address_of(d, 0), d.src(1, "b32")

    def effect(warp: Warp, mask: Lanes | None) -> None:
        warp.require_clean(size, mask, "the size of a prefetch")
        for lane, where in each(warp, source, mask):
            count = _rows(int(warp.registers[size][lane]))
            warp.cta.memory.check(_addresses(where, count), ROW, False)

    return Op(d.statement, "lsu", effect)


def _rows(nbytes: int) -> int:
    """How many rows a size is. Raises MisalignedError."""
    if not nbytes or nbytes % ROW:
        raise MisalignedError(
            f"a bulk copy of {nbytes} bytes; its size must be a positive multiple of {ROW}."
        )
    return nbytes // ROW


def _addresses(first: int, rows: int) -> Lanes:
    found: Lanes = np.uint64(first) + np.arange(rows, dtype=np.uint64) * np.uint64(ROW)
    return found


POLICIES: dict[str, Decode] = {"createpolicy": create_policy}
