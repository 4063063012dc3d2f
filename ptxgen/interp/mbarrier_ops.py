"""mbarrier.init, inval, arrive, expect_tx, test_wait and try_wait in shared memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from pyptx.ir import nodes

from ptxgen.errors import MbarrierError
from ptxgen.interp.decode import Decode, Decoder
from ptxgen.interp.ops import Op
from ptxgen.interp.registers import LANES, Lanes
from ptxgen.interp.remote import owner
from ptxgen.interp.transfers import Address, address_of

if TYPE_CHECKING:
    from ptxgen.interp.warp import Warp

_SPACES = ("shared", "shared::cta")
_ORDER = frozenset(["release", "acquire", "relaxed", "cta", "cluster"])


def mbarrier(d: Decoder) -> Op:
    """Any known form, told apart by its first modifiers."""
    names = [item for item in d.modifiers if item not in _ORDER]
    if len(names) < 3 or names[-1] != "b64" or names[-2] not in (*_SPACES, "shared::cluster"):
        raise d.fail("only .shared{::cta}.b64 is known")
    form = tuple(names[:-2])
    if names[-2] == "shared::cluster" and form != ("arrive",):
        raise d.fail("only mbarrier.arrive is known on .shared::cluster")
    if form in (("init",), ("inval",)):
        return _lifetime(d, form[0])
    if form in (("arrive",), ("arrive", "expect_tx")):
        return _arrive(d, expects=len(form) > 1)
    if form == ("expect_tx",):
        return _expect(d)
    if form[0] in ("test_wait", "try_wait") and form[1:] in ((), ("parity",)):
        return _wait(d, parity=len(form) > 1)
    raise d.fail("this form is not known")


def each(warp: Warp, address: Address, mask: Lanes | None) -> Iterator[tuple[int, int]]:
    """(lane, address) of the active lanes."""
    addresses = address.lanes(warp, mask).tolist()
    yield from zip(warp.active(mask).tolist(), addresses, strict=True)


def _lifetime(d: Decoder, form: str) -> Op:
    d.count(2 if form == "init" else 1)
    address = address_of(d, 0, shared=True)
    count = d.src(1, "b32") if form == "init" else -1

    def effect(warp: Warp, mask: Lanes | None) -> None:
        if count >= 0:
            warp.require_clean(count, mask, "the count of an mbarrier")
        for lane, where in each(warp, address, mask):
            if count >= 0:
                held = int(warp.registers[count][lane])
                warp.cta.mbarriers.init(warp, lane, where, held)
            else:
                warp.cta.mbarriers.invalidate(warp, lane, where)

    return Op(d.statement, "lsu", effect)


def _arrive(d: Decoder, expects: bool) -> Op:
    """arrive: the state is the phase arrived in, which test_wait takes back."""
    d.count(3) if expects else d.count(2, 3)
    first = d.operands[0]
    named = getattr(first, "name", "")
    remote = "shared::cluster" in d.modifiers
    if remote and named != "_":
        raise d.fail("an arrival at another CTA has no state")
    dst = -1 if named == "_" else d.dst(0, 64)
    address = address_of(d, 1, shared=True)
    extra = d.src(2, "b32") if len(d.operands) > 2 else -1

    def effect(warp: Warp, mask: Lanes | None) -> None:
        lanes = warp.active(mask)
        states = np.zeros(LANES, dtype=np.uint64)
        if extra >= 0:
            warp.require_clean(extra, mask, "a count of an mbarrier")
        for lane, where in each(warp, address, mask):
            cta, local = owner(warp, where) if remote else (warp.cta, where)
            mbarriers = cta.mbarriers
            found = mbarriers.at(warp, lane, local)
            given = int(warp.registers[extra][lane]) if extra >= 0 else 1
            cta.incoming.from_warp(warp)
            if expects:
                mbarriers.expect(found, given)
            states[lane] = mbarriers.arrive(warp, lanes, found, 1 if expects else given)
        if dst >= 0:
            warp.set(dst, states, mask)

    return Op(d.statement, "lsu", effect)


def _expect(d: Decoder) -> Op:
    d.count(2)
    address, nbytes = address_of(d, 0, shared=True), d.src(1, "b32")

    def effect(warp: Warp, mask: Lanes | None) -> None:
        warp.require_clean(nbytes, mask, "a count of an mbarrier")
        for lane, where in each(warp, address, mask):
            found = warp.cta.mbarriers.at(warp, lane, where)
            warp.cta.mbarriers.expect(found, int(warp.registers[nbytes][lane]))

    return Op(d.statement, "lsu", effect)


def _wait(d: Decoder, parity: bool) -> Op:
    """test_wait and try_wait: false where the phase is not complete; then others run first."""
    d.count(3, 4) if d.modifiers[0] == "try_wait" else d.count(3)
    if not isinstance(d.operands[1], nodes.AddressOperand):
        raise d.fail("an address is missing")
    dst, address = d.dst(0, 1), address_of(d, 1, shared=True)
    phase = d.src(2, "b32" if parity else "b64")

    def effect(warp: Warp, mask: Lanes | None) -> None:
        mbarriers, lanes = warp.cta.mbarriers, warp.active(mask)
        warp.require_clean(phase, mask, "the phase of an mbarrier")
        answers = np.zeros(LANES, dtype=np.bool_)
        late = None
        passed = {}
        for lane, where in each(warp, address, mask):
            found = mbarriers.at(warp, lane, where)
            answers[lane] = _complete(found.phase, int(warp.registers[phase][lane]), parity)
            if answers[lane]:
                passed[where] = found
            else:
                late = (found, where)
        for found in passed.values():
            mbarriers.passed(warp, found, whole=len(lanes) == LANES and len(passed) == 1)
        warp.set(dst, answers, mask)
        if late is not None:
            mbarriers.sleep(warp, *late)

    return Op(d.statement, "lsu", effect)


def _complete(present: int, asked: int, parity: bool) -> bool:
    """Whether the phase asked for is complete. Raises MbarrierError."""
    if parity:
        if asked > 1:
            raise MbarrierError(f"the parity of a phase is 0 or 1, not {asked}.")
        return present & 1 != asked
    if asked not in (present, present - 1):
        raise MbarrierError(
            f"a wait for phase {asked} of an mbarrier in phase {present}: only the present phase "
            f"and the one before can be asked for."
        )
    return asked != present


MBARRIER: dict[str, Decode] = {"mbarrier": mbarrier}
