"""ptxtune best: the best stored config of a layer, and how good that answer is."""

from __future__ import annotations

from typing import Any

import click

from db.records import Answer, Protocol
from ptxgen.promise import promise
from ptxtune.answers import (
    answer_document,
    answer_table,
    best_answers,
    check_measured,
    dequantized_note,
)
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
from ptxtune.rooflines import roofline_of
from ptxtune.selection import select_problems
from ptxtune.target import resolve_target
from reports.roofline import explanation


@click.command("best")
@problem_options(several=True)
@m_option(least=1)
@protocol_option(several=False, default="plain")
@click.option("--measured", is_flag=True, help="Only measured winners; fail where there is none.")
@click.option(
    "--explain",
    is_flag=True,
    help="How close each winner is to the floor and why; how far outputs may be off.",
)
@batch_invariant_option
@gpu_option
@db_option
@json_option
def command(
    *,
    m: tuple[int, ...],
    protocol: str,
    measured: bool,
    explain: bool,
    batch_invariant: bool,
    gpu: str | None,
    db: str | None,
    as_json: bool,
    **layer: Any,
) -> None:
    """Show the best stored config of a layer, and how good it is.

    The level says how the answer relates to the question: exact, other protocol (plain or chained),
    nearest bucket (another M), same family (another GPU of this compute capability), default (no
    stored one may serve), or pinned. A winner of another M, protocol or GPU serves only where it
    beats the default by the model or by measurement, and no time is shown for it.

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
    if measured:
        check_measured(answers)
    note(selection.note)
    if as_json:
        documents = [_document(answer, explain) for answer in answers]
        say_json({"device": target.device.name, "answers": documents})
        return
    say(f"{target.device.name} ({target.reason})\n")
    say(answer_table(answers).to_text())
    for answer in answers:
        say(f"\nM = {answer.m}: {answer.message}")
        if answer.stale:
            say(f"Stale: {'; '.join(answer.stale)}.")
        if dequantized_note(answer):
            say(dequantized_note(answer))
        say(answer.config.key())
        if explain:
            say(_explanation(answer))
            say(f"Numbers: {promise(answer.problem.dtype)}.")


def _document(answer: Answer, explain: bool) -> dict[str, Any]:
    document = answer_document(answer)
    if not explain:
        return document
    found = None if answer.winner is None else roofline_of(answer.winner)
    roofline = None if found is None else found.to_dict()
    return {**document, "roofline": roofline, "numbers": promise(answer.problem.dtype)}


def _explanation(answer: Answer) -> str:
    """Of the winner at the M and on the device where it won, whatever was asked for."""
    if answer.winner is None:
        return "Nothing was timed, so there is nothing to explain; run ptxtune tune first."
    found = roofline_of(answer.winner)
    if found is None:
        return "This kernel is not legal any more, or fits no SM by the model: no explanation."
    return explanation(answer.winner.time_us, found)
