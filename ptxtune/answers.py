"""Answers to "which config is best?": opens the database, asks it, and words the answer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from db import query
from db.records import Answer, Protocol
from db.session import open_for_reading
from ptxgen.problem import Problem
from ptxtune.pin import pinned_answer, unserved_pin
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
    """One answer a problem and M. A pinned config (PTXTUNE_PIN) goes before the database.

    Raises:
        ConfigError: batch_invariant, and the pinned config adds up in another order.
        StoreError: the database cannot be opened.
        ProblemError: an M is no batch size.
    """
    toolchain = current_toolchain(target.driver)
    wanted = list(batches)
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
                ),
                unserved_pin(problem, target.arch),
            )
            for problem in problems
            for m in wanted
        ]


def _with_note(answer: Answer, note: str) -> Answer:
    return replace(answer, message=f"{answer.message} {note}") if note else answer


def answer_document(answer: Answer) -> dict[str, Any]:
    """An answer, JSON-friendly; winner is null for a default."""
    return {
        "level": answer.level.value,
        "problem": answer.problem.to_dict(),
        "m": answer.m,
        "config": answer.config.to_dict(),
        "predicted": answer.predicted,
        "stale": list(answer.stale),
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
    times = found or dict.fromkeys(
        ("time_us", "default_us", "cublas_us", "over_cublas", "floor_share", "source")
    )
    return (
        size_text(answer.problem),
        variant_text(answer.problem),
        str(answer.m),
        answer.level.value.replace("_", " "),
        (times["source"] or "not timed") + (", stale" if answer.stale else ""),
        time_text(times["time_us"]),
        time_text(times["default_us"]),
        time_text(times["cublas_us"]),
        ratio_text(times["over_cublas"]),
        share_text(times["floor_share"]),
        config_text(answer.config),
    )
