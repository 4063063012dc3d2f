"""The proof of a winner, from the outcomes of the window that made it one; pure."""

from __future__ import annotations

from ptxgen.bootstrap import Interval, median_interval
from ptxgen.outcome import Outcome, Status
from ptxgen.proof import Proof
from search.finals import ratio_of


def prove(
    winner: Outcome,
    *,
    default: Outcome | None,
    cublas: Outcome | None,
    previous: Outcome | None,
    paired: bool,
    dequantized: Outcome | None = None,
) -> Proof:
    """What the finals showed of a winner.

    Args:
        winner: ended well.
        default: of the built-in default.
        cublas: of the baseline.
        previous: of the winner that was stored before, where it is another config.
        paired: whether sample i of all of them is of the same round.
        dequantized: of dequantize + matmul.
    """
    samples = winner.samples_us or (winner.time_us or 0.0,)

    def over(other: Outcome | None) -> Interval | None:
        return ratio_of(other, winner) if other is not None and paired else None

    return Proof(
        rounds=len(samples) if paired else 0,
        time_us=median_interval(samples),
        default_us=_time_us(default),
        cublas_us=_time_us(cublas),
        previous_us=_time_us(previous),
        over_default=over(default),
        over_cublas=over(cublas),
        over_previous=over(previous),
        dequantized_us=_time_us(dequantized),
        over_dequantized=over(dequantized),
    )


def _time_us(outcome: Outcome | None) -> float | None:
    return outcome.time_us if outcome is not None and outcome.status is Status.OK else None
