"""Static gates over a compiled kernel: local memory, tensor work, load widths, registers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from ptxgen.arch import ArchSpec
from ptxgen.compile import CompiledKernel
from ptxgen.config import KernelConfig
from ptxgen.problem import Problem
from ptxgen.sass.disassemble import Disassembly, SassInstruction, count, disassemble
from ptxgen.sass.promises import Promises, promises_of
from ptxgen.sass.stages import stage_loops, stages_in_a_row
from ptxgen.sass.warpgroup import WarpgroupPromises, warpgroup_failures
from ptxgen.source import LaunchPlan

MEMORY_WORDS = ("LDGSTS", "LDG", "STG", "LDS", "LDSM", "STS", "LDL", "STL")


@dataclass(frozen=True, slots=True)
class SassReport:
    """What the gates found.

    Attributes:
        failures: one sentence for each gate that does not hold; empty where all do.
        instructions: of the whole kernel.
        mma: tensor instructions of the whole kernel.
        stage_copies: how often the main loop's body stands in the code (unrolled by the compiler).
        memory: count of each memory opcode with its width, such as {"LDS.128": 12}.
        registers: of a thread.
    """

    failures: tuple[str, ...]
    instructions: int
    mma: int
    stage_copies: int
    memory: dict[str, int]
    registers: int

    @property
    def ok(self) -> bool:
        return not self.failures

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def check_sass(
    problem: Problem,
    config: KernelConfig,
    arch: ArchSpec,
    plan: LaunchPlan,
    compiled: CompiledKernel,
) -> SassReport:
    """Disassembles a compiled kernel and checks what its config promises.

    Raises:
        ToolError: nvdisasm is missing or failed.
    """
    code = disassemble(compiled.cubin, compiled.entry)
    promises = promises_of(problem, config, arch, plan)
    return report_on(code, promises, compiled.resources.registers)


def report_on(
    code: Disassembly, promises: Promises | WarpgroupPromises | None, registers: int
) -> SassReport:
    """The report of a disassembled kernel; promises may be None: then only local memory counts."""
    mma = count(code.instructions, "HMMA")
    failures = list(_local_memory(code))
    copies = 0
    if isinstance(promises, WarpgroupPromises):
        mma = count(code.instructions, "HGMMA")
        copies = mma // promises.wgmma
        failures += warpgroup_failures(code, promises, registers)
    elif promises is not None:
        copies = mma // promises.mma
        failures += _tensor(mma, promises)
        failures += _main_loop(code, promises)
        failures += _copy_widths(code)
        failures += _registers(registers, promises)
    return SassReport(
        failures=tuple(failures),
        instructions=len(code.instructions),
        mma=mma,
        stage_copies=copies,
        memory=_memory_counts(code.instructions),
        registers=registers,
    )


def main_loop(code: Disassembly) -> tuple[SassInstruction, ...]:
    """The loop over stages that holds most tensor instructions; of several the shortest.

    Where there is none, all code up to the end of the stages. Empty without tensor instructions.
    """
    return max(
        stage_loops(code, "HMMA"),
        key=lambda body: (count(body, "HMMA"), -len(body)),
        default=stages_in_a_row(code, "HMMA"),
    )


def _local_memory(code: Disassembly) -> Iterator[str]:
    found = count(code.instructions, "LDL") + count(code.instructions, "STL")
    if found:
        yield f"{found} instructions touch local memory (LDL, STL); none may"


def _tensor(mma: int, promises: Promises) -> Iterator[str]:
    if mma == 0 or mma % promises.mma:
        yield (
            f"{mma} tensor instructions (HMMA) are no multiple of the {promises.mma} that one "
            f"stage of a warp's tile has"
        )


def _main_loop(code: Disassembly, promises: Promises) -> Iterator[str]:
    body = main_loop(code)
    copies = count(body, "HMMA") // promises.mma
    if copies == 0:
        yield "the main loop does not hold a whole stage's tensor instructions"
        return
    wide = count(body, "LDS", "128")
    byte = count(body, "LDS", "U8")
    word = count(body, "LDS") - wide - byte
    found = (
        ("16-byte loads of weights (LDS.128)", wide, promises.weight_loads),
        ("4-byte loads of scales (LDS)", word, promises.scale_loads),
        ("1-byte loads of zero points (LDS.U8)", byte, promises.zero_loads),
        ("matrix loads of activations (LDSM)", count(body, "LDSM"), promises.activation_loads),
    )
    for what, number, promised in found:
        if number != copies * promised:
            yield f"the main loop has {number} {what} where {copies * promised} are promised"


def _copy_widths(code: Disassembly) -> Iterator[str]:
    """Copies to shared memory are of 16 bytes; only zero points may come 8 bytes at a time."""
    copies = [item for item in code.instructions if item.is_a("LDGSTS")]
    if not any("128" in item.opcode.split(".") for item in copies):
        yield "no copy to shared memory (LDGSTS) is of 16 bytes"
    narrow = [item for item in copies if not {"128", "64"} & set(item.opcode.split("."))]
    if narrow:
        yield f"{len(narrow)} copies to shared memory are of 4 bytes, such as {narrow[0].opcode}"


def _registers(registers: int, promises: Promises) -> Iterator[str]:
    if registers > promises.max_registers:
        yield (
            f"{registers} registers a thread are more than the {promises.max_registers} that the "
            f"planned CTAs of an SM leave"
        )


def _memory_counts(items: Iterable[SassInstruction]) -> dict[str, int]:
    """Memory opcodes by width, cache suffixes left out."""
    widths = ("U8", "64", "128", "M88")
    found: Counter[str] = Counter()
    for item in items:
        head, *suffixes = item.opcode.split(".")
        if head in MEMORY_WORDS:
            found[".".join([head, *(word for word in suffixes if word in widths)])] += 1
    return dict(sorted(found.items()))
