"""ptxtune one: runs one config alone, for instance to reproduce a trial."""

from __future__ import annotations

from typing import Any

import click

from db import query
from db.records import Protocol, TrialRecord
from db.session import open_for_reading
from ptxgen.config import KernelConfig
from ptxgen.errors import ConfigError
from ptxgen.outcome import Status
from ptxgen.problem import Problem
from ptxtune.config_choice import chosen_config, config_options
from ptxtune.neighbours import check_neighbours
from ptxtune.options import (
    cache_option,
    db_option,
    device_option,
    gpu_option,
    json_option,
    problem_options,
    protocol_option,
    refuse_beside,
)
from ptxtune.outcomes import outcome_document, outcome_text
from ptxtune.output import note, say, say_json
from ptxtune.selection import select_problems
from ptxtune.target import resolve_target
from ptxtune.tuning import make_job, run_config
from search.progress import ProgressView

TRIAL_OPTIONS = frozenset({"trial", "strict", "gpu", "device", "db", "cache_dir", "as_json"})
"""What counts beside --trial, which brings its own layer, M, protocol and config."""


@click.command("one")
@problem_options(several=False)
@click.option("--m", type=click.IntRange(min=1), default=1, show_default=True, help="Batch size.")
@protocol_option(several=False, default="plain")
@config_options
@click.option("--trial", type=int, help="Repeat this stored trial; ptxtune list trials shows them.")
@click.option("--strict", is_flag=True, help="Refuse to measure beside other processes on the GPU.")
@gpu_option
@device_option
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
    trial: int | None,
    strict: bool,
    gpu: str | None,
    device: str | None,
    db: str | None,
    cache_dir: str | None,
    as_json: bool,
    **layer: Any,
) -> None:
    """Run one config, for instance to reproduce a trial.

    It is compiled, checked and timed on the GPU, and stored. The exit code is 1 where it failed.

    \b
    Example:
      ptxtune one --n 4096 --k 4096 --m 8
      ptxtune one --n 4096 --k 4096 --m 8 --best
      ptxtune one --trial 17
    """
    chosen: KernelConfig | None
    target = resolve_target(gpu, device=device)
    if trial is not None:
        refuse_beside(context, f"--trial {trial}", TRIAL_OPTIONS)
        problem, m, protocol, chosen = _stored(trial, db)
    else:
        (problem,) = select_problems(**layer).problems
        chosen = chosen_config(
            problem,
            m,
            config=config,
            best=best,
            target=target,
            protocol=Protocol(protocol),
            db=db,
        )
    warning = check_neighbours(target, strict)
    job = make_job(
        [problem],
        [m],
        target=target,
        protocols=[Protocol(protocol)],
        strict=strict,
        cache_dir=cache_dir,
    )
    if warning:
        note(warning)
    with ProgressView() as view:
        outcome = run_config(job, chosen, target, db=db, on_event=view.on_event)
    if as_json:
        say_json(outcome_document(problem, m, protocol, chosen, outcome))
    else:
        note(f"{problem.key()} M={m} {protocol} {chosen.key() if chosen else '(default config)'}")
        say(outcome_text(outcome))
    context.exit(0 if outcome.status is Status.OK else 1)


def _stored(trial_id: int, db: str | None) -> tuple[Problem, int, str, KernelConfig]:
    with open_for_reading(db) as database:
        found: TrialRecord = query.trial(database, trial_id)
    if found.config is None:
        raise ConfigError(
            f"trial {trial_id} is of {found.contender} and has no config of this version to "
            f"repeat; choose another with ptxtune list trials."
        )
    return found.problem, found.m, found.protocol.value, found.config
