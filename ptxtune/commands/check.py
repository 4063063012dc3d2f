"""ptxtune check: proves kernels right without a GPU, in the PTX interpreter."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import click

from db.records import Protocol
from ptxgen.arch import ARCHS, ArchSpec
from ptxgen.config import KernelConfig
from ptxgen.cpucheck.covering import covering_set
from ptxgen.cpucheck.inspect import Inspection, inspect
from ptxgen.cpucheck.reduced import Case
from ptxgen.cpucheck.run import SCHEDULES
from ptxgen.cpucheck.shrink import shrink
from ptxgen.errors import ConfigError, SerializedError
from ptxgen.families import FAMILIES, default_config, violations
from ptxgen.interp import Schedule
from ptxgen.problem import Problem
from ptxtune.checks import check_document, check_table, failure_text
from ptxtune.config_choice import arch_of, chosen_config, config_options
from ptxtune.options import (
    db_option,
    gpu_option,
    json_option,
    m_option,
    problem_options,
    protocol_option,
    refuse_beside,
)
from ptxtune.output import note, say, say_json
from ptxtune.selection import select_problems
from ptxtune.target import resolve_target

COVERING_OPTIONS = frozenset({"cpu", "covering", "schedules", "prove", "arch", "as_json"})
"""What counts beside --covering, whose cases bring their own layers, batches and configs."""


@click.command("check")
@click.option("--cpu", is_flag=True, help="In the PTX interpreter; the default, and the only way.")
@problem_options(several=False)
@m_option(default="1", least=1)
@protocol_option(several=False, default="plain")
@config_options
@click.option(
    "--covering", type=click.Choice(tuple(FAMILIES)), help="Check a family's covering set."
)
@click.option(
    "--schedules",
    type=click.IntRange(1, len(SCHEDULES)),
    help=f"Orders of warps and CTAs to run (default: {len(SCHEDULES)}; with --covering 1 a case).",
)
@click.option("--prove", is_flag=True, help="Also prove all schedules free of races (sentryward).")
@click.option("--full", is_flag=True, help="Do not reduce the layer; large ones take hours.")
@click.option(
    "--arch", type=click.Choice(tuple(ARCHS)), help="NVRTC target (default: that of the GPU's)."
)
@gpu_option
@db_option
@json_option
@click.pass_context
def command(
    context: click.Context,
    /,
    *,
    cpu: bool,
    m: tuple[int, ...],
    protocol: str,
    config: str | None,
    best: bool,
    covering: str | None,
    schedules: int | None,
    prove: bool,
    full: bool,
    arch: str | None,
    gpu: str | None,
    db: str | None,
    as_json: bool,
    **layer: Any,
) -> None:
    """Check kernels without a GPU, in a PTX interpreter.

    The layer is reduced to a few tiles with the same tails. Reported are wrong values, races,
    accesses outside of buffers, and what the machine code does not keep of the config's promises.
    The exit code is 1 where anything was found.

    \b
    Example:
      ptxtune check --cpu --n 4096 --k 4096 --m 1,8
      ptxtune check --cpu --n 232 --k 2752 --group 64 --dtype bf16 --zero int --m 17 --arch sm_80
      ptxtune check --cpu --n 4096 --k 4096 --m 8 --best --prove
      ptxtune check --cpu --covering mma
    """
    if covering:
        refuse_beside(context, f"--covering {covering}", COVERING_OPTIONS)
        found = _run(_covering(covering, arch), schedules or 1, covering=True, prove=prove)
    else:
        target = resolve_target(gpu)
        spec = arch_of(arch, target, best=best)

        def config_for(problem: Problem, size: int) -> KernelConfig:
            launches = Protocol(protocol)
            return chosen_config(
                problem, size, config=config, best=best, target=target, protocol=launches, db=db
            ) or default_config(
                problem, spec, size, target.device.num_sms, chained=launches is Protocol.CHAINED
            )

        cases = _cases(layer, m, config_for, spec, full)
        found = _run(cases, schedules or len(SCHEDULES), covering=False, prove=prove)
    if as_json:
        say_json(check_document(found))
    else:
        say(check_table(found))
    context.exit(0 if all(item.ok for item in found) else 1)


def _covering(family: str, arch: str | None) -> list[Case]:
    return list(covering_set(family, (arch,)) if arch else covering_set(family))


def _cases(
    layer: dict[str, Any],
    batches: Iterable[int],
    config_for: Callable[[Problem, int], KernelConfig],
    arch: ArchSpec,
    full: bool,
) -> list[Case]:
    """One case a batch size. Raises ConfigError where the config is illegal for the layer."""
    (problem,) = select_problems(**layer).problems
    cases = []
    for m in batches:
        chosen = config_for(problem, m)
        if reasons := violations(problem, chosen, arch):
            raise ConfigError(
                f"{chosen.key()} is illegal for {problem.key()} on {arch.name}: "
                f"{'; '.join(reasons)}. ptxtune space shows the rules."
            )
        small = None if full else shrink(problem, chosen, m)
        cases.append(
            Case(small.problem, chosen, arch, small.m) if small else Case(problem, chosen, arch, m)
        )
    return cases


def _run(cases: list[Case], schedules: int, *, covering: bool, prove: bool) -> list[Inspection]:
    """Checks the cases in order; failures are told as they are found.

    Of a covering set the schedules take turns, and what a tuner stores and never times is told:
    configs that spill are not gated, those that NVRTC serialises are counted.
    """
    found = []
    serialised = 0
    for number, case in enumerate(cases):
        orders = _schedules(schedules, number if covering else 0)
        try:
            found.append(inspect(case, orders, prove=prove, accept_spills=covering))
        except SerializedError:
            if not covering:
                raise
            serialised += 1
            continue
        if not found[-1].ok:
            note(f"{case}\n{failure_text(found[-1])}")
        elif covering and (number + 1) % 10 == 0:
            note(f"{number + 1} of {len(cases)} cases checked")
    if serialised:
        note(f"{serialised} of {len(cases)} cases were not run: ptxas serialises their wgmma")
    for text in dict.fromkeys(item.note for item in found):
        note(text)
    return found


def _schedules(count: int, first: int) -> list[Schedule]:
    return [SCHEDULES[(first + index) % len(SCHEDULES)] for index in range(count)]
