"""check_on_cpu: a kernel, compiled by NVRTC, run in the interpreter, held to the reference."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import torch
from torch import Tensor

from ptxgen.arch import ArchSpec
from ptxgen.check import compare
from ptxgen.compile import CompiledKernel, compile_source
from ptxgen.config import KernelConfig
from ptxgen.cpucheck.buffers import Buffers, checked_data, packed_weights
from ptxgen.cpucheck.reduced import Case
from ptxgen.errors import KernelFaultError, ProblemError, UnsupportedPtxError
from ptxgen.families import emit
from ptxgen.interp import Program, RunOptions, RunReport, Schedule, load_program, run
from ptxgen.problem import Problem
from ptxgen.reference import reference_output
from ptxgen.source import KernelSource

SCHEDULES = (
    Schedule(seed=1, policy="one_ahead", resident=2),
    Schedule(seed=2, policy="reverse", resident=1),
    Schedule(seed=3, policy="random", resident=4),
)
"""Orders in which a kernel is run: one warp far ahead, warps and CTAs backwards, all at random."""


class FailureKind(StrEnum):
    """What a check can find."""

    FAULT = "fault"  # out of bounds, misaligned, uninitialised, divergent, deadlocked or endless
    RACE = "race"  # two unsynchronised accesses of shared memory
    UNWRITTEN = "unwritten"  # outputs that nobody wrote
    GUARD = "guard"  # writes between the rows of y
    REWRITTEN = "rewritten"  # outputs written more than once: the last writer wins
    EARLY = "early"  # partial sums read, or counted in, before they were written
    VALUE = "value"  # another result than the reference
    COUNTER = "counter"  # a workspace that the next launch could not use
    ORDER = "order"  # schedules whose outputs differ in a bit


@dataclass(frozen=True, slots=True)
class Failure:
    """One thing that is wrong, and under which schedule it showed."""

    kind: FailureKind
    schedule: str
    message: str

    def __str__(self) -> str:
        return f"{self.kind} under schedule {self.schedule}: {self.message}"


@dataclass(frozen=True, slots=True)
class CpuCheckResult:
    """Verdict of a check.

    Attributes:
        case: what was run.
        failures: what is wrong; empty where the kernel is right.
        rel_err: ||out - ref|| / ||ref||, the largest of the schedules; inf where none ended.
        schedules: names of the schedules that were run.
        steps: warp instructions executed, all schedules together.
        seconds: of the whole check, the compilation included.
        reports: what the interpreter saw under each schedule that ended.
    """

    case: Case
    failures: tuple[Failure, ...]
    rel_err: float
    schedules: tuple[str, ...]
    steps: int
    seconds: float
    reports: tuple[RunReport, ...] = field(repr=False, default=())

    @property
    def ok(self) -> bool:
        return not self.failures

    def to_dict(self) -> dict[str, Any]:
        """JSON-friendly summary, without the interpreter's reports."""
        return {
            "ok": self.ok,
            "problem": self.case.problem.to_dict(),
            "config": self.case.config.to_dict(),
            "arch": self.case.arch.name,
            "m": self.case.m,
            "rel_err": self.rel_err if self.rel_err != float("inf") else None,
            "failures": [
                {"kind": f.kind.value, "schedule": f.schedule, "message": f.message}
                for f in self.failures
            ],
            "schedules": list(self.schedules),
            "steps": self.steps,
            "seconds": round(self.seconds, 3),
        }


def check_on_cpu(
    problem: Problem,
    config: KernelConfig,
    arch: ArchSpec,
    m: int,
    schedules: Sequence[Schedule] = SCHEDULES,
    *,
    seed: int = 0,
    options: RunOptions | None = None,
) -> CpuCheckResult:
    """Emits, compiles and runs one kernel in the interpreter, and compares it with the reference.

    Args:
        problem: what is computed; keep it small, an instruction of a warp takes some microseconds.
        config: of any family.
        arch: target.
        m: batch size, at least 1.
        schedules: orders of warps and CTAs; the outputs of all must agree bit for bit.
        seed: of the inputs.
        options: of the interpreter.

    Raises:
        ConfigError: the config is illegal.
        CompileError: NVRTC is missing or refused the source.
        UnsupportedPtxError: the kernel has an instruction that the interpreter does not know.
    """
    start = time.perf_counter()
    source = emit(problem, config, arch)
    compiled = compile_source(source)
    case = Case(problem, config, arch, m)
    return check_compiled(
        case, source, compiled, schedules, seed=seed, options=options, started=start
    )


def check_compiled(
    case: Case,
    source: KernelSource,
    compiled: CompiledKernel,
    schedules: Sequence[Schedule] = SCHEDULES,
    *,
    seed: int = 0,
    options: RunOptions | None = None,
    started: float | None = None,
) -> CpuCheckResult:
    """The same for a kernel that is compiled already; its text need not be the emitter's."""
    if case.m < 1:
        raise ProblemError(f"M = {case.m} has nothing to run; the least is 1.")
    start = time.perf_counter() if started is None else started
    program = load_program(compiled.ptx, compiled.entry)
    data = checked_data(case, seed)
    packed = packed_weights(case, data)
    expected = reference_output(data.x, data.weight, case.problem, data.bias)
    judge = _Judge(case, expected)
    for schedule in schedules:
        buffers = Buffers.create(case, source.plan, data, packed)
        judge.run(program, buffers, schedule, options or RunOptions())
    return judge.result(schedules, time.perf_counter() - start)


def schedule_name(schedule: Schedule) -> str:
    """Short name, such as random-3x4: policy, seed, resident CTAs."""
    return f"{schedule.policy}-{schedule.seed}x{schedule.resident}"


class _Judge:
    """Runs schedules one after the other and collects what is wrong."""

    def __init__(self, case: Case, expected: Tensor) -> None:
        self._case, self._expected = case, expected
        self._failures: list[Failure] = []
        self._reports: list[RunReport] = []
        self._rel_err = 0.0
        self._first: tuple[str, Tensor] | None = None

    def run(
        self, program: Program, buffers: Buffers, schedule: Schedule, options: RunOptions
    ) -> None:
        name = schedule_name(schedule)
        try:
            report = run(program, buffers.launch, buffers.memory, schedule, options)
        except UnsupportedPtxError:
            raise
        except KernelFaultError as error:
            for race in error.races:
                self._fail(FailureKind.RACE, name, str(race))
            self._fail(FailureKind.FAULT, name, f"{type(error).__name__}: {error}")
            return
        self._reports.append(report)
        for race in report.races:
            self._fail(FailureKind.RACE, name, str(race))
        self._inspect(buffers, name)
        self._compare(buffers.output(), name)

    def _inspect(self, buffers: Buffers, name: str) -> None:
        """Everything about the memory but the values."""
        if damaged := buffers.damaged():
            self._fail(FailureKind.GUARD, name, f"wrote {damaged} elements between rows of y")
        if count := buffers.open_counters():
            self._fail(FailureKind.COUNTER, name, f"left {count} tile counters other than 0")
        if unwritten := buffers.unwritten():
            self._fail(FailureKind.UNWRITTEN, name, f"left {unwritten} outputs unwritten")
        if rewritten := buffers.rewritten():
            self._fail(FailureKind.REWRITTEN, name, f"wrote {rewritten} outputs more than once")
        if early := buffers.early_reads():
            message = f"read {early} words of the workspace that nobody had written yet"
            self._fail(FailureKind.EARLY, name, message)
        if early := buffers.early_arrivals():
            message = f"on {early} tiles a CTA counted itself in before its sums were written"
            self._fail(FailureKind.EARLY, name, message)

    def _compare(self, out: Tensor, name: str) -> None:
        checked = compare(out, self._case.problem, self._expected)
        self._rel_err = max(self._rel_err, checked.rel_err)
        if not checked.ok:
            self._fail(FailureKind.VALUE, name, checked.message)
        if self._first is None:
            self._first = name, out
        elif not torch.equal(self._first[1].view(torch.int16), out.view(torch.int16)):
            self._fail(FailureKind.ORDER, name, f"another output than under {self._first[0]}")

    def _fail(self, kind: FailureKind, schedule: str, message: str) -> None:
        self._failures.append(Failure(kind, schedule, message))

    def result(self, schedules: Sequence[Schedule], seconds: float) -> CpuCheckResult:
        return CpuCheckResult(
            case=self._case,
            failures=tuple(self._failures),
            rel_err=self._rel_err if self._reports else float("inf"),
            schedules=tuple(map(schedule_name, schedules)),
            steps=sum(report.steps for report in self._reports),
            seconds=seconds,
            reports=tuple(self._reports),
        )
