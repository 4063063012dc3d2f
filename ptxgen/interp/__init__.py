"""The PTX interpreter: runs the kernels' PTX on the CPU and checks every access. Needs no GPU.

program = load_program(ptx, entry)
memory = GlobalMemory()
x = memory.allocate("x", array, readonly=True)
report = run(program, Launch(grid, block, smem_bytes, (x, ...)), memory, Schedule(seed=1))
"""

from ptxgen.interp.api import (
    POLICIES,
    Access,
    Counts,
    Launch,
    Policy,
    Race,
    RunOptions,
    RunReport,
    Schedule,
    SharedAccess,
)
from ptxgen.interp.global_memory import GlobalMemory
from ptxgen.interp.machine import run
from ptxgen.interp.program import Program, load_program
from ptxgen.interp.tensor_maps import encode_map

__all__ = [
    "POLICIES",
    "Access",
    "Counts",
    "GlobalMemory",
    "Launch",
    "Policy",
    "Program",
    "Race",
    "RunOptions",
    "RunReport",
    "Schedule",
    "SharedAccess",
    "encode_map",
    "load_program",
    "run",
]
