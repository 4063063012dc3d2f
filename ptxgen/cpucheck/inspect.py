"""inspect: a case run in the interpreter, and the machine code of the same kernel gated."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from ptxgen.compile import compile_source
from ptxgen.cpucheck.prove import Proof, Verdict, prove_race_free
from ptxgen.cpucheck.reduced import Case
from ptxgen.cpucheck.run import CpuCheckResult, check_compiled
from ptxgen.errors import ToolError
from ptxgen.families import emit
from ptxgen.interp import RunOptions, Schedule
from ptxgen.sass.banks import BankReport, bank_reports, fragment_conflicts
from ptxgen.sass.gates import SassReport, check_sass


@dataclass(frozen=True, slots=True)
class Inspection:
    """All that can be said about a kernel without a GPU.

    Attributes:
        result: of the interpreter.
        sass: of the gates over the machine code; None where nvdisasm is missing or it spills.
        conflicts: fragment loads with bank conflicts.
        proof: of race freedom under every schedule; None where it was not asked for.
        registers: of a thread.
        spills: whether ptxas had to spill and that was accepted: then nothing is gated.
        note: what could not be checked, and the cure; empty where all was.
    """

    result: CpuCheckResult
    sass: SassReport | None
    conflicts: tuple[BankReport, ...]
    proof: Proof | None
    registers: int
    spills: bool = False
    note: str = ""

    @property
    def ok(self) -> bool:
        raced = self.proof is not None and self.proof.verdict is Verdict.RACE
        gated = not self.conflicts and (self.sass is None or self.sass.ok)
        return self.result.ok and gated and not raced


def inspect(
    case: Case, schedules: Sequence[Schedule], *, prove: bool = False, accept_spills: bool = False
) -> Inspection:
    """Compiles a case's kernel and checks it.

    Args:
        case: a small problem, a config, an arch and a batch size.
        schedules: orders of warps and CTAs to run it in.
        prove: also let sentryward prove that no schedule has a race.
        accept_spills: do not gate the machine code of a kernel that spills: a tuner stores such
            a config as spilled and never times it, but its results have to be right.

    Raises:
        ConfigError: the config is illegal.
        CompileError: NVRTC is missing or refused the source.
        UnsupportedPtxError: the interpreter lacks an instruction.
        ToolError: a proof is asked for and sentryward is missing.
    """
    started = time.perf_counter()
    source = emit(case.problem, case.config, case.arch)
    compiled = compile_source(source, line_info=True)
    spills = accept_spills and compiled.resources.spill_bytes > 0
    options = RunOptions(record_shared=not spills)
    result = check_compiled(case, source, compiled, schedules, options=options, started=started)
    sass, missing = None, ""
    conflicts: list[BankReport] = []
    if not spills:
        try:
            sass = check_sass(case.problem, case.config, case.arch, source.plan, compiled)
        except ToolError as error:
            missing = str(error)
        if result.reports:
            conflicts = fragment_conflicts(bank_reports(result.reports[0].shared_accesses))
    proof = prove_race_free(case, source.plan, compiled) if prove else None
    registers = compiled.resources.registers
    return Inspection(result, sass, tuple(conflicts), proof, registers, spills, missing)
