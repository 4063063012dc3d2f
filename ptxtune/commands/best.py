"""ptxtune best: the best stored config of a layer, and how good that answer is."""

from __future__ import annotations

from typing import Any

import click

from db.records import Protocol
from ptxtune.answers import answer_document, answer_table, best_answers
from ptxtune.options import (
    batch_invariant_option,
    db_option,
    gpu_option,
    json_option,
    m_option,
    problem_options,
    protocol_option,
)
from ptxtune.output import note, say, say_json
from ptxtune.selection import select_problems
from ptxtune.target import resolve_target


@click.command("best")
@problem_options(several=True)
@m_option()
@protocol_option(several=False, default="plain")
@click.option("--measured", is_flag=True, help="Leave predicted winners out.")
@batch_invariant_option
@gpu_option
@db_option
@json_option
def command(
    *,
    m: tuple[int, ...],
    protocol: str,
    measured: bool,
    batch_invariant: bool,
    gpu: str | None,
    db: str | None,
    as_json: bool,
    **layer: Any,
) -> None:
    """Show the best stored config of a layer, and how good it is.

    The level says how the answer relates to the question: exact, nearest bucket (another M), same
    family (another GPU of this compute capability), default (nothing stored), or pinned.

    \b
    Example:
      ptxtune best --n 4096 --k 4096 --m 8
      ptxtune best --model llama-3.1-8b --m 1,16 --json
    """
    selection = select_problems(**layer)
    target = resolve_target(gpu)
    answers = best_answers(
        selection.problems,
        m,
        target=target,
        protocol=Protocol(protocol),
        db=db,
        allow_predicted=not measured,
        batch_invariant=batch_invariant,
    )
    note(selection.note)
    if as_json:
        documents = [answer_document(answer) for answer in answers]
        say_json({"device": target.device.name, "answers": documents})
        return
    say(f"{target.device.name} ({target.reason})\n")
    say(answer_table(answers).to_text())
    for answer in answers:
        say(f"\nM = {answer.m}: {answer.message}")
        if answer.stale:
            say(f"Stale: {'; '.join(answer.stale)}.")
        say(answer.config.key())
