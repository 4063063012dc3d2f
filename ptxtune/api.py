"""The public Python API: tune, best, export. Loading and packing are re-exported by the package."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any, get_args

from db.records import Answer, Protocol
from ptxgen.arguments import choice, choices_of, flag, integer, integers, path, real, text_of
from ptxgen.errors import ArgumentError, ProblemError
from ptxgen.problem import Dtype, Problem, Zero, check_m
from ptxtune.answers import best_answers
from ptxtune.exporting import export_bundle
from ptxtune.models import WHOLE_K
from ptxtune.neighbours import check_neighbours
from ptxtune.selection import BOTH, PROTOCOLS, select_problems
from ptxtune.target import resolve_target
from ptxtune.tuning import make_job, run_job
from search.budget import budget_named
from search.events import Note, OnEvent
from search.job import TuneSummary
from search.samplers import SamplerName
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
    """A layer as a problem; group -1 is one group over the whole of K.

    Integers may be numpy's; floats, and bools as integers, are refused.

    Raises:
        ProblemError: a value of another type, or one that no kernel serves.
    """
    size = integer(group, "group", error=ProblemError)
    return Problem(n, k, k if size == WHOLE_K else size, dtype, zero, bias)


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
    db: str | PathLike[str] | None = None,
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
        [check_m(m)],
        target=resolve_target(_name(gpu, "gpu")),
        protocol=_protocol(protocol),
        db=_database(db),
        allow_predicted=flag(allow_predicted, "allow_predicted"),
        batch_invariant=flag(batch_invariant, "batch_invariant"),
    )
    return answer


def tune(
    *,
    n: int | None = None,
    k: int | None = None,
    model: str | PathLike[str] | None = None,
    tp: int = 1,
    m: int | Sequence[int] = (1, 8, 16),
    group: int | None = None,
    dtype: str | None = None,
    zero: Zero | None = None,
    bias: bool | None = None,
    protocols: str | Sequence[str] = ("plain",),
    budget: str = "quick",
    trials: int | None = None,
    seconds: float | None = None,
    sampler: str | None = None,
    seed: int = 0,
    strict: bool = False,
    batch_invariant: bool = False,
    gpu: str | None = None,
    device: str | int | None = None,
    db: str | PathLike[str] | None = None,
    cache_dir: str | PathLike[str] | None = None,
    on_event: OnEvent = ignore,
) -> TuneSummary:
    """Tunes one layer (n, k) or a model's layers; predicts where the GPU is not here.

    The arguments are the options of `ptxtune tune`; group, dtype and zero are what the model's
    config.json says where they are None, else 128, fp16 and sym. on_event is told about the
    progress.

    Raises:
        PtxtuneError: a bad argument, an unusable database or GPU, or nothing was measured.
    """
    if not callable(on_event):
        raise ArgumentError(f"on_event = {on_event!r} must be a function of one event.")
    cautious = flag(strict, "strict")
    selection = select_problems(
        n=n, k=k, model=model, tp=tp, group=group, dtype=dtype, zero=zero, bias=bias
    )
    target = resolve_target(_name(gpu, "gpu"), device=_device(device))
    warning = check_neighbours(target, cautious)
    if warning:
        on_event(Note(warning))
    job = make_job(
        selection.problems,
        integers(m, "m"),
        target=target,
        protocols=[Protocol(word) for word in _protocols(protocols)],
        budget=budget_named(
            text_of(budget, "budget"),
            None if trials is None else integer(trials, "trials"),
            None if seconds is None else real(seconds, "seconds"),
            predicted=target.detected is None,
        ),
        sampler=None if sampler is None else choice(sampler, "sampler", get_args(SamplerName)),
        seed=integer(seed, "seed", least=0),
        strict=cautious,
        batch_invariant=flag(batch_invariant, "batch_invariant"),
        cache_dir=_folder(cache_dir),
    )
    return run_job(job, target, db=_database(db), on_event=on_event)


def export(
    out: str | PathLike[str],
    *,
    n: int,
    k: int,
    m: int | Sequence[int] = (1,),
    group: int = 128,
    dtype: Dtype = "fp16",
    zero: Zero = "sym",
    bias: bool = False,
    protocol: str = "plain",
    gpu: str | None = None,
    db: str | PathLike[str] | None = None,
    cache_dir: str | PathLike[str] | None = None,
    allow_predicted: bool = True,
    batch_invariant: bool = False,
    force: bool = False,
) -> Path:
    """Writes the best kernels of the buckets m as one bundle; returns its folder.

    Raises:
        PtxtuneError: a bad argument, an unusable database, or a folder that is in the way.

    Warns:
        UserWarning: once, where the compile cache cannot be written; the export does without.
    """
    folder, _ = export_bundle(
        path(out, "out"),
        problem(n, k, group=group, dtype=dtype, zero=zero, bias=bias),
        integers(m, "m"),
        target=resolve_target(_name(gpu, "gpu")),
        protocol=_protocol(protocol),
        db=_database(db),
        cache_dir=_folder(cache_dir),
        allow_predicted=flag(allow_predicted, "allow_predicted"),
        batch_invariant=flag(batch_invariant, "batch_invariant"),
        force=flag(force, "force"),
    )
    return folder


def _protocol(word: Any) -> Protocol:
    return Protocol(choice(word, "protocol", PROTOCOLS))


def _protocols(words: Any) -> tuple[str, ...]:
    return PROTOCOLS if words == BOTH else choices_of(words, "protocols", PROTOCOLS)


def _name(value: Any, name: str) -> str | None:
    return None if value is None else text_of(value, name)


def _device(value: Any) -> str | None:
    """An index or a UUID as the command line has it."""
    return value if value is None or isinstance(value, str) else str(integer(value, "device"))


def _database(value: Any) -> str | None:
    """A path or a URL; which of them, and whether it can be used, the database says."""
    return value if value is None or isinstance(value, str) else str(path(value, "db"))


def _folder(value: Any) -> str | None:
    return None if value is None else str(path(value, "cache_dir"))
