"""A comparison with other packages: which of our configs take part, and the rows that come out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from db import query
from db.records import Answer, DeviceRecord, Level, Protocol
from db.session import open_for_reading
from ptxgen import env
from ptxgen.cache import CompileCache
from ptxgen.errors import ArchError, PtxtuneError
from ptxgen.outcome import Outcome
from ptxgen.problem import Problem
from ptxtune.answers import best_answers
from ptxtune.selection import Selection
from ptxtune.target import Target
from ptxtune.toolchain import current_toolchain
from ptxtune.version import VERSION
from reports.bench_row import BenchHost, BenchRow
from search.bench.case import Case, Entry, Result, Verdict
from search.bench.registry import CUBLAS, OURS, Contender, contenders_named
from search.bench.runner import ROUNDS, BenchRunner
from search.clocks import Clocks
from search.finals import ratio_of
from search.gpu_lock import GpuLock
from search.model import floor_us, least_us

SOURCES = {
    Level.EXACT: "measured",
    Level.OTHER_PROTOCOL: "measured",
    Level.DEFAULT: "default",
}
"""Where our config comes from; other levels of an answer are named as they are."""


class NothingTimedError(PtxtuneError):
    """No contender of any case could be timed."""


@dataclass(frozen=True, slots=True)
class BenchJob:
    """What is compared.

    Attributes:
        selection: the layers.
        batches: batch sizes, each >= 1.
        protocols: of ours; the others are always plain.
        contenders: ours and cuBLAS among them.
        target: the GPU, which is here.
        answers: our config for each problem, M and protocol.
        host: provenance of every row.
        ceilings: of the device: measured ones where they are stored, else those of its model.
        cache_root: compile cache.
        max_sm_mhz: the device's highest SM clock; None where it is not known.
        rounds: turns of every contender.
        seed: of weights and activations.
        strict: whether a neighbour on the GPU makes every time noisy.
    """

    selection: Selection
    batches: tuple[int, ...]
    protocols: tuple[Protocol, ...]
    contenders: tuple[Contender, ...]
    target: Target
    answers: dict[tuple[Problem, int, Protocol], Answer]
    host: BenchHost
    ceilings: DeviceRecord
    cache_root: Path
    max_sm_mhz: int | None = None
    rounds: int = ROUNDS
    seed: int = 0
    strict: bool = False

    def cases(self) -> list[Case]:
        """Every problem and M, all batches of a layer one after the other."""
        return [
            Case(
                problem,
                m,
                self._floor_us(problem, m),
                least_us(problem, m, self.ceilings, self.max_sm_mhz),
            )
            for problem in self.selection.problems
            for m in self.batches
        ]

    def entries(self, case: Case) -> list[Entry]:
        """Ours in each protocol, then the others, plain."""
        ours = [self._ours(case, protocol) for protocol in self.protocols]
        return ours + [Entry(item) for item in self.contenders if item.name != OURS]

    def _ours(self, case: Case, protocol: Protocol) -> Entry:
        answer = self.answers[case.problem, case.m, protocol]
        options: dict[str, Any] = {
            "config": answer.config.to_dict(),
            "cache_root": str(self.cache_root),
            "chained": protocol is Protocol.CHAINED,
        }
        (contender,) = (item for item in self.contenders if item.name == OURS)
        return Entry(contender, protocol, options, source_text(answer, protocol))

    def _floor_us(self, problem: Problem, m: int) -> float:
        device = self.ceilings
        if not device.read_gbps or not device.tensor_tflops:
            return 0.0
        return floor_us(problem, m, device.read_gbps, device.tensor_tflops)


def make_bench(
    selection: Selection,
    batches: Sequence[int],
    *,
    target: Target,
    protocols: Sequence[Protocol] = (Protocol.PLAIN,),
    others: Sequence[str] = (),
    rounds: int = ROUNDS,
    seed: int = 0,
    strict: bool = False,
    db: str | None = None,
    cache_dir: str | None = None,
) -> BenchJob:
    """The comparison of some layers.

    Args:
        selection: the layers.
        batches: batch sizes, each >= 1.
        target: the GPU.
        protocols: of ours.
        others: names of the contenders besides ours and cuBLAS; none: all that are known.
        rounds: turns of every contender.
        seed: of weights and activations.
        strict: whether a neighbour on the GPU makes every time noisy.
        db: database with our winners; the user's where None.
        cache_dir: compile cache; the user's where None.

    Raises:
        ArchError: the target's GPU is not here.
        CacheError: the compile cache cannot be written.
        ContenderError: a contender is not known.
        StoreError: the database cannot be opened.
    """
    contenders = contenders_named((*others, OURS, CUBLAS) if others else ())
    if target.detected is None:
        raise ArchError(
            f"a comparison is measured, and {target.device.name} is not in this machine "
            f"({target.reason}); use a machine with the GPU, or ptxtune tune for predictions."
        )
    cache = env.cache_folder(cache_dir)
    CompileCache(cache).check_writable()
    return BenchJob(
        selection,
        tuple(batches),
        tuple(protocols),
        contenders,
        target,
        _answers(selection.problems, batches, protocols, target, db),
        _host(target),
        _ceilings(target, db),
        cache,
        Clocks.of_device(target.device.uuid).limits().max_sm_mhz,
        rounds=rounds,
        seed=seed,
        strict=strict,
    )


def run_bench(
    job: BenchJob,
    runner: BenchRunner | None = None,
    on_wait: Callable[[], None] | None = None,
) -> Iterator[list[BenchRow]]:
    """Rows of one case after the other, every contender among them, however it ended.

    Args:
        job: what is compared.
        runner: measures; one on the job's GPU where None.
        on_wait: called while another process holds the GPU.
    """
    with runner or _runner(job, on_wait) as running:
        for case in job.cases():
            yield case_rows(job, running.run(case, job.entries(case), job.rounds))


def case_rows(job: BenchJob, results: Sequence[Result]) -> list[BenchRow]:
    """The rows of one case: its results with provenance and with their ratio to cuBLAS."""
    cublas = next(
        (
            item.outcome
            for item in results
            if item.entry.contender.name == CUBLAS and item.verdict is Verdict.OK
        ),
        None,
    )
    return [_row(job, result, cublas) for result in results]


def _row(job: BenchJob, result: Result, cublas: Outcome | None) -> BenchRow:
    outcome, entry, problem = result.outcome, result.entry, result.case.problem
    ours = entry.contender.name == OURS  # known also where it runs from a checkout
    ratio = None
    if result.verdict is Verdict.OK and outcome is not None and cublas is not None:
        ratio = ratio_of(cublas, outcome)
    return BenchRow(
        host=job.host,
        contender=entry.contender.name,
        version=f"ptxtune {VERSION}" if ours else entry.contender.version(),
        protocol=entry.protocol.value,
        problem=problem,
        layer=job.selection.layer_names.get((problem.n, problem.k), ""),
        m=result.case.m,
        verdict=result.verdict.value,
        reason=result.reason,
        source=entry.source,
        config=entry.options.get("config"),
        outcome=outcome,
        variant=result.variant,
        over_cublas=ratio,
    )


def check_timed(rows: Sequence[BenchRow]) -> None:
    """Raises NothingTimedError where no row has a time; it lists the reasons."""
    if any(row.time_us is not None for row in rows):
        return
    reasons = dict.fromkeys(f"{row.contender}: {row.reason}" for row in rows if row.reason)
    raise NothingTimedError(
        f"no contender could be timed ({'; '.join(list(reasons)[:6]) or 'nothing was run'}). Run "
        f"ptxtune doctor to check the GPU and the toolchain."
    )


def source_text(answer: Answer, protocol: Protocol) -> str:
    """Where a config comes from: measured, default, pinned, nearest bucket or same family.

    A winner of the other protocol, which serves where this one has none, is named as such.
    """
    text = SOURCES.get(answer.level) or answer.level.value.replace("_", " ")
    other = answer.winner is not None and answer.winner.protocol is not protocol
    return f"{text} as {answer.winner.protocol.value}" if answer.winner and other else text


def _runner(job: BenchJob, on_wait: Callable[[], None] | None) -> BenchRunner:
    device = job.target.device
    return BenchRunner(
        Clocks.of_device(device.uuid),
        GpuLock(device.uuid or device.name),
        {"index": 0, "seed": job.seed, "gpu_uuid": job.target.only_uuid},
        on_wait=on_wait,
        strict=job.strict,
    )


def _answers(
    problems: Sequence[Problem],
    batches: Sequence[int],
    protocols: Sequence[Protocol],
    target: Target,
    db: str | None,
) -> dict[tuple[Problem, int, Protocol], Answer]:
    """Our measured winners; the family default where none is stored (predictions do not count)."""
    found: dict[tuple[Problem, int, Protocol], Answer] = {}
    for protocol in protocols:
        answers = best_answers(
            problems, batches, target=target, protocol=protocol, db=db, allow_predicted=False
        )
        keys = [(problem, m, protocol) for problem in problems for m in batches]
        found.update(zip(keys, answers, strict=True))
    return found


def _host(target: Target) -> BenchHost:
    toolchain = current_toolchain(target.driver)
    return BenchHost(
        device=target.device.name,
        driver=toolchain.driver,
        nvrtc=toolchain.nvrtc,
        torch=toolchain.torch,
        commit=toolchain.commit,
        date=datetime.now(UTC).date().isoformat(),
    )


def _ceilings(target: Target, db: str | None) -> DeviceRecord:
    """This card's measured ceilings where they are stored, else those of its model."""
    with open_for_reading(db) as database:
        stored = [
            device
            for device in query.devices(database, name_like=target.device)
            if device.measured and device.uuid == target.device.uuid
        ]
    return replace(stored[-1], name=target.device.name) if stored else target.device
