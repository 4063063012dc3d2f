"""What reports and answers say of dequantize + matmul."""

from __future__ import annotations

from dataclasses import replace

import pytest

from db.records import Answer, Level, WinnerRecord
from ptxgen.bootstrap import Interval
from ptxtune.answers import answer_document, dequantized_note
from reports.data import ReportData
from reports.dequantized import dequantized_table, dequantized_text
from reports.document import render_markdown, winner_document
from reports.winners import winner_table


def timed(winner: WinnerRecord, factor: float) -> WinnerRecord:
    """The winner, compared with a dequantize + matmul that took `factor` times its time."""
    assert winner.proof is not None
    ratio = Interval(factor, factor - 0.01, factor + 0.01, 11)
    other_us = factor * winner.time_us
    proof = replace(winner.proof, dequantized_us=other_us, over_dequantized=ratio)
    return replace(winner, dequantized_us=other_us, proof=proof)


@pytest.fixture
def mixed(measured: ReportData) -> ReportData:
    """At M = 256 the first winner loses to it, the others do not; at other Ms none met it."""
    factors = {item.trial_id: 1.5 for item in measured.winners if item.m == 256}
    factors[next(iter(factors))] = 0.8
    winners = tuple(
        timed(item, factors[item.trial_id]) if item.trial_id in factors else item
        for item in measured.winners
    )
    return replace(measured, winners=winners)


def test_only_winners_that_lose_to_it_are_listed(mixed: ReportData) -> None:
    (row,) = dequantized_table(mixed).rows
    (lost,) = (item for item in mixed.winners if item.dequantize_first)
    assert row[:4] == (mixed.layer(lost.problem), "fp16 sym g128", "256", lost.protocol.value)
    assert row[-1] == "1.25x"


def test_the_winner_table_has_its_time(mixed: ReportData) -> None:
    table = winner_table(mixed)
    place = [column.title for column in table.columns].index("dequantized")
    shown = {row[place] for row in table.rows if row[2] != "256"}
    assert shown == {"-"}
    assert all(row[place] != "-" for row in table.rows if row[2] == "256")


def test_the_markdown_says_it_only_where_it_is_so(mixed: ReportData, measured: ReportData) -> None:
    assert "## Faster by dequantize + matmul" in render_markdown(mixed)
    assert "Faster by dequantize" not in render_markdown(measured)


def test_documents_carry_it(mixed: ReportData) -> None:
    lost = next(item for item in mixed.winners if item.dequantize_first)
    document = winner_document(lost)
    assert document["dequantized_us"] == pytest.approx(0.8 * lost.time_us)
    assert document["dequantize_first"] is True
    other = winner_document(mixed.winners[0])
    assert (other["dequantized_us"], other["dequantize_first"]) == (None, False)


def test_the_text_gives_both_times() -> None:
    assert dequantized_text(123.4, 130.1, True) == (
        "dequantize + matmul is faster: 123.4 us against 130.1 us."
    )
    assert "is not faster" in dequantized_text(131.0, 130.1, False)


def answer(winner: WinnerRecord, level: Level, m: int) -> Answer:
    return Answer(level, winner.problem, m, winner.config, winner, winner.predicted)


@pytest.mark.parametrize(
    ("level", "m", "first"),
    [
        (Level.EXACT, 256, True),
        (Level.EXACT, 129, True),
        (Level.NEAREST_BUCKET, 4096, True),
        (Level.NEAREST_BUCKET, 128, False),
        (Level.NEAREST_BUCKET, 8, False),
        (Level.SAME_FAMILY, 256, False),
    ],
)
def test_an_answer_goes_that_way_only_on_the_device_and_near_the_batch(
    mixed: ReportData, level: Level, m: int, first: bool
) -> None:
    lost = next(item for item in mixed.winners if item.dequantize_first)
    found = answer(lost, level, m)
    assert found.dequantize_first == first
    assert answer_document(found)["dequantize_first"] == first
    assert dequantized_note(found).startswith(
        f"At M = 256 on {lost.device.name}, dequantize + matmul is faster: "
    )


def test_there_is_no_note_where_it_was_not_measured(mixed: ReportData) -> None:
    never = next(item for item in mixed.winners if item.m == 1)
    lost = next(item for item in mixed.winners if item.dequantize_first)
    assert dequantized_note(answer(never, Level.EXACT, 1)) == ""
    assert dequantized_note(answer(replace(lost, predicted=True), Level.EXACT, 256)) == ""
    without = replace(answer(lost, Level.DEFAULT, 256), winner=None)
    assert dequantized_note(without) == ""
    assert not without.dequantize_first
