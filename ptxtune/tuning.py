"""Tuning jobs: measured on the GPU that is here, or predicted for a GPU that is only named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from db import query
from db.records import Protocol
from db.session import Database, open_database
from db.store import Store
from ptxgen import env
from ptxgen.cache import CompileCache
from ptxgen.config import KernelConfig
from ptxgen.errors import ArchError
from ptxgen.outcome import Outcome
from ptxgen.problem import Problem
from ptxtune.pin import checked_pin
from ptxtune.target import Target
from ptxtune.toolchain import current_toolchain
from search.budget import PRESETS, Budget
from search.events import OnEvent
from search.job import TuneJob, TuneSummary
from search.predict import predict
from search.tune import ignore, run_one, tune


def make_job(
    problems: Sequence[Problem],
    batches: Sequence[int],
    *,
    target: Target,
    protocols: Sequence[Protocol] = (Protocol.PLAIN,),
    budget: Budget = PRESETS["quick"],
    sampler: str | None = None,
    seed: int = 0,
    refresh: bool = False,
    strict: bool = False,
    batch_invariant: bool = False,
    cache_dir: str | None = None,
) -> TuneJob:
    """A job for the target; strict: times taken beside other processes on the GPU are NOISY.

    batch_invariant: only configs whose result for a row does not depend on M are searched.

    Raises:
        CacheError: the compile cache cannot be written, which a search needs.
        ConfigError: PTXTUNE_PIN, which is told with the winners, pins nothing that any layer could
            use.
        ProblemError: there is nothing to tune.
    """
    checked_pin()
    cache = env.cache_folder(cache_dir)
    CompileCache(cache).check_writable()
    return TuneJob(
        problems=tuple(problems),
        buckets=tuple(batches),
        toolchain=current_toolchain(target.driver),
        protocols=tuple(protocols),
        budget=budget,
        sampler=sampler,
        seed=seed,
        refresh=refresh,
        evaluator_options={"strict": strict},
        cache_root=cache,
        batch_invariant=batch_invariant,
        gpu_uuid=target.only_uuid,
    )


def run_job(
    job: TuneJob, target: Target, *, db: str | None = None, on_event: OnEvent = ignore
) -> TuneSummary:
    """Measures where the target's GPU is here, predicts where it is not; all of it stored.

    Raises:
        PtxtuneError: an unusable database, no working GPU, or nothing was measured.
    """
    with open_database(db) as database:
        store = Store(database)
        if target.detected is None:
            if target.gpu is None:
                raise ArchError(
                    f"GPU {target.device.name!r} is not here and not in the table of known GPUs, "
                    f"so nothing can be predicted for it; name a known one with --gpu."
                )
            return predict(job, target.gpu, store, on_event)
        return tune(_with_ceilings(job, target, database), store, on_event)


def run_config(
    job: TuneJob,
    config: KernelConfig | None,
    target: Target,
    *,
    db: str | None = None,
    on_event: OnEvent = ignore,
) -> Outcome:
    """Runs one config (None: the built-in default) of a job's first task on the GPU that is here.

    Raises:
        ArchError: the target's GPU is not here.
    """
    if target.detected is None:
        raise ArchError(
            f"{target.device.name} is not in this machine ({target.reason}), so its kernels cannot "
            f"run; use a machine with the GPU, or ptxtune emit to see the kernel."
        )
    with open_database(db) as database:
        return run_one(_with_ceilings(job, target, database), config, Store(database), on_event)


def _with_ceilings(job: TuneJob, target: Target, database: Database) -> TuneJob:
    """Hands this card's stored ceilings to the worker, which measures them anew otherwise."""
    stored = [
        device
        for device in query.devices(database, name_like=target.device)
        if device.measured and device.uuid == target.device.uuid
    ]
    if not stored:
        return job
    options: dict[str, Any] = {**job.evaluator_options, "ceilings": asdict(stored[-1])}
    return replace(job, evaluator_options=options)
