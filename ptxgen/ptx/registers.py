"""Moving registers between warpgroups (PTX ISA, "setmaxnreg"), sm_90a."""

from __future__ import annotations

from ptxgen.errors import ConfigError
from ptxgen.ptx.instruction import Instruction, effect

LOWEST = 24
HIGHEST = 256
STEP = 8


def set_registers_up(count: int) -> Instruction:
    """Raises the registers of a thread to `count`; waits until others have given them back.

    Every warp of a warpgroup executes it. The kernel must have __launch_bounds__ with both numbers,
    threads and CTAs of an SM: without the second ptxas ignores the instruction (its C7508).

    Raises:
        ConfigError: count is no multiple of 8 in 24 .. 256.
    """
    return _set_registers("up", "inc", count)


def set_registers_down(count: int) -> Instruction:
    """Lowers the registers of a thread to `count`.

    Raises:
        ConfigError: as set_registers_up does.
    """
    return _set_registers("down", "dec", count)


def _set_registers(direction: str, action: str, count: int) -> Instruction:
    if count % STEP or not LOWEST <= count <= HIGHEST:
        raise ConfigError(
            f"setmaxnreg cannot give a thread {count} registers; choose a multiple of {STEP} "
            f"between {LOWEST} and {HIGHEST}."
        )
    return effect(
        f"void set_registers_{direction}_{count}()",
        f"setmaxnreg.{action}.sync.aligned.u32 {count};",
        "Miscellaneous Instructions: setmaxnreg",
    )
