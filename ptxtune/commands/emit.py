"""ptxtune emit: the source of one kernel, on stdout."""

from __future__ import annotations

from typing import Any

import click

from ptxgen.arch import ARCHS, arch_named
from ptxgen.compile import compile_source
from ptxgen.families import default_config, emit
from ptxtune.options import gpu_option, json_option, problem_options
from ptxtune.output import say, say_json
from ptxtune.pin import parse_config
from ptxtune.selection import select_problems
from ptxtune.target import resolve_target


@click.command("emit")
@problem_options(several=False)
@click.option("--m", type=click.IntRange(min=1), default=1, show_default=True, help="Batch size.")
@click.option("--config", help="Config as JSON (default: the built-in one for this M).")
@click.option("--arch", type=click.Choice(tuple(ARCHS)), help="NVRTC target (default: the GPU's).")
@click.option("--ptx", is_flag=True, help="Print the PTX that NVRTC makes of it.")
@gpu_option
@json_option
def command(
    *,
    m: int,
    config: str | None,
    arch: str | None,
    ptx: bool,
    gpu: str | None,
    as_json: bool,
    **layer: Any,
) -> None:
    """Print the source of a kernel.

    \b
    Example:
      ptxtune emit --n 4096 --k 4096 --m 1 > kernel.cu
      ptxtune emit --n 4096 --k 4096 --m 16 --arch sm_80 --ptx
    """
    (problem,) = select_problems(**layer).problems
    target = resolve_target(gpu)
    spec = arch_named(arch) if arch else target.arch
    chosen = (
        parse_config(config, "--config")
        if config
        else default_config(problem, spec, m, target.device.num_sms)
    )
    source = emit(problem, chosen, spec)
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
