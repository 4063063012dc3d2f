"""ldmatrix, stmatrix, movmatrix and mma.sync (PTX ISA, "Warp-Level Matrix Instructions")."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ptxgen.interp.decode import Decode, Decoder
from ptxgen.interp.ops import Op
from ptxgen.interp.registers import LANES, Lanes
from ptxgen.interp.rounding import from_bf16, from_f16, to_f32
from ptxgen.interp.shadow import SEVERAL
from ptxgen.interp.transfers import address_of

if TYPE_CHECKING:
    from ptxgen.interp.warp import Warp

_MMA = "sync aligned m16n8k16 row col f32 {0} {0} f32"
WIDEN: dict[str, Callable[[Lanes], Lanes]] = {"f16": from_f16, "bf16": from_bf16}


def _matrices(d: Decoder, opcode: str) -> tuple[int, bool]:
    """How many 8 x 8 matrices ldmatrix or stmatrix names, and whether it transposes them."""
    form = [item for item in d.modifiers if item not in ("shared::cta", "shared")]
    transposed = "trans" in form
    form = [item for item in form if item != "trans"]
    counts = {"x1": 1, "x2": 2, "x4": 4}
    plain = len(form) == 5 and form[:3] + form[4:] == ["sync", "aligned", "m8n8", "b16"]
    if not plain or form[3] not in counts:
        raise d.fail(f"only {opcode}.sync.aligned.m8n8.{{x1,x2,x4}}{{.trans}}.shared.b16 is known")
    d.count(2)
    return counts[form[3]], transposed


def load_matrix(d: Decoder) -> Op:
    """ldmatrix: lane i gives the address of row i % 8 of matrix i / 8."""
    count, transposed = _matrices(d, "ldmatrix")
    dsts, address = d.dst_vector(0, 32), address_of(d, 1, shared=True)
    if len(dsts) != count:
        raise d.fail(f"{len(dsts)} registers for .x{count}")
    rows, everyone = 8 * count, np.full(8 * count, SEVERAL)
    named: Lanes = np.arange(LANES) < rows

    def effect(warp: Warp, mask: Lanes | None) -> None:
        warp.require_full(mask)
        addresses = address.lanes(warp, named)
        words, missing = warp.cta.shared.read(warp, addresses, 4, 4, everyone)
        warp.cta.record("shared_read", warp, addresses, 16)
        values = _fragments(words, count, transposed)
        # Poison is kept by word; transposed, by matrix: a row is spread over all lanes.
        bad: Lanes | None = None
        if missing is not None and transposed:
            any_of = np.logical_or.reduce(missing.reshape(count, LANES), axis=1)
            bad = np.repeat(any_of[:, None], LANES, axis=1)
        elif missing is not None:
            bad = missing.reshape(count, LANES)
        for index, slot in enumerate(dsts):
            warp.set(slot, values[index], None, None if bad is None else bad[index])

    return Op(d.statement, "lsu", effect)


def store_matrix(d: Decoder) -> Op:
    """stmatrix: lane i gives the address of row i % 8 of matrix i / 8."""
    count, transposed = _matrices(d, "stmatrix")
    address, sources = address_of(d, 0, shared=True), d.src_vector(1, "b32")
    if len(sources) != count:
        raise d.fail(f"{len(sources)} registers for .x{count}")
    rows, everyone = 8 * count, np.full(8 * count, SEVERAL)
    named: Lanes = np.arange(LANES) < rows

    def effect(warp: Warp, mask: Lanes | None) -> None:
        warp.require_full(mask)
        addresses = address.lanes(warp, named)
        turned = [_fragments(warp.registers[slot], 1, transposed)[0] for slot in sources]
        values = np.concatenate(turned).reshape(rows, 4)
        missing: Lanes | None = None
        if warp.poison and warp.poison_of(sources) is not None:
            clean = np.zeros(LANES, dtype=np.bool_)
            bad = [warp.poison.get(slot, clean) for slot in sources]
            # As in ldmatrix: transposed, what is missing of a matrix taints all of it.
            bad = [np.full(LANES, lanes.any()) if transposed else lanes for lanes in bad]
            missing = np.concatenate(bad).reshape(rows, 4)
        warp.cta.shared.write(warp, addresses, values, everyone, missing)
        warp.cta.record("shared_write", warp, addresses, 16)

    return Op(d.statement, "lsu", effect)


def move_matrix(d: Decoder) -> Op:
    """movmatrix: transposes a matrix whose row i / 4 lane i holds two elements of."""
    if d.modifiers != ("sync", "aligned", "m8n8", "trans", "b16"):
        raise d.fail("only movmatrix.sync.aligned.m8n8.trans.b16 is known")
    d.count(2)
    dst, a = d.dst(0, 32), d.src(1, "b32")

    def effect(warp: Warp, mask: Lanes | None) -> None:
        warp.require_full(mask)
        words = np.ascontiguousarray(warp.registers[a])
        bad = np.ones(LANES, dtype=np.bool_) if a in warp.poison else None
        warp.set(dst, _fragments(words, 1, True)[0], None, bad)

    return Op(d.statement, "lsu", effect)


def _fragments(words: Lanes, count: int, transposed: bool) -> Lanes:
    """[count, 32]: lane 4 g + t gets elements 2 t and 2 t + 1 of row g (transposed: column g)."""
    if not transposed:
        return words.reshape(count, LANES)
    halves = np.ascontiguousarray(words).view(np.uint16).reshape(count, 8, 8)
    turned = np.ascontiguousarray(halves.transpose(0, 2, 1))
    return turned.view(np.uint32).reshape(count, LANES)


def multiply_accumulate(d: Decoder) -> Op:
    """mma.m16n8k16 of f16 or bf16 with FP32 accumulation: exact products and sum, rounded once."""
    kind = d.modifiers[6] if len(d.modifiers) == 9 else ""
    if kind not in WIDEN or list(d.modifiers) != _MMA.format(kind).split():
        raise d.fail(f"only mma.{'.'.join(_MMA.format('{f16,bf16}').split())} is known")
    d.count(4)
    dsts, widen = d.dst_vector(0, 32), WIDEN[kind]
    a, b, c = d.src_vector(1, "b32"), d.src_vector(2, "b32"), d.src_vector(3, "f32")
    if (len(dsts), len(a), len(b), len(c)) != (4, 4, 2, 4):
        raise d.fail("its fragments have the wrong number of registers")
    slots = {*a, *b, *c}

    def effect(warp: Warp, mask: Lanes | None) -> None:
        warp.require_full(mask)
        r = warp.registers
        left, right, added = matrix_a(r, a, widen), matrix_b(r, b, widen), matrix_c(r, c)
        result = fragment_c(to_f32((left @ right + added).reshape(-1)))
        bad = _poison(warp, a, b, c) if warp.poison and slots & warp.poison.keys() else None
        for index, slot in enumerate(dsts):
            warp.set(slot, result[index], None, None if bad is None else bad[index])

    return Op(d.statement, "tensor", effect)


def matrix_a(r: list[Lanes], slots: list[int], widen: Callable[[Lanes], Lanes]) -> Lanes:
    """[16, 16]: register i of lane 4 g + t holds row g + 8 (i % 2), columns 2 t + 8 (i / 2)."""
    raw = np.concatenate([r[slot] for slot in slots]).view(np.uint16)
    parts = widen(raw).reshape(2, 2, 8, 4, 2)
    return parts.transpose(1, 2, 0, 3, 4).reshape(16, 16)


def matrix_b(r: list[Lanes], slots: list[int], widen: Callable[[Lanes], Lanes]) -> Lanes:
    """[16, 8]: register i of lane 4 g + t holds rows 2 t + 8 i of column g."""
    raw = np.concatenate([r[slot] for slot in slots]).view(np.uint16)
    return widen(raw).reshape(2, 8, 4, 2).transpose(0, 2, 3, 1).reshape(16, 8)


def matrix_c(r: list[Lanes], slots: list[int]) -> Lanes:
    """[16, 8]: registers 2 i and 2 i + 1 of lane 4 g + t hold row g + 8 i, columns 2 t, 2 t + 1."""
    raw = np.concatenate([r[slot] for slot in slots]).view(np.float32).astype(np.float64)
    return raw.reshape(2, 2, 8, 4).transpose(0, 2, 3, 1).reshape(16, 8)


def fragment_c(bits: Lanes) -> Lanes:
    """[4, 32]: the inverse of matrix_c, on 128 elements."""
    return bits.reshape(2, 8, 4, 2).transpose(0, 3, 1, 2).reshape(4, LANES)


def _poison(warp: Warp, a: list[int], b: list[int], c: list[int]) -> Lanes:
    """[4, 32]: a poisoned element of A spoils its row, one of B its column, one of C itself."""
    clean = np.zeros(LANES, dtype=np.bool_)
    flags = {slot: warp.poison.get(slot, clean) for slot in (*a, *b, *c)}
    rows = np.zeros((2, 8), dtype=np.bool_)
    for index, slot in enumerate(a):
        rows[index % 2] |= flags[slot].reshape(8, 4).any(axis=1)
    columns = np.logical_or.reduce([flags[slot].reshape(8, 4).any(axis=1) for slot in b])
    spoiled = rows.reshape(16, 1) | columns.reshape(1, 8)
    own = np.concatenate([flags[slot] for slot in c]).reshape(2, 2, 8, 4)
    return fragment_c((spoiled | own.transpose(0, 2, 3, 1).reshape(16, 8)).reshape(-1))


MATRIX: dict[str, Decode] = {
    "ldmatrix": load_matrix,
    "movmatrix": move_matrix,
    "stmatrix": store_matrix,
    "mma": multiply_accumulate,
}
