"""Answer: the ladder from stored winners to one config; pure, no database here.

Rungs: exact bucket, nearest bucket (rounded up, then down), another device of the same compute
capability, built-in default. On a rung a measured winner always goes before a predicted one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from db.devices import device_key
from db.records import Answer, DeviceRecord, Level, Protocol, ToolchainRecord, WinnerRecord
from db.staleness import hard_reasons, soft_reasons
from ptxgen.arch import ArchSpec
from ptxgen.families import default_config
from ptxgen.families.invariant import invariant_default
from ptxgen.problem import M_BUCKETS, Problem, bucket_of


@dataclass(frozen=True, slots=True)
class _Question:
    m: int
    bucket: int
    device: DeviceRecord
    protocol: Protocol

    def distance(self, winner: WinnerRecord) -> tuple[int, int, int, int, int]:
        """Sorts a rung's winners: measured, then M, then protocol, then the device's size."""
        steps = self.bucket_distance(winner.m)
        other_protocol = winner.protocol is not self.protocol
        sms = abs(winner.device.num_sms - self.device.num_sms)
        return (winner.predicted, *steps, other_protocol, sms)

    def bucket_distance(self, stored: int) -> tuple[int, int]:
        """Nearest first: this M, the next one up, ..., and only then the next one down, ..."""
        return (0, stored - self.m) if stored >= self.m else (1, self.m - stored)


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
) -> Answer:
    """The best answer from this problem's winners; the default where none may be served.

    With batch_invariant the winners given are batch-invariant ones, and so is the default.
    """
    question = _Question(m, bucket_of(m, buckets), device, protocol)
    kind = "batch-invariant" if batch_invariant else "usable"
    refused: list[str] = []
    for level, winner in _ladder(winners, question):
        reasons = hard_reasons(winner, toolchain, arch)
        if reasons:
            refused.append(f"M = {winner.m} on {winner.device.name} ({'; '.join(reasons)})")
            continue
        return Answer(
            level=level,
            problem=problem,
            m=m,
            config=winner.config,
            winner=winner,
            predicted=winner.predicted,
            stale=soft_reasons(winner, toolchain, protocol),
            message=_message(level, winner, question, refused),
        )
    config = (
        invariant_default(problem, arch, max(m, 1))
        if batch_invariant
        else default_config(problem, arch, max(m, 1), num_sms)
    )
    return Answer(
        level=Level.DEFAULT,
        problem=problem,
        m=m,
        config=config.chained() if protocol is Protocol.CHAINED else config,
        winner=None,
        predicted=False,
        message=_with_refused(
            f"built-in default, not tuned: nothing {kind} is stored "
            f"for {problem.key()} on {device.name} or a device like it",
            refused,
        ),
    )


def _ladder(
    winners: Iterable[WinnerRecord], question: _Question
) -> Iterator[tuple[Level, WinnerRecord]]:
    rungs: dict[Level, list[WinnerRecord]] = {
        Level.EXACT: [],
        Level.NEAREST_BUCKET: [],
        Level.SAME_FAMILY: [],
    }
    ours = device_key(question.device)
    for winner in winners:
        if device_key(winner.device) != ours:
            level = Level.SAME_FAMILY
        elif winner.m in (question.m, question.bucket):
            level = Level.EXACT
        else:
            level = Level.NEAREST_BUCKET
        rungs[level].append(winner)
    for level, found in rungs.items():
        for winner in sorted(found, key=question.distance):
            yield level, winner


def _message(level: Level, winner: WinnerRecord, question: _Question, refused: list[str]) -> str:
    how = "predicted by the model, never run" if winner.predicted else "measured"
    where = f"for M = {winner.m} on {winner.device.name}"
    if level is Level.EXACT:
        text = f"{how} {where}"
    elif level is Level.NEAREST_BUCKET:
        direction = "up" if winner.m > question.m else "down"
        text = f"{how} {where}: the nearest stored bucket, M = {question.m} rounded {direction}"
    else:
        text = (
            f"{how} {where}: another device of compute capability {winner.device.capability}, "
            f"not {question.device.name}"
        )
    return _with_refused(text, refused)


def _with_refused(text: str, refused: list[str]) -> str:
    if not refused:
        return f"{text}."
    rest = f" and {len(refused) - 3} more" if len(refused) > 3 else ""
    return f"{text}. Not served, because out of date: {', '.join(refused[:3])}{rest}."
