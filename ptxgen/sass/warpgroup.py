"""Promises and gates of kernels whose warpgroups multiply what TMA brings (family wgmma_tma)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ptxgen.arch import ArchSpec
from ptxgen.families.wgmma_tma.config import WgmmaTmaConfig
from ptxgen.problem import Problem
from ptxgen.sass.disassemble import Disassembly, SassInstruction, count
from ptxgen.source import LaunchPlan

STAGE_INPUTS = 128
STRIP_FEATURES = 64
SLABS = 2
"""Tensor copies of a stage: 64 inputs of all tokens each, as wide as the swizzle."""
SCHEDULERS = 4
"""Of an SM; a quarter of its registers and of its warps belong to each."""
REGISTER_STEP = 8
TO_GLOBAL = "UBLKCP.G.S"
"""A bulk copy from shared to global memory."""


@dataclass(frozen=True, slots=True)
class WarpgroupPromises:
    """Numbers a stage of the main loop, as one warp executes it, and the producer's copies.

    Attributes:
        wgmma: tensor instructions (HGMMA): k16 steps x row blocks.
        weight_loads: 16-byte loads of weights from shared memory.
        scale_loads: 4-byte loads of scales from shared memory.
        zero_loads: 1-byte loads of zero points from shared memory.
        strips: bulk copies of packed blocks (UBLKCP), for SLABS tensor copies (UTMALDG).
        max_registers: of a thread at its start, so that min_ctas CTAs fit an SM.
        shares: sums of shared tiles are sent by bulk copies, and read by others behind all stages'.
        ways: main loops, of which a tile takes one: fp16 scales that spread widely have their own.
    """

    wgmma: int
    weight_loads: int
    scale_loads: int
    zero_loads: int
    strips: int
    max_registers: int
    shares: bool = False
    ways: int = 1


def warpgroup_promises(
    problem: Problem, config: WgmmaTmaConfig, arch: ArchSpec, plan: LaunchPlan
) -> WarpgroupPromises:
    """What a config promises, from its knobs alone."""
    strips = config.block_n // STRIP_FEATURES
    rows = strips // config.warpgroups
    groups = 0 if problem.whole_k else STAGE_INPUTS // problem.group_size
    warps = -(-plan.threads // 32 * config.min_ctas // SCHEDULERS)
    registers = arch.registers_per_sm // SCHEDULERS // 32 // warps // REGISTER_STEP * REGISTER_STEP
    return WarpgroupPromises(
        wgmma=STAGE_INPUTS // 16 * rows,
        weight_loads=2 * rows,
        scale_loads=groups * rows,
        zero_loads=groups * rows if problem.zero == "int" else 0,
        strips=strips,
        max_registers=min(arch.registers_per_thread, registers),
        shares=config.stream_k,
        ways=2 if problem.dtype == "fp16" and not problem.whole_k else 1,
    )


def warpgroup_failures(
    code: Disassembly, promises: WarpgroupPromises, registers: int
) -> Iterator[str]:
    """One sentence for each promise that the machine code does not keep."""
    yield from _main_loop(code, promises)
    yield from _producer(code, promises)
    if copies := count(code.instructions, "LDGSTS"):
        yield f"{copies} copies to shared memory (LDGSTS) go through threads; TMA brings everything"
    if registers > promises.max_registers:
        yield (
            f"{registers} registers a thread are more than the {promises.max_registers} that the "
            f"planned CTAs of an SM leave"
        )


def _producer(code: Disassembly, promises: WarpgroupPromises) -> Iterator[str]:
    """The copies of a stage, and of stream-K what sends sums and what brings them."""
    bulks = [item for item in code.instructions if item.is_a("UBLKCP")]
    tensors = [item.address for item in code.instructions if item.is_a("UTMALDG")]
    if promises.shares:
        loads = [item for item in bulks if not item.opcode.startswith(TO_GLOBAL)]
        sent, last = len(bulks) - len(loads), max(tensors, default=0)
        bulks = [item for item in loads if item.address < last]
        brought = len(loads) - len(bulks)
        if not sent or not brought:
            yield (
                f"{sent} bulk copies ({TO_GLOBAL}) send sums of shared tiles, and {brought} behind "
                "all stages' bring them; both are needed"
            )
    if not tensors or len(tensors) * promises.strips != len(bulks) * SLABS:
        yield (
            f"{len(tensors)} tensor copies (UTMALDG) and {len(bulks)} bulk copies (UBLKCP) are not "
            f"the {SLABS} and {promises.strips} of a stage"
        )


def main_loop(code: Disassembly) -> tuple[SassInstruction, ...]:
    """The narrowest loop that holds tensor instructions; around it may be one over tiles.

    Where the compiler has unrolled it away, everything up to the last tensor instruction.
    """
    bodies = [code.between(*bounds) for bounds in code.loops()]
    last = max((item.address for item in code.instructions if item.is_a("HGMMA")), default=-1)
    with_wgmma = [body for body in bodies if count(body, "HGMMA")]
    return min(with_wgmma, key=len, default=code.between(0, last))


def _main_loop(code: Disassembly, promises: WarpgroupPromises) -> Iterator[str]:
    """Of each way; one whose stages all stand in a row has read the first one's words for both."""
    body = main_loop(code)
    in_a_row = promises.ways > 1 and count(body, "HGMMA") == count(code.instructions, "HGMMA")
    yield from _stages(body, promises, promises.ways - 1 if in_a_row else 0)
    if promises.ways == 1 or in_a_row:
        return
    ways = _ways(code)
    if len(ways) != promises.ways:
        yield f"{len(ways)} main loops have tensor instructions (HGMMA) where {promises.ways} do"
    for other in ways:
        if other != body:
            yield from _stages(other, promises)


def _ways(code: Disassembly) -> list[tuple[SassInstruction, ...]]:
    """The narrowest loops that hold tensor instructions and nothing of each other."""
    found: list[tuple[SassInstruction, ...]] = []
    bodies = [code.between(*bounds) for bounds in code.loops()]
    for body in sorted((item for item in bodies if count(item, "HGMMA")), key=len):
        first, last = body[0].address, body[-1].address
        if all(last < other[0].address or other[-1].address < first for other in found):
            found.append(body)
    return found


def _stages(
    body: tuple[SassInstruction, ...], promises: WarpgroupPromises, shared: int = 0
) -> Iterator[str]:
    """Of a main loop, but for the loads of some stages that others share with them."""
    wgmma = count(body, "HGMMA")
    copies = wgmma // promises.wgmma
    if not wgmma or wgmma % promises.wgmma:
        yield (
            f"{wgmma} tensor instructions (HGMMA) of the main loop are no multiple of the "
            f"{promises.wgmma} of a stage"
        )
    wide, byte = count(body, "LDS", "128"), count(body, "LDS", "U8")
    found = (
        ("16-byte loads of weights (LDS.128)", wide, promises.weight_loads),
        ("4-byte loads of scales (LDS)", count(body, "LDS") - wide - byte, promises.scale_loads),
        ("1-byte loads of zero points (LDS.U8)", byte, promises.zero_loads),
    )
    for what, number, promised in found:
        if number != (copies - shared) * promised:
            loads = (copies - shared) * promised
            yield f"the main loop has {number} {what} where {loads} are promised"
