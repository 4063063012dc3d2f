"""ptxtune emit: the source of one kernel, on stdout."""

from __future__ import annotations

from typing import Any

import click

from db.records import Protocol
from ptxgen import env
from ptxgen.arch import ARCHS
from ptxgen.compile import compile_source
from ptxgen.families import default_config, emit
from ptxgen.outcome import Status
from ptxtune.config_choice import arch_of, chosen_config, config_options
from ptxtune.options import (
    cache_option,
    db_option,
    gpu_option,
    json_option,
    problem_options,
    protocol_option,
)
from ptxtune.outcomes import outcome_document, outcome_text
from ptxtune.output import say, say_json
from ptxtune.selection import select_problems
from ptxtune.target import resolve_target
from search.compile_pool import compile_outcome


@click.command("emit")
@problem_options(several=False)
@click.option("--m", type=click.IntRange(min=1), default=1, show_default=True, help="Batch size.")
@protocol_option(several=False, default="plain")
@config_options
@click.option("--arch", type=click.Choice(tuple(ARCHS)), help="NVRTC target (default: the GPU's).")
@click.option("--ptx", is_flag=True, help="Print the PTX that NVRTC makes of it.")
@click.option(
    "--compile",
    "compiled",
    is_flag=True,
    help="Compile it and print its registers, spills and shared memory; exit with 1 where a tuning "
    "run would reject it.",
)
@gpu_option
@db_option
@cache_option
@json_option
@click.pass_context
def command(
    context: click.Context,
    /,
    *,
    m: int,
    protocol: str,
    config: str | None,
    best: bool,
    arch: str | None,
    ptx: bool,
    compiled: bool,
    gpu: str | None,
    db: str | None,
    cache_dir: str | None,
    as_json: bool,
    **layer: Any,
) -> None:
    """Print the source of a kernel.

    \b
    Example:
      ptxtune emit --n 4096 --k 4096 --m 1 > kernel.cu
      ptxtune emit --n 4096 --k 4096 --m 16 --arch sm_80 --ptx
      ptxtune emit --n 4096 --k 4096 --m 8 --best > tuned.cu
      ptxtune emit --n 4096 --k 4096 --m 8 --gpu a100 --compile
    """
    (problem,) = select_problems(**layer).problems
    target = resolve_target(gpu)
    spec = arch_of(arch, target, best=best)
    launches = Protocol(protocol)
    chosen = chosen_config(
        problem, m, config=config, best=best, target=target, protocol=launches, db=db
    ) or default_config(
        problem, spec, m, target.device.num_sms, chained=launches is Protocol.CHAINED
    )
    source = emit(problem, chosen, spec)
    if compiled:
        outcome = compile_outcome(source, env.cache_folder(cache_dir))
        if as_json:
            say_json(outcome_document(problem, m, protocol, chosen, outcome))
        else:
            say(outcome_text(outcome))
        context.exit(0 if outcome.status is Status.OK else 1)
    text = compile_source(source).ptx if ptx else source.text
    if not as_json:
        say(text)
        return
    say_json(
        {
            "problem": problem.to_dict(),
            "config": chosen.to_dict(),
            "arch": source.arch,
            "entry": source.entry,
            "plan": source.plan.to_dict(),
            "source_digest": source.digest(),
            "ptx" if ptx else "source": text,
        }
    )
