"""shfl.sync and vote.sync: values between the lanes of a warp (PTX ISA, by these names).

They order no memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ptxgen.errors import DivergenceError
from ptxgen.interp.decode import Decode, Decoder
from ptxgen.interp.ops import Op
from ptxgen.interp.predicates import predicate_source
from ptxgen.interp.registers import LANES, Lanes

if TYPE_CHECKING:
    from ptxgen.interp.warp import Warp

MODES = ("up", "down", "bfly", "idx")
_LANES = np.arange(LANES)


def shuffle(d: Decoder) -> Op:
    """shfl.sync.{up,down,bfly,idx}.b32 without a predicate as its second destination."""
    form = d.modifiers
    if len(form) != 3 or (form[0], form[2]) != ("sync", "b32") or form[1] not in MODES:
        raise d.fail("only shfl.sync.{up,down,bfly,idx}.b32 is known")
    d.count(5)
    dst, a, mode = d.dst(0, 32), d.src(1, "b32"), form[1]
    controls = [d.src(index, "b32") for index in (2, 3, 4)]

    def effect(warp: Warp, mask: Lanes | None) -> None:
        for slot in controls:
            warp.require_clean(slot, mask, "the lane of a shuffle")
        b, c, members = (warp.registers[slot].astype(np.int64) for slot in controls)
        active = np.ones(LANES, dtype=np.bool_) if mask is None else mask
        if _members_missing(warp, active, members):
            if warp.again():
                return
            raise _not_together()
        source = source_lanes(mode, b, c)
        if not active[source[active]].all():
            raise DivergenceError("a shuffle reads from a lane that does not take part.")
        bad = warp.poison[a][source] if a in warp.poison else None
        warp.set(dst, warp.registers[a][source], mask, bad)

    return Op(d.statement, "lsu", effect)


def vote(d: Decoder) -> Op:
    """vote.sync.{any,all,uni}.pred of a predicate that may be negated."""
    form = d.modifiers
    if len(form) != 3 or (form[0], form[2]) != ("sync", "pred") or form[1] not in _VOTES:
        raise d.fail("only vote.sync.{any,all,uni}.pred is known")
    d.count(3)
    dst, (a, negated) = d.dst(0, 1), predicate_source(d, 1)
    members_slot, decide = d.src(2, "b32"), _VOTES[form[1]]

    def effect(warp: Warp, mask: Lanes | None) -> None:
        warp.require_clean(members_slot, mask, "the members of a vote")
        warp.require_clean(a, mask, "a vote")
        active = np.ones(LANES, dtype=np.bool_) if mask is None else mask
        if _members_missing(warp, active, warp.registers[members_slot].astype(np.int64)):
            if warp.again():
                return
            raise _not_together()
        votes = (~warp.registers[a] if negated else warp.registers[a])[active]
        warp.set(dst, np.full(LANES, decide(votes)), mask, None)

    return Op(d.statement, "alu", effect)


_VOTES: dict[str, Callable[[Lanes], bool]] = {
    "any": lambda votes: bool(votes.any()),
    "all": lambda votes: bool(votes.all()),
    "uni": lambda votes: bool(votes.all() or not votes.any()),
}


def source_lanes(mode: str, b: Lanes, c: Lanes) -> Lanes:
    """The lane that each lane reads from; itself where that one lies outside of its segment.

    Args:
        mode: up, down, bfly or idx.
        b: by lane, the distance, mask or index.
        c: by lane, the clamp (bits 0-4) and the segment mask (bits 8-12).
    """
    segment, wanted = c >> 8 & 31, b & 31
    first = _LANES & segment
    last = first | (c & 31 & ~segment)
    if mode == "up":
        found = _LANES - wanted
        inside = found >= last
    else:
        found = {
            "down": _LANES + wanted,
            "bfly": _LANES ^ wanted,
            "idx": first | (wanted & ~segment),
        }[mode]
        inside = found <= last
    return np.where(inside, found, _LANES)


def _members_missing(warp: Warp, active: Lanes, members: Lanes) -> bool:
    """Whether lanes that the masks name are elsewhere; they are waited for while they move.

    Raises DivergenceError where a lane is not named.
    """
    named = (members[active][:, None] >> _LANES & 1).astype(np.bool_)
    live = np.ones(LANES, dtype=np.bool_) if warp.live is None else warp.live
    if not named[:, active].all():
        raise _not_together()
    return bool((named & live & ~active).any())


def _not_together() -> DivergenceError:
    return DivergenceError(
        "a shuffle or vote must be run together by exactly the lanes that its mask names."
    )


SHUFFLE: dict[str, Decode] = {"shfl": shuffle, "vote": vote}
