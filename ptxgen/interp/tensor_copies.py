"""cp.async.bulk.tensor of a 2-D box with the 128-byte swizzle, and prefetch.tensormap (PTX ISA,
"cp.async.bulk.tensor", "Tensors")."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
from pyptx.ir import nodes

from ptxgen.errors import MisalignedError, TensorMapError
from ptxgen.interp.bulk import ROW
from ptxgen.interp.decode import Decode, Decoder
from ptxgen.interp.global_memory import GlobalMemory
from ptxgen.interp.mbarrier_ops import each
from ptxgen.interp.ops import Op
from ptxgen.interp.registers import Lanes
from ptxgen.interp.tensor_maps import decode_map
from ptxgen.interp.transfers import Address, address_of
from ptxgen.tensor_map import (
    ELEMENT_BYTES,
    MAP_ALIGN,
    MAP_BYTES,
    SWIZZLE_BYTES,
    TensorMapRecipe,
)

if TYPE_CHECKING:
    from ptxgen.interp.cta import Cta
    from ptxgen.interp.warp import Warp

TO_ALIGN = 128
"""Alignment of a box in shared memory."""
_FORM = ("2d", "shared::cluster", "global", "mbarrier::complete_tx::bytes")
_MULTICAST = "multicast::cluster"
_BRACES = re.compile(r",?\s*\{([^{}]+)\}")


def tensor_copy(d: Decoder) -> Op:
    """A box lands when the schedule chooses; all of its bytes count on the mbarrier.

    A multicast lands in each CTA at its own time, at the same offset, and counts on the mbarrier at
    the same offset there.
    """
    form = tuple(item for item in d.modifiers[3:] if item != "tile")
    if form not in (_FORM, (*_FORM, _MULTICAST)):
        raise d.fail(f"only .{'.'.join(_FORM)} is known, with .{_MULTICAST} or without")
    d.count(3 + (_MULTICAST in form))
    ranks = d.src(3, "b16") if _MULTICAST in form else -1
    to, mbarrier = address_of(d, 0, shared=True), address_of(d, 2, shared=True)
    source, coordinates = _source(d)

    def effect(warp: Warp, mask: Lanes | None) -> None:
        for slot in (*coordinates, *((ranks,) if ranks >= 0 else ())):
            warp.require_clean(slot, mask, "a coordinate or a mask of a tensor copy")
        maps = [where for _, where in each(warp, source, mask)]
        targets = [where for _, where in each(warp, mbarrier, mask)]
        for (lane, where), at, target in zip(each(warp, to, mask), maps, targets, strict=True):
            recipe = _map_at(warp, at)
            first, token = (_signed(warp.registers[slot][lane]) for slot in coordinates)
            values = box_rows(recipe, warp.cta.memory, first, token)
            told = int(warp.registers[ranks][lane]) if ranks >= 0 else -1
            for cta in _receivers(warp, told):
                indices = cta.shared.check(swizzled(where, len(values)), ROW)
                cta.loads.issue(warp, lane, indices, values, target)
                cta.record("async_copy", warp, indices, ROW)

    return Op(d.statement, "lsu", effect)


def _receivers(warp: Warp, ranks: int) -> list[Cta]:
    """The CTAs of a mask's bits; where it is negative, the warp's own. Raises TensorMapError."""
    if ranks < 0:
        return [warp.cta]
    if not ranks:
        raise TensorMapError("a multicast to no CTA at all.")
    found = [rank for rank in range(ranks.bit_length()) if ranks >> rank & 1]
    return [warp.cta.cluster.cta_at(rank) for rank in found]


def prefetch(d: Decoder) -> Op:
    """prefetch.tensormap: nothing but a check that a map is there."""
    if d.modifiers != ("tensormap",):
        raise d.fail("only prefetch.tensormap is known")
    d.count(1)
    source = address_of(d, 0)

    def effect(warp: Warp, mask: Lanes | None) -> None:
        for _, where in each(warp, source, mask):
            _map_at(warp, where)

    return Op(d.statement, "lsu", effect)


def box_rows(recipe: TensorMapRecipe, memory: GlobalMemory, first: int, token: int) -> Lanes:
    """A box from input `first` and `token` on: [tokens * 8, 4] words, zero outside the tensor.

    Raises:
        OutOfBoundsError: the tensor itself lies outside every buffer.
    """
    width, height = recipe.box
    begin = min(max(first, 0), recipe.inputs)
    end = min(max(first + width, begin), recipe.inputs)
    tokens = token + np.arange(height)
    inside = (tokens >= 0) & (tokens < recipe.tokens)
    box = np.zeros((height, SWIZZLE_BYTES), dtype=np.uint8)
    if end > begin:
        nbytes = (end - begin) * ELEMENT_BYTES
        offsets = np.where(inside, tokens, 0) * recipe.row_bytes + begin * ELEMENT_BYTES
        addresses = np.uint64(recipe.address) + offsets.astype(np.uint64)
        read = memory.read_bytes(addresses, np.where(inside, nbytes, 0), nbytes)
        column = (begin - first) * ELEMENT_BYTES
        box[:, column : column + nbytes] = read
    rows: Lanes = box.reshape(-1, ROW).view(np.uint32)
    return rows


def swizzled(where: int, rows: int) -> Lanes:
    """Where each 16 bytes of a box go: bits 7-9 of the address are XORed onto bits 4-6.

    Raises:
        MisalignedError: the box's own address is no multiple of TO_ALIGN.
    """
    if where % TO_ALIGN:
        raise MisalignedError(
            f"a box at shared address {where:#x}; it must be a multiple of {TO_ALIGN}."
        )
    plain = np.uint64(where) + np.arange(rows, dtype=np.uint64) * np.uint64(ROW)
    found: Lanes = plain ^ (((plain >> np.uint64(7)) & np.uint64(7)) << np.uint64(4))
    return found


def _source(d: Decoder) -> tuple[Address, list[int]]:
    """[map, {input, token}], whose braces the PTX parser leaves in the offset."""
    operand = d.operands[1]
    found = None
    if isinstance(operand, nodes.AddressOperand):
        found = _BRACES.fullmatch(operand.offset or "")
        slot = d.registers.named(operand.base, d.statement)
    if found is None or slot is None or d.registers.bits(slot) != 64:
        raise d.fail("its source must be [map, {input, token}], the map in a 64-bit register")
    parts = [part.strip() for part in found[1].split(",")]
    slots = [d.source(_operand(part), "b32") for part in parts]
    if len(slots) != 2:
        raise d.fail(f"{len(slots)} coordinates for two dimensions")
    return Address(slot, 0), slots


def _operand(text: str) -> nodes.Operand:
    number = re.fullmatch(r"-?\d\w*", text)
    return nodes.ImmediateOperand(text) if number else nodes.RegisterOperand(text)


def _map_at(warp: Warp, address: int) -> TensorMapRecipe:
    return decode_map(warp.cta.parameters.read(address, MAP_BYTES, MAP_ALIGN))


def _signed(value: np.uint32) -> int:
    return int(value.view(np.int32))


PREFETCH: dict[str, Decode] = {"prefetch": prefetch}
