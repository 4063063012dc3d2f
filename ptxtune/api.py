"""The public Python API: tune, best, export. Loading and packing are re-exported by the package."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path

from db.records import Answer, Protocol
from ptxgen.problem import Dtype, Problem, Zero
from ptxtune.answers import best_answers
from ptxtune.exporting import export_bundle
from ptxtune.models import WHOLE_K
from ptxtune.neighbours import check_neighbours
from ptxtune.selection import select_problems
from ptxtune.target import resolve_target
from ptxtune.tuning import make_job, run_job
from search.budget import budget_named
from search.events import Note, OnEvent
from search.job import TuneSummary
from search.tune import ignore


def problem(
    n: int,
    k: int,
    *,
    group: int = 128,
    dtype: Dtype = "fp16",
    zero: Zero = "sym",
    bias: bool = False,
) -> Problem:
    """A layer as a problem; group -1 is one group over the whole of K. Raises ProblemError."""
    return Problem(n, k, k if group == WHOLE_K else group, dtype, zero, bias)


def best(
    *,
    n: int,
    k: int,
    m: int,
    group: int = 128,
    dtype: Dtype = "fp16",
    zero: Zero = "sym",
    bias: bool = False,
    protocol: str = "plain",
    gpu: str | None = None,
    db: str | None = None,
    allow_predicted: bool = True,
    batch_invariant: bool = False,
) -> Answer:
    """The best stored config for a batch of m, and how good that answer is.

    Args:
        n: output features.
        k: input features.
        m: tokens, >= 1.
        group: inputs that share a scale; -1 for the whole of K.
        dtype: fp16 or bf16.
        zero: sym or int.
        bias: whether a bias is added.
        protocol: plain or chained launches.
        gpu: a GPU by name; None for the one that is here, else h200.
        db: database; None for PTXTUNE_DB, else the user's.
        allow_predicted: whether a prediction may answer where nothing was measured; without one the
            answer is then the untimed default, which its level says.
        batch_invariant: only kernels whose result for a row is the same bits for every m.

    Returns:
        The answer; its dequantize_first says whether dequantize + matmul is faster than the config
        here. A bundle that ptxtune.load has loaded then goes that way by itself.

    Raises:
        PtxtuneError: a bad argument or an unusable database.
    """
    wanted = problem(n, k, group=group, dtype=dtype, zero=zero, bias=bias)
    (answer,) = best_answers(
        [wanted],
        [m],
        target=resolve_target(gpu),
        protocol=Protocol(protocol),
        db=db,
        allow_predicted=allow_predicted,
        batch_invariant=batch_invariant,
    )
    return answer


def tune(
    *,
    n: int | None = None,
    k: int | None = None,
    model: str | None = None,
    tp: int = 1,
    m: Sequence[int] = (1, 8, 16),
    group: int = 128,
    dtype: str = "fp16",
    zero: Zero = "sym",
    bias: bool | None = None,
    protocols: Sequence[str] = ("plain",),
    budget: str = "quick",
    trials: int | None = None,
    seconds: float | None = None,
    sampler: str | None = None,
    seed: int = 0,
    strict: bool = False,
    batch_invariant: bool = False,
    gpu: str | None = None,
    device: str | int | None = None,
    db: str | None = None,
    cache_dir: str | None = None,
    on_event: OnEvent = ignore,
) -> TuneSummary:
    """Tunes one layer (n, k) or a model's layers; predicts where the GPU is not here.

    The arguments are the options of `ptxtune tune`; on_event is told about the progress.

    Raises:
        PtxtuneError: a bad argument, an unusable database or GPU, or nothing was measured.
    """
    selection = select_problems(
        n=n, k=k, model=model, tp=tp, group=group, dtype=dtype, zero=zero, bias=bias
    )
    target = resolve_target(gpu, device=None if device is None else str(device))
    warning = check_neighbours(target, strict)
    if warning:
        on_event(Note(warning))
    job = make_job(
        selection.problems,
        tuple(m),
        target=target,
        protocols=[Protocol(word) for word in protocols],
        budget=budget_named(budget, trials, seconds, predicted=target.detected is None),
        sampler=sampler,
        seed=seed,
        strict=strict,
        batch_invariant=batch_invariant,
        cache_dir=cache_dir,
    )
    return run_job(job, target, db=db, on_event=on_event)


def export(
    out: str | PathLike[str],
    *,
    n: int,
    k: int,
    m: Sequence[int] = (1,),
    group: int = 128,
    dtype: Dtype = "fp16",
    zero: Zero = "sym",
    bias: bool = False,
    protocol: str = "plain",
    gpu: str | None = None,
    db: str | None = None,
    cache_dir: str | None = None,
    allow_predicted: bool = True,
    batch_invariant: bool = False,
    force: bool = False,
) -> Path:
    """Writes the best kernels of the buckets m as one bundle; returns its folder.

    Raises:
        PtxtuneError: a bad argument, an unusable database, or a folder that is in the way.
    """
    folder, _ = export_bundle(
        Path(out),
        problem(n, k, group=group, dtype=dtype, zero=zero, bias=bias),
        tuple(m),
        target=resolve_target(gpu),
        protocol=Protocol(protocol),
        db=db,
        cache_dir=cache_dir,
        allow_predicted=allow_predicted,
        batch_invariant=batch_invariant,
        force=force,
    )
    return folder
