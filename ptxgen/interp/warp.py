"""Warp: registers, poison, active lanes and the instruction loop of 32 threads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ptxgen.errors import DivergenceError, KernelFaultError, UninitializedError
from ptxgen.interp.bulk import BulkStores
from ptxgen.interp.copies import CopyQueue
from ptxgen.interp.ops import Op, merged
from ptxgen.interp.registers import LANES, Lanes, Registers
from ptxgen.interp.warpgroup import ProductQueue

if TYPE_CHECKING:
    from ptxgen.interp.cta import Cta
    from ptxgen.interp.mbarriers import Init

ALL_LANES = np.arange(LANES)


class Warp:
    """32 threads that run together while their program counters agree.

    Attributes:
        cta: the CTA it belongs to.
        index: which of its warps it is.
        agent: which of the cluster's warps it is; its place in clocks.
        registers: by slot; see ptxgen.interp.registers.
        poison: slot -> lanes whose value comes from shared memory that nobody wrote.
        pc: program counter of the active lanes.
        mask: active lanes, or None for all 32.
        live: lanes that have not exited, or None for all 32.
        waiting: what the warp waits for, or "".
        done: every lane has exited.
        clock: the race shadow's vector clock, one number a warp of the cluster, one for what each
            changes in other CTAs' shared memory, then those of copies that mbarriers complete.
        sync: how often the warp's lanes were synchronised.
        proxy: as clock, but only what a fence.proxy.async has made visible to wgmma.
        released: clock and proxy as a release fence found them, for relaxed arrivals; or None.
        inits: its mbarrier.init that no fence.mbarrier_init has released yet.
        released_inits: those that one has, until the next arrival at the cluster barrier.
        turned: a wait of its lanes was in vain; lanes elsewhere, if any, run first.
        copies: cp.async that were issued and not waited for.
        stores: cp.async.bulk to global memory, likewise.
        register_moves: setmaxnreg executed, direction and count.
        products: wgmma that were issued and not waited for.
    """

    def __init__(self, cta: Cta, index: int, registers: Registers, live: Lanes | None) -> None:
        self.cta = cta
        self.turned = False
        self.index = index
        self.agent = cta.rank * cta.warp_count + index
        self.registers = registers
        self.poison: dict[int, Lanes] = {}
        self.pc = 0
        self.mask = live
        self.live = live
        self.waiting = ""
        self.done = False
        self.clock: NDArray[np.int32] = np.zeros(cta.agent_count, dtype=np.int32)
        self.clock[self.agent] = 1
        self.sync = 0
        self.proxy: NDArray[np.int32] = np.zeros(cta.agent_count, dtype=np.int32)
        self.released: tuple[NDArray[np.int32], NDArray[np.int32]] | None = None
        self.copies = CopyQueue()
        self.stores = BulkStores()
        self.inits: list[Init] = []
        self.released_inits: list[Init] = []
        self.register_moves: list[tuple[str, int]] = []
        self.products = ProductQueue()
        self._others: list[tuple[int, Lanes]] = []
        self._places: list[int] = []

    # ---- registers --------------------------------------------------------------------------

    def set(self, slot: int, value: Lanes, mask: Lanes | None, bad: Lanes | None = None) -> None:
        """Writes a register for the lanes of a mask; `bad` marks poisoned lanes."""
        old = self.registers[slot]
        self.registers[slot] = merged(value, old, mask)
        if bad is None and slot not in self.poison:
            return
        none = np.zeros(LANES, dtype=np.bool_)
        poison = merged(none if bad is None else bad, self.poison.get(slot, none), mask)
        if poison.any():
            self.poison[slot] = poison
        else:
            self.poison.pop(slot, None)

    def poison_of(self, slots: Sequence[int]) -> Lanes | None:
        """Lanes in which one of the registers is poisoned, or None."""
        found = [self.poison[slot] for slot in slots if slot in self.poison]
        return np.logical_or.reduce(found) if found else None

    def require_clean(self, slot: int, mask: Lanes | None, use: str) -> None:
        """Raises UninitializedError where a register is poisoned in an active lane."""
        poison = self.poison.get(slot)
        if poison is None:
            return
        hit = poison if mask is None else poison & mask
        if hit.any():
            raise UninitializedError(
                f"shared memory that nobody wrote reached {use} (lane {int(np.argmax(hit))})."
            )

    def active(self, mask: Lanes | None) -> Lanes:
        """Indices of the lanes of a mask."""
        return ALL_LANES if mask is None else np.flatnonzero(mask)

    def require_converged(self, mask: Lanes | None) -> None:
        """Raises DivergenceError unless every lane that has not exited takes part."""
        missing = self._others or (
            mask is not None and (self.live is None or not np.array_equal(mask, self.live))
        )
        if missing:
            raise DivergenceError(
                "an instruction that all lanes of a warp must run together ran with lanes missing."
            )

    def require_full(self, mask: Lanes | None) -> None:
        """Raises DivergenceError unless all 32 lanes take part."""
        if mask is not None or self._others:
            raise DivergenceError(
                "an instruction of a whole warp (.sync.aligned) ran with lanes missing."
            )

    # ---- control ----------------------------------------------------------------------------

    def branch(self, target: int, mask: Lanes | None) -> None:
        """Sends the lanes of the mask to the target; others go on behind the branch."""
        active = np.ones(LANES, dtype=np.bool_) if self.mask is None else self.mask
        rest = None if mask is None else active & ~mask
        if rest is None or not rest.any():
            self.pc = target
            return
        assert mask is not None  # noqa: S101 - rest has lanes, so mask is no None
        self._others.append((target, active & mask))
        self.mask = rest

    def turn(self) -> None:
        """A wait of the active lanes was in vain: lanes elsewhere, if any, run first."""
        self.turned = bool(self._others)

    def again(self) -> bool:
        """Runs the present instruction again after one of the lanes elsewhere.

        Returns:
            Whether that can help: there are such lanes, and some have moved since the last time.
        """
        places = sorted(pc for pc, _ in [*self._others, (self.pc, self.mask)])
        if not self._others or places == self._places:
            return False
        self._places = places
        self.pc -= 1
        self.turned = True
        return True

    def exit(self, mask: Lanes | None) -> None:
        """Ends the lanes of a mask."""
        active = np.ones(LANES, dtype=np.bool_) if self.mask is None else self.mask
        gone = active if mask is None else active & mask
        live = np.ones(LANES, dtype=np.bool_) if self.live is None else self.live
        self.live = live & ~gone
        rest = active & ~gone
        if rest.any():
            self.mask = rest
        elif self._others:
            self.pc, self.mask = self._others.pop()
        else:
            self.done = True
            self.cta.warp_done(self)

    def _reconverge(self) -> None:
        """Runs the lanes that are furthest behind; lanes on the same instruction join.

        Lanes that wait for an mbarrier in vain let one instruction of the others go first: those
        may be the ones that have to arrive.
        """
        groups = [*self._others, (self.pc, self.mask)]
        self.pc = (max if self.turned else min)(pc for pc, _ in groups)
        self.turned = False
        here = [mask for pc, mask in groups if pc == self.pc and mask is not None]
        self._others = [(pc, mask) for pc, mask in groups if pc != self.pc and mask is not None]
        self.mask = np.logical_or.reduce(here)
        if not self._others:
            self._places = []
            if self.mask.all():
                self.mask = None

    # ---- the loop ---------------------------------------------------------------------------

    def run(self, budget: int) -> int:
        """Runs until the warp waits or ends, or has run `budget` instructions; returns how many."""
        program, cta, done = self.cta.program, self.cta, 0
        ops, blocks, hits, block_hits = program.ops, program.blocks, cta.hits, cta.block_hits
        while done < budget and not self.waiting and not self.done:
            if self._others:
                self._reconverge()
            pc = self.pc
            if self.mask is None and not self.poison:
                block = blocks[pc]
                if block:
                    registers = self.registers
                    for fast in block:
                        fast(registers)
                    block_hits[pc] += 1
                    done += len(block)
                    self.pc = pc + len(block)
                    continue
            hits[pc] += 1
            done += 1
            try:
                self._step(ops[pc])
            except KernelFaultError as error:
                raise type(error)(f"{cta.place(self.index, pc)}: {error}") from error
        return done

    def _step(self, op: Op) -> None:
        self.pc += 1
        mask = self.mask
        if op.guard >= 0:
            self.require_clean(op.guard, mask, "a predicate")
            hold = self.registers[op.guard]
            hold = ~hold if op.negated else hold
            mask = hold if mask is None else hold & mask
            if not mask.any():
                return
            if self.mask is None and mask.all():
                mask = None
        op.effect(self, mask)
