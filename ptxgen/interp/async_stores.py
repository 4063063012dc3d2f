"""st.async: 16 bytes a lane into the shared memory of a CTA of the cluster, counted by an mbarrier
there (PTX ISA, "st.async"). They land when the schedule chooses, as copies in bulk do."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from ptxgen.errors import MbarrierError
from ptxgen.interp.bulk import ROW
from ptxgen.interp.decode import Decode, Decoder
from ptxgen.interp.mbarrier_ops import each
from ptxgen.interp.ops import Op
from ptxgen.interp.registers import Lanes
from ptxgen.interp.remote import owner
from ptxgen.interp.transfers import address_of, store

if TYPE_CHECKING:
    from ptxgen.interp.cta import Cta
    from ptxgen.interp.warp import Warp

_FORM = ("async", "shared::cluster", "mbarrier::complete_tx::bytes", "v4")
_TYPES = ("b32", "u32", "s32", "f32")


def any_store(d: Decoder) -> Op:
    """st.async, or an ordinary st."""
    return async_store(d) if d.modifiers[:1] == ("async",) else store(d)


def async_store(d: Decoder) -> Op:
    """The rows of all lanes that go to one CTA and one mbarrier travel together."""
    form = tuple(item for item in d.modifiers[:-1] if item != "weak")
    if form != _FORM or d.kind not in _TYPES:
        raise d.fail(f"only st.{'.'.join(_FORM)}.{{{','.join(_TYPES)}}} is known")
    d.count(3)
    to, mbarrier = address_of(d, 0, shared=True), address_of(d, 2, shared=True)
    srcs = d.src_vector(1, "b32")
    if len(srcs) != ROW // 4:
        raise d.fail(f"{len(srcs)} registers for .v4")

    def effect(warp: Warp, mask: Lanes | None) -> None:
        for slot in srcs:
            warp.require_clean(slot, mask, "an asynchronous store")
        values = np.stack([warp.registers[slot] for slot in srcs], axis=1)
        targets = [where for _, where in each(warp, mbarrier, mask)]
        groups: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        owners: dict[tuple[int, int], Cta] = {}
        for (lane, where), target in zip(each(warp, to, mask), targets, strict=True):
            (cta, local), (told, at) = owner(warp, where), owner(warp, target)
            if cta is not told:
                raise MbarrierError("an asynchronous store and its mbarrier are in two CTAs.")
            groups[cta.rank, at].append((lane, local))
            owners[cta.rank, at] = cta
        for key, rows in groups.items():
            lanes, places = np.array(rows, dtype=np.int64).T
            cta = owners[key]
            indices = cta.shared.check(places.astype(np.uint64), ROW)
            cta.loads.issue(warp, lanes, indices, values[lanes], key[1])
            warp.cta.record("cluster_write", warp, indices, ROW)

    return Op(d.statement, "lsu", effect)


STORES: dict[str, Decode] = {"st": any_store}
