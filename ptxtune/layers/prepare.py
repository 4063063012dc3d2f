"""From a problem to its KernelSet: which kernel serves which batch, compiled and loaded.

The answers are those of `ptxtune best`, for every M bucket: what was tuned here, else the built-in
default. Nothing is measured.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch

from db.records import Answer
from ptxgen.cache import CompileCache
from ptxgen.dequantize.emit import emit_dequantize
from ptxgen.device import LoadedKernel
from ptxgen.env import cache_dir
from ptxgen.families import emit
from ptxgen.lenient_cache import LenientCache
from ptxgen.problem import M_BUCKETS, Problem
from ptxgen.source import KernelSource
from ptxtune.answers import best_answers
from ptxtune.layers.kernel_set import KernelSet, Served
from ptxtune.target import Target, resolve_target
from reports.words import config_text

LOG = logging.getLogger("ptxtune")

COMPILE_THREADS = 8


@dataclass(frozen=True, slots=True)
class Prepared:
    """A KernelSet and where its kernels come from.

    Attributes:
        kernels: ready to launch.
        answers: one for each of M_BUCKETS.
    """

    kernels: KernelSet
    answers: tuple[Answer, ...]

    def summary(self) -> str:
        """Level and kernel of runs of batches, such as "M <= 8 default mma bm8 ..."."""
        parts = []
        for index, answer in enumerate(self.answers):
            following = self.answers[index + 1 : index + 2]
            if following and _same(answer, following[0]):
                continue
            dense = " (dequantize + matmul)" if answer.dequantize_first else ""
            level = answer.level.value.replace("_", " ")
            parts.append(f"M <= {answer.m} {level} {config_text(answer.config)}{dense}")
        return "; ".join(parts)


def prepare(problem: Problem, device: torch.device, *, db: str | None = None) -> Prepared:
    """Answers, compiles (or finds in the cache) and loads the kernels of a problem on a device.

    Args:
        problem: the problem.
        device: a CUDA device with an index.
        db: database; None for PTXTUNE_DB, else the user's.

    Raises:
        PtxtuneError: the GPU has no kernels, the database cannot be read, a kernel does not
            compile or the driver refuses it.
    """
    target = target_of(device)
    answers = best_answers([problem], M_BUCKETS, target=target, db=db)
    sources = [emit(problem, answer.config, target.arch) for answer in answers]
    dense = None
    if any(answer.dequantize_first for answer in answers):
        dense = emit_dequantize(problem, target.arch)
    cubins = _compiled([*sources, *([dense] if dense else [])])
    with torch.cuda.device(device):
        torch.cuda.synchronize()  # makes torch's context current, where nothing has yet
        loaded: dict[str, LoadedKernel] = {}
        for source in (*sources, *([dense] if dense else [])):
            digest = source.digest()
            if digest not in loaded:
                loaded[digest] = LoadedKernel(cubins[digest], source.entry, source.plan)
        served = [
            Served(
                answer.m,
                loaded[source.digest()],
                loaded[dense.digest()] if dense and answer.dequantize_first else None,
            )
            for answer, source in zip(answers, sources, strict=True)
        ]
        prepared = Prepared(KernelSet(problem, device, served), tuple(answers))
    LOG.info("%s on %s: %s", problem.key(), device, prepared.summary())
    return prepared


def target_of(device: torch.device) -> Target:
    """The target that a CUDA device is. Raises ArchError where it has no kernels."""
    uuid = str(torch.cuda.get_device_properties(device).uuid)
    return resolve_target(None, device=uuid if uuid.startswith("GPU-") else f"GPU-{uuid}")


def _compiled(sources: Sequence[KernelSource]) -> dict[str, bytes]:
    """Cubins by source digest; kernels that are in the cache are not compiled again."""
    cache = LenientCache(CompileCache(cache_dir()), LOG.warning)  # a served image may be read-only
    different = {source.digest(): source for source in sources}
    with ThreadPoolExecutor(COMPILE_THREADS) as pool:
        compiled = pool.map(cache.compiled, different.values())
        return {digest: made.cubin for digest, made in zip(different, compiled, strict=True)}


def _same(one: Answer, other: Answer) -> bool:
    return (one.level, one.config, one.dequantize_first) == (
        other.level,
        other.config,
        other.dequantize_first,
    )
