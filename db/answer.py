"""Answer: the ladder from stored winners to one config; pure, no database here.

Rungs: exact bucket, nearest bucket (rounded up, then down), another device of the same compute
capability, built-in default. On a rung a measured winner always goes before a predicted one. A
winner of another M, launch or device serves only where db.serving says that it beats the default.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from db.records import Answer, DeviceRecord, Level, Protocol, ToolchainRecord, WinnerRecord
from db.serving import Model, Question, refusal
from db.staleness import hard_reasons, quick_reasons, soft_reasons
from ptxgen.arch import ArchSpec
from ptxgen.problem import M_BUCKETS, Problem, bucket_of

NAMED = 3
"""Winners that a message names at most, of those that are not served."""


@dataclass(slots=True)
class _Refused:
    """Winners that are not served, with the reason."""

    outdated: list[str] = field(default_factory=list)
    slower: list[str] = field(default_factory=list)


def choose(
    winners: Iterable[WinnerRecord],
    *,
    problem: Problem,
    m: int,
    device: DeviceRecord,
    protocol: Protocol,
    toolchain: ToolchainRecord,
    arch: ArchSpec,
    num_sms: int,
    batch_invariant: bool = False,
    buckets: tuple[int, ...] = M_BUCKETS,
    model: Model | None = None,
) -> Answer:
    """The best answer from this problem's winners; the default where none may be served.

    With batch_invariant the winners given are batch-invariant ones, and so is the default. The
    model tells whether a winner of another M, launch or device beats the default; without one such
    a winner serves only where it was measured at the very same work.

    Raises:
        ConfigError: no config is legal.
    """
    bucket = bucket_of(m, buckets)
    question = Question(problem, m, bucket, device, protocol, arch, num_sms, batch_invariant, model)
    refused = _Refused()
    for level, winner in _ladder(winners, question):
        if not _may_serve(winner, question, toolchain, refused):
            continue
        differs = question.differs(winner)
        return Answer(
            level=level,
            problem=problem,
            m=m,
            config=winner.config,
            winner=winner,
            predicted=winner.predicted,
            stale=soft_reasons(winner, toolchain),
            message=_message(winner, differs, refused),
            differs=differs,
        )
    kind = "batch-invariant" if batch_invariant else "usable"
    return Answer(
        level=Level.DEFAULT,
        problem=problem,
        m=m,
        config=question.default(),
        winner=None,
        predicted=False,
        message=_with_refused(
            f"built-in default, not tuned: nothing {kind} is stored "
            f"for {problem.key()} at M = {m} on {device.name} or a device like it",
            refused,
        ),
    )


def _may_serve(
    winner: WinnerRecord, question: Question, toolchain: ToolchainRecord, refused: _Refused
) -> bool:
    """Whether a winner may be served; notes the reason where not."""
    name = f"M = {winner.m} on {winner.device.name}"
    reasons = quick_reasons(winner, toolchain, question.arch)
    if not reasons:
        slower = refusal(winner, question)
        if slower:
            refused.slower.append(f"{name} ({slower})")
            return False
        reasons = hard_reasons(winner, toolchain, question.arch)
    if reasons:
        refused.outdated.append(f"{name} ({'; '.join(reasons)})")
    return not reasons


def _ladder(
    winners: Iterable[WinnerRecord], question: Question
) -> Iterator[tuple[Level, WinnerRecord]]:
    rungs: dict[Level, list[WinnerRecord]] = {
        Level.EXACT: [],
        Level.NEAREST_BUCKET: [],
        Level.SAME_FAMILY: [],
    }
    for winner in winners:
        if not question.is_here(winner):
            rung = Level.SAME_FAMILY
        elif winner.m in (question.m, question.bucket):
            rung = Level.EXACT
        else:
            rung = Level.NEAREST_BUCKET
        rungs[rung].append(winner)
    for rung, found in rungs.items():
        for winner in sorted(found, key=lambda item: _distance(item, question)):
            other = rung is Level.EXACT and winner.protocol is not question.protocol
            yield (Level.OTHER_PROTOCOL if other else rung), winner


def _distance(winner: WinnerRecord, question: Question) -> tuple[int, int, int, int, int]:
    """Sorts a rung's winners: measured, then M, then protocol, then the device's size.

    Of Ms the nearest first: this one, the next one up, ..., and only then the next one down, ...
    """
    away = winner.m - question.m
    other_protocol = winner.protocol is not question.protocol
    sms = abs(winner.device.num_sms - question.device.num_sms)
    return (winner.predicted, away < 0, abs(away), other_protocol, sms)


def _message(winner: WinnerRecord, differs: tuple[str, ...], refused: _Refused) -> str:
    how = "predicted by the model, never run" if winner.predicted else "measured"
    text = f"{how} for M = {winner.m} on {winner.device.name}"
    if differs:
        text += (
            f", {winner.time_us:.4g} us in {winner.protocol.value} launches, which is not what was "
            f"asked ({'; '.join(differs)}); served because it beats the default here"
        )
    return _with_refused(text, refused)


def _with_refused(text: str, refused: _Refused) -> str:
    for why, names in (
        ("out of date", refused.outdated),
        ("it may not beat the default here", refused.slower),
    ):
        if names:
            rest = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
            text += f". Not served, because {why}: {', '.join(names[:NAMED])}{rest}"
    return f"{text}."
