"""bra, ret, barriers, fences and griddepcontrol (PTX ISA, "Control Flow Instructions", "Parallel
Synchronization and Communication Instructions")."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from pyptx.ir import nodes

from ptxgen.errors import BarrierError
from ptxgen.interp.barriers import check_barrier
from ptxgen.interp.decode import Decode, Decoder
from ptxgen.interp.ops import Op
from ptxgen.interp.parse import Entry
from ptxgen.interp.registers import LANES, Lanes

if TYPE_CHECKING:
    from ptxgen.interp.warp import Warp

FULL_MASK = (1 << LANES) - 1


def branch(entry: Entry) -> Decode:
    """bra to a label of the entry."""

    def decode(d: Decoder) -> Op:
        d.count(1)
        if d.modifiers not in ((), ("uni",)):
            raise d.fail("only bra{.uni} is known")
        operand = d.operands[0]
        name = operand.name if isinstance(operand, nodes.LabelOperand) else ""
        target = entry.target(name, d.statement.scope)
        if target is None:
            raise d.fail(f"{name!r} is no label")
        return Op(d.statement, "control", lambda warp, mask: warp.branch(target, mask))

    return decode


def leave(d: Decoder) -> Op:
    """ret and exit: both end the thread, since there are no calls."""
    d.count(0)
    return Op(d.statement, "control", lambda warp, mask: warp.exit(mask))


def barrier(d: Decoder) -> Op:
    """bar.sync, bar.arrive (of warps that are whole) and bar.warp.sync."""
    if d.modifiers[:1] == ("cluster",):
        return _cluster_barrier(d)
    form = tuple(item for item in d.modifiers if item not in ("cta", "aligned"))
    if form == ("warp", "sync"):
        return _warp_barrier(d)
    if form not in (("sync",), ("arrive",)):
        raise d.fail("only bar.sync, bar.arrive and bar.warp.sync are known")
    waits = form == ("sync",)
    d.count(*((1, 2) if waits else (2,)))
    operands = [d.src(index, "b32") for index in range(len(d.operands))]

    def effect(warp: Warp, mask: Lanes | None) -> None:
        warp.require_converged(mask)
        which, *threads = (_common(warp, slot, mask) for slot in operands)
        check_barrier(which, threads)
        warp.cta.barriers.arrive(warp, which, threads[0] // LANES if threads else 0, waits)

    return Op(d.statement, "control", effect)


def _common(warp: Warp, slot: int, mask: Lanes | None) -> int:
    """The value that all active lanes have. Raises BarrierError, UninitializedError."""
    warp.require_clean(slot, mask, "a barrier")
    values = np.unique(warp.registers[slot][warp.active(mask)])
    if len(values) > 1:
        raise BarrierError(f"the lanes of a warp name different barriers or counts: {values}.")
    return int(values[0])


def _cluster_barrier(d: Decoder) -> Op:
    """barrier.cluster.arrive and wait, by warps that are whole."""
    form = tuple(item for item in d.modifiers[1:] if item != "aligned")
    arrives = form in (("arrive",), ("arrive", "release"), ("arrive", "relaxed"))
    if d.statement.opcode != "barrier" or not (arrives or form in (("wait",), ("wait", "acquire"))):
        raise d.fail("only barrier.cluster.arrive and wait are known")
    d.count(0)
    releases = form[-1] != "relaxed"

    def effect(warp: Warp, mask: Lanes | None) -> None:
        warp.require_converged(mask)
        if arrives:
            warp.cta.cluster.arrive(warp, releases)
        else:
            warp.cta.cluster.wait(warp)

    return Op(d.statement, "control", effect)


def _warp_barrier(d: Decoder) -> Op:
    d.count(1)
    slot = d.src(0, "b32")

    def effect(warp: Warp, mask: Lanes | None) -> None:
        lanes = warp.active(mask)
        named = int(warp.registers[slot][lanes[0]])
        present = sum(1 << int(lane) for lane in lanes)
        gone = 0 if warp.live is None else sum(1 << i for i in range(LANES) if not warp.live[i])
        if named & ~gone & ~present:
            warp.require_full(mask)
        warp.sync += 1

    return Op(d.statement, "control", effect)


def nothing(forms: tuple[tuple[str, ...], ...]) -> Decode:
    """An instruction that changes nothing here: memory is already coherent, launches in order."""

    def decode(d: Decoder) -> Op:
        if d.modifiers not in forms:
            raise d.fail("this form is not known")
        return Op(d.statement, "control", lambda warp, mask: None)

    return decode


def sleep(d: Decoder) -> Op:
    """nanosleep: the thread is suspended for a while; here others get their turn anyway."""
    d.count(1)
    if d.modifiers != ("u32",):
        raise d.fail("this form is not known")
    d.src(0, "u32")
    return Op(d.statement, "control", lambda warp, mask: None)


_SCOPES = ("cta", "gpu", "sys", "cluster")
_FENCES = tuple((*kind, scope) for scope in _SCOPES for kind in ((), ("acq_rel",), ("sc",)))
_INIT_FENCE = ("mbarrier_init", "release", "cluster")
_RELEASES = (("acq_rel", "cluster"), ("release", "sync_restrict::shared::cta", "cluster"))
"""Fences after which a relaxed arrival at the cluster barrier passes on what came before them."""


def _release(d: Decoder) -> Op:
    own_memory = "sync_restrict::shared::cta" in d.modifiers

    def effect(warp: Warp, mask: Lanes | None) -> None:
        if mask is None or (warp.live is not None and np.array_equal(mask, warp.live)):
            # Of some lanes only, it counts for none: what the others wrote is not released.
            clock, changes, before = warp.clock.copy(), warp.cta.change_agents, warp.released
            if own_memory:  # what was done to other CTAs' is released by another fence, or not
                clock[changes] = before[0][changes] if before else 0
            warp.released = (clock, warp.proxy.copy())
            warp.clock[warp.agent] += 1  # what follows is not covered

    return Op(d.statement, "control", effect)


def _release_inits(d: Decoder) -> Op:
    """Each lane's own mbarrier.init, and nothing else, is passed on by its next arrival."""

    def effect(warp: Warp, mask: Lanes | None) -> None:
        lanes = set(warp.active(mask).tolist())
        warp.released_inits += [item for item in warp.inits if item.lane in lanes]
        warp.inits = [item for item in warp.inits if item.lane not in lanes]

    return Op(d.statement, "control", effect)


def fence(d: Decoder) -> Op:
    """fence: of ordinary writes for wgmma (.proxy.async), or for a relaxed cluster arrival.

    The others change nothing here.
    """
    if d.modifiers in _RELEASES:
        return _release(d)
    if d.modifiers == _INIT_FENCE:
        return _release_inits(d)
    if d.modifiers[:2] != ("proxy", "async"):
        return nothing(_FENCES)(d)
    if d.modifiers[2:] not in ((), ("shared::cta",), ("global",)):
        raise d.fail("this form is not known")

    def effect(warp: Warp, mask: Lanes | None) -> None:
        np.maximum(warp.proxy, warp.clock, out=warp.proxy)
        warp.clock[warp.agent] += 1  # what follows is not covered

    return Op(d.statement, "control", effect)


CONTROL: dict[str, Decode] = {
    "ret": leave,
    "exit": leave,
    "bar": barrier,
    "barrier": barrier,
    "fence": fence,
    "membar": nothing((("cta",), ("gl",), ("sys",))),
    "nanosleep": sleep,
    "griddepcontrol": nothing((("wait",), ("launch_dependents",))),
}
