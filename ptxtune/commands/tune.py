"""ptxtune tune: the main job. Finds the fastest kernel of each layer and batch size."""

from __future__ import annotations

from typing import Any, get_args

import click

from db.records import Protocol
from ptxtune.interrupts import INTERRUPTED
from ptxtune.neighbours import check_neighbours
from ptxtune.next_steps import next_steps
from ptxtune.options import (
    batch_invariant_option,
    cache_option,
    db_option,
    device_option,
    gpu_option,
    json_option,
    m_option,
    problem_options,
    protocol_option,
    protocols_of,
)
from ptxtune.output import note, say, say_json
from ptxtune.selection import select_problems
from ptxtune.summary import summary_document, summary_text
from ptxtune.target import resolve_target
from ptxtune.tuning import make_job, run_job
from search.budget import PRESETS, budget_named
from search.progress import ProgressView
from search.samplers import SamplerName


@click.command("tune")
@problem_options(several=True)
@m_option("1,8,16", least=1)
@protocol_option(several=True, default="plain")
@click.option(
    "--budget",
    type=click.Choice(tuple(PRESETS)),
    default="quick",
    show_default=True,
    help="quick: about 6 s a layer, M and protocol on a GPU; full: until 300 candidates in a row "
    "bring nothing, some 30 s, and 15 minutes at most.",
)
@click.option("--trials", type=int, help="Measure this many configs instead of a preset.")
@click.option("--seconds", type=float, help="Search this long instead of a preset.")
@click.option(
    "--sampler",
    type=click.Choice(get_args(SamplerName)),
    help="Default: exhaustive for small spaces, else tpe.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of every random choice.")
@click.option("--refresh", is_flag=True, help="Measure again what is stored already.")
@click.option("--strict", is_flag=True, help="Refuse to measure beside other processes on the GPU.")
@batch_invariant_option
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
    m: tuple[int, ...],
    protocol: str,
    budget: str,
    trials: int | None,
    seconds: float | None,
    sampler: str | None,
    seed: int,
    refresh: bool,
    strict: bool,
    batch_invariant: bool,
    gpu: str | None,
    device: str | None,
    db: str | None,
    cache_dir: str | None,
    as_json: bool,
    **layer: Any,
) -> None:
    """Find the fastest kernel of each layer and batch, and store it.

    Every candidate is checked before it is timed, and every attempt is stored. Ctrl-C keeps all of
    it; the same command goes on where it ended. Without the GPU, kernels are compiled for it and
    ranked by a model; such results are stored and shown as predicted.

    \b
    Example:
      ptxtune tune --n 4096 --k 4096 --m 1,8,16
      ptxtune tune --model llama-3.1-8b --m 1,16,256 --dtype both --protocol both --budget full
      ptxtune tune --model qwen2.5-7b --tp 2 --gpu a100
    """
    selection = select_problems(**layer)
    target = resolve_target(gpu, device=device)
    warning = check_neighbours(target, strict)
    job = make_job(
        selection.problems,
        m,
        target=target,
        protocols=[Protocol(word) for word in protocols_of(protocol)],
        budget=budget_named(budget, trials, seconds, predicted=target.detected is None),
        sampler=sampler,
        seed=seed,
        refresh=refresh,
        strict=strict,
        batch_invariant=batch_invariant,
        cache_dir=cache_dir,
    )
    note(selection.note)
    note(target.reason)
    if warning:
        note(warning)
    with ProgressView() as view:
        summary = run_job(job, target, db=db, on_event=view.on_event)
    if as_json:
        say_json(summary_document(summary))
    else:
        say(summary_text(summary, selection.layer_names))
        note(
            next_steps(
                selection,
                m,
                layer=layer,
                protocol=protocol,
                batch_invariant=batch_invariant,
                gpu=gpu if device is None else target.device.name,
                db=db,
            )
        )
    context.exit(INTERRUPTED if summary.interrupted else 0)
