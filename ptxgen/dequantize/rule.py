"""Where dequantize + matmul can be worth its bytes at all; plain arithmetic."""

from __future__ import annotations

from ptxgen.problem import Problem

DEQUANTIZED = "dequantized"
"""The contender's name in the database, in documents and in manifests."""

MIN_M = 64
"""The least batch at which it takes part.

It moves nine times the packed bytes: it reads them, writes four times as many, and the matmul reads
those. A kernel of ours reads them once; up to M = 64 that, not its 2 M N K operations, is most of
its time: on an H200 (4.5 TB/s, 634 TFLOP/s by mma.sync) the operations take 0.03 M of the time of
the bytes, 1.8 times it at M = 64. So below 64 a winner would have to miss its floor fivefold to be
the slower one (less where the whole dense weight stays in L2, and then two launches weigh more).
"""


def takes_part(m: int) -> bool:
    """Whether it is timed for a batch of m."""
    return m >= MIN_M


def serves(m: int, measured_m: int) -> bool:
    """Whether a comparison made at measured_m still holds at m: not at half the batch or less.

    Unpacking costs the same for every batch, so a smaller one gains less from a faster matmul.
    """
    return takes_part(m) and 2 * m > measured_m


def bytes_moved(problem: Problem, m: int) -> int:
    """Bytes through memory for a batch of m: the weight is written and read, all else once."""
    return problem.bytes_moved(m) + 2 * (2 * problem.n * problem.k)
