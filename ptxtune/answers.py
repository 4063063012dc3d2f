"""Answers to "which config is best?": opens the database, asks it, and words the answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from db import query
from db.records import Answer, Level, Protocol
from db.session import open_for_reading
from ptxgen.errors import PtxtuneError
from ptxgen.problem import Problem, check_m
from ptxtune.pin import pinned_answer, unserved_pin
from ptxtune.serving_model import serving_model
from ptxtune.target import Target
from ptxtune.toolchain import current_toolchain
from reports.dequantized import dequantized_text
from reports.document import winner_document
from reports.table import Column, Table
from reports.words import (
    config_text,
    ratio_text,
    share_text,
    size_text,
    time_text,
    variant_text,
)

NAMED = 4
"""Questions without a measured answer that an error names at most."""


class NotMeasuredError(PtxtuneError):
    """Only measured winners were asked for, and for some question there is none."""


COLUMNS = (
    Column("N x K", numeric=False),
    Column("variant", numeric=False),
    Column("M"),
    Column("level", numeric=False),
    Column("source", numeric=False),
    Column("time", "us"),
    Column("default", "us"),
    Column("cuBLAS", "us"),
    Column("over cuBLAS"),
    Column("of floor"),
    Column("config", numeric=False),
)

TIMES = ("time_us", "default_us", "cublas_us", "over_cublas", "floor_share")


def best_answers(
    problems: Iterable[Problem],
    batches: Iterable[int],
    *,
    target: Target,
    protocol: Protocol = Protocol.PLAIN,
    db: str | None = None,
    allow_predicted: bool = True,
    batch_invariant: bool = False,
) -> list[Answer]:
    """One answer a problem and M >= 1. A pinned config (PTXTUNE_PIN) goes before the database.

    This is the one way from a question to a config: best, export, bench, emit, check, one and the
    Python API take it, so that a bundle's table of kernels is made of the answers that best gives.

    Raises:
        ConfigError: batch_invariant, and the pinned config adds up in another order.
        StoreError: the database cannot be opened.
        ProblemError: an M is no batch size, or 0, for which no kernel runs.
    """
    toolchain = current_toolchain(target.driver)
    wanted = [check_m(m, least=1) for m in batches]
    with open_for_reading(db) as database:
        return [
            pinned_answer(problem, m, target.arch, batch_invariant=batch_invariant)
            or _with_note(
                query.best(
                    database,
                    problem,
                    m,
                    target.device,
                    protocol,
                    toolchain=toolchain,
                    arch=target.arch,
                    allow_predicted=allow_predicted,
                    batch_invariant=batch_invariant,
                    model=serving_model(problem, target),
                ),
                unserved_pin(problem, target.arch),
            )
            for problem in problems
            for m in wanted
        ]


def _with_note(answer: Answer, note: str) -> Answer:
    return replace(answer, message=f"{answer.message} {note}") if note else answer


def check_measured(answers: Sequence[Answer]) -> None:
    """Raises NotMeasuredError where an answer is the untimed default; a pinned config may pass."""
    missing = [answer for answer in answers if answer.level is Level.DEFAULT]
    if not missing:
        return
    names = [f"{answer.problem.key()} at M = {answer.m}" for answer in missing[:NAMED]]
    rest = f" and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
    raise NotMeasuredError(
        f"only measured winners were asked for, and {len(missing)} of {len(answers)} questions "
        f"have none that beats the built-in default, which nobody timed: "
        f"{', '.join(names)}{rest}. "
        f"Measure them by ptxtune tune on the GPU, ask for other M, or leave --measured "
        f"(allow_predicted=False) out to get predictions and defaults as well."
    )


def answer_document(answer: Answer) -> dict[str, Any]:
    """An answer, JSON-friendly; winner is null for a default.

    time_us is of the very question, else null; the winner's own times are of its own M, launches
    and device, which it names.
    """
    return {
        "level": answer.level.value,
        "problem": answer.problem.to_dict(),
        "m": answer.m,
        "config": answer.config.to_dict(),
        "predicted": answer.predicted,
        "stale": list(answer.stale),
        "differs": list(answer.differs),
        "time_us": answer.time_us,
        "message": answer.message,
        "dequantize_first": answer.dequantize_first,
        "winner": None if answer.winner is None else winner_document(answer.winner),
    }


def dequantized_note(answer: Answer) -> str:
    """How dequantize + matmul compares, where it was measured with the winner; else empty."""
    winner = answer.winner
    if winner is None or winner.predicted or winner.dequantized_us is None:
        return ""
    text = dequantized_text(winner.dequantized_us, winner.time_us, winner.dequantize_first)
    return f"At M = {winner.m} on {winner.device.name}, {text}"


def answer_table(answers: Iterable[Answer]) -> Table:
    """Answers as a table; the level and the source say how good each one is."""
    return Table(COLUMNS, tuple(_row(answer) for answer in answers))


def _row(answer: Answer) -> tuple[str, ...]:
    found = None if answer.winner is None else winner_document(answer.winner)
    source = found["source"] if found else "not timed"
    # Times of another M, launch or device are not of this row; the message has them.
    times = found if found and not answer.differs else dict.fromkeys(TIMES)
    return (
        size_text(answer.problem),
        variant_text(answer.problem),
        str(answer.m),
        answer.level.value.replace("_", " "),
        source + (", stale" if answer.stale else ""),
        time_text(times["time_us"]),
        time_text(times["default_us"]),
        time_text(times["cublas_us"]),
        ratio_text(times["over_cublas"]),
        share_text(times["floor_share"]),
        config_text(answer.config),
    )
