"""Export: from answers of the database to a bundle, compiled anew for its target."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path

from db.devices import device_key
from db.records import Answer, Protocol, WinnerRecord
from ptxgen import env
from ptxgen.arguments import path
from ptxgen.bundle import selftest
from ptxgen.bundle.manifest import DeviceInfo, ToolchainInfo
from ptxgen.bundle.measurement import Measurement
from ptxgen.bundle.write import BucketSpec, BundleSpec, UnpackingSpec, check_out_dir, write_bundle
from ptxgen.cache import CompileCache
from ptxgen.dequantize.emit import emit_dequantize
from ptxgen.errors import BundleError, ProblemError
from ptxgen.families import emit
from ptxgen.lenient_cache import LenientCache
from ptxgen.problem import Problem
from ptxtune.answers import best_answers, check_measured
from ptxtune.target import Target
from ptxtune.toolchain import current_toolchain


def export_bundle(
    out: str | PathLike[str],
    problem: Problem,
    batches: Sequence[int],
    *,
    target: Target,
    protocol: Protocol = Protocol.PLAIN,
    db: str | None = None,
    cache_dir: str | None = None,
    allow_predicted: bool = True,
    batch_invariant: bool = False,
    force: bool = False,
    tell: Callable[[str], None] = warnings.warn,
) -> tuple[Path, list[Answer]]:
    """Writes the best kernel of each bucket as one bundle.

    Args:
        out: folder to create.
        problem: the problem.
        batches: largest batch of each bucket, each > 0.
        target: the GPU it is for.
        protocol: which winners to export.
        db: database; the user's where None.
        cache_dir: compile cache; the user's where None.
        allow_predicted: whether a predicted winner may be exported, or the untimed default.
        batch_invariant: only kernels of one order of sums, so that a row's result is the same
            bits in every bucket.
        force: replace an older bundle.
        tell: called once, in words, where the compile cache cannot be written; the export then
            does without.

    Returns:
        The bundle's folder, and the answers it was made from, in the order of the buckets.

    Raises:
        NotMeasuredError: only measured winners are allowed, and a bucket has none.
        PtxtuneError: no batch, an unusable database, a failed compile, or a refused folder, which
            is looked at first.
    """
    sizes = sorted(set(batches))
    if not sizes or sizes[0] < 1:
        raise ProblemError(f"buckets {sizes} cannot be exported; name at least one M, each >= 1.")
    selftest.check_size(problem)
    folder = path(out, "--out", error=BundleError)
    check_out_dir(folder, force)
    root = env.cache_folder(cache_dir)
    answers = best_answers(
        [problem],
        sizes,
        target=target,
        protocol=protocol,
        db=db,
        allow_predicted=allow_predicted,
        batch_invariant=batch_invariant,
    )
    if not allow_predicted:
        check_measured(answers)
    cache = LenientCache(CompileCache(root), tell)
    toolchain = current_toolchain(target.driver)
    spec = BundleSpec(
        problem=problem,
        buckets=tuple(_bucket(answer, target, cache) for answer in answers),
        device=DeviceInfo(target.device.name, target.device.capability),
        toolchain=ToolchainInfo(
            toolchain.ptxtune, toolchain.nvrtc, toolchain.driver, toolchain.commit
        ),
        unpacking=_unpacking(problem, answers, target, cache),
    )
    return write_bundle(folder, spec, force), answers


def _bucket(answer: Answer, target: Target, cache: LenientCache) -> BucketSpec:
    source = emit(answer.problem, answer.config, target.arch)
    compiled = cache.compiled(source)
    return BucketSpec(
        m_max=answer.m,
        config=answer.config,
        source=source,
        ptx=compiled.ptx,
        cubin=compiled.cubin,
        resources=compiled.resources,
        measurement=None if answer.winner is None else _measurement(answer.winner, target),
        dequantize_first=answer.dequantize_first,
    )


def _unpacking(
    problem: Problem, answers: Sequence[Answer], target: Target, cache: LenientCache
) -> UnpackingSpec | None:
    """The dequantize kernel, where dequantize + matmul is the faster way in any bucket."""
    if not any(answer.dequantize_first for answer in answers):
        return None
    source = emit_dequantize(problem, target.arch)
    compiled = cache.compiled(source)
    return UnpackingSpec(source, compiled.ptx, compiled.cubin)


def _measurement(winner: WinnerRecord, target: Target) -> Measurement:
    """What is known of the winner at the M, in the launches and on the device where it won."""
    here = device_key(winner.device) == device_key(target.device)
    return Measurement(
        device="" if here else winner.device.name,
        m=winner.m,
        time_us=winner.time_us,
        predicted=winner.predicted,
        protocol=winner.protocol.value,
        spread=winner.spread,
        rel_err=winner.rel_err,
        floor_us=winner.floor_us,
        default_us=winner.default_us,
        cublas_us=winner.cublas_us,
        measured_at=winner.measured_at.isoformat(),
        state=winner.evidence.state.value if winner.evidence and winner.evidence.state else "",
        proof=winner.proof,
        dequantized_us=winner.dequantized_us,
    )
