"""setmaxnreg: registers moved between warpgroups (PTX ISA, "setmaxnreg"). Registers are not
counted here; what is checked is who executes it and with which numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ptxgen.errors import DivergenceError
from ptxgen.interp.decode import Decode, Decoder
from ptxgen.interp.ops import Op
from ptxgen.interp.registers import Lanes

if TYPE_CHECKING:
    from ptxgen.interp.warp import Warp

WARPGROUP = 4
"""Warps of a warpgroup."""
LOWEST, HIGHEST, STEP = 24, 256, 8


def set_registers(d: Decoder) -> Op:
    """Executed by whole warps; that whole warpgroups do it is checked when the CTA ends."""
    if d.modifiers not in tuple((way, "sync", "aligned", "u32") for way in ("inc", "dec")):
        raise d.fail("only setmaxnreg.{inc,dec}.sync.aligned.u32 is known")
    d.count(1)
    count = d.number(0)
    if count % STEP or not LOWEST <= count <= HIGHEST:
        raise d.fail(f"it takes a multiple of {STEP} in {LOWEST} .. {HIGHEST}")

    def effect(warp: Warp, mask: Lanes | None) -> None:
        warp.require_converged(mask)
        warp.register_moves.append((d.modifiers[0], count))

    return Op(d.statement, "control", effect)


def require_whole_warpgroups(warps: Sequence[Warp]) -> None:
    """Raises DivergenceError where the warps of a warpgroup did not all move the same registers."""
    for first in range(0, len(warps), WARPGROUP):
        group = warps[first : first + WARPGROUP]
        moves = [warp.register_moves for warp in group]
        if any(moves) and (len(group) < WARPGROUP or any(item != moves[0] for item in moves)):
            told = "; ".join(f"warp {first + i}: {item}" for i, item in enumerate(moves))
            raise DivergenceError(
                f"setmaxnreg must be executed alike by all {WARPGROUP} warps of a warpgroup, "
                f"but they executed {told}."
            )


REGISTER_MOVES: dict[str, Decode] = {"setmaxnreg": set_registers}
