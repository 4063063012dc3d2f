"""ptxtune selfcheck: is the tuner itself any good here? Regret, flips, transfer, and a soak."""

from __future__ import annotations

import signal
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from db.records import DeviceRecord, Protocol
from db.session import open_database
from db.store import Store
from db.trial_file import write_trials
from ptxgen import env
from ptxgen.errors import ArchError
from ptxgen.output_file import check_outputs
from ptxtune.accuracy_text import accuracy_document, accuracy_text
from ptxtune.interrupts import INTERRUPTED
from ptxtune.options import (
    UserPath,
    cache_option,
    device_option,
    force_option,
    json_option,
    m_option,
    problem_options,
    protocol_option,
)
from ptxtune.output import note, say, say_json
from ptxtune.selection import select_problems
from ptxtune.selfcheck_text import gates_document, gates_text, soak_document, soak_text
from ptxtune.shapes_text import shapes_document, shapes_text
from ptxtune.target import resolve_target
from ptxtune.toolchain import current_toolchain
from ptxtune.tuning import make_job
from search.accuracy import accuracy
from search.gates import Gate, offline_gates
from search.job import EVALUATOR, TuneJob
from search.progress import ProgressView
from search.replay import load_recording
from search.selfcheck import record, selfcheck, small_families
from search.shape_soak import ShapeJob, soak_shapes
from search.soak import SoakReport, soak
from search.soak_plan import lanes_for, plan_soak
from search.worker import GpuWorker

REPLAY_TRIALS = 100
"""Budget of a search on recorded trials; about what quick measures."""


@click.command("selfcheck")
@problem_options(several=False)
@m_option("1,16", least=1)
@protocol_option(several=False, default="plain")
@click.option(
    "--configs",
    type=click.IntRange(min=0),
    default=300,
    show_default=True,
    help="Legal configs drawn for the exhaustive search; 0: all of them.",
)
@click.option(
    "--repeats",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Tuning runs that are compared.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of every random choice.")
@click.option(
    "--record",
    "record_file",
    type=UserPath(dir_okay=False),
    help="Only measure every config, and write the trials to this file (.gz: compressed).",
)
@click.option(
    "--replay",
    "replay_file",
    type=UserPath(dir_okay=False),
    help="No GPU: compare the samplers on recorded trials.",
)
@click.option(
    "--soak", "faults", type=click.IntRange(min=1), help="No GPU: inject at least this many faults."
)
@click.option(
    "--gpu-faults", is_flag=True, help="The faults of --soak are real kernels on the GPU."
)
@click.option(
    "--lanes",
    type=click.IntRange(1, 64),
    help="Tuners that --soak runs at once; by default one a core, at most 16.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=1),
    help="Time limit of --soak; at the limit it says what it had, and fails.",
)
@click.option(
    "--shapes",
    type=click.FloatRange(min=1),
    metavar="SECONDS",
    help="On the GPU: check random configs of all families on random shapes, for so long.",
)
@click.option(
    "--accuracy",
    "table",
    is_flag=True,
    help="On the GPU: errors of the built-in kernels, by batch and by spread of a row's scales.",
)
@force_option
@device_option
@cache_option
@json_option
@click.pass_context
def command(
    context: click.Context,
    /,
    *,
    m: tuple[int, ...],
    protocol: str,
    configs: int,
    repeats: int,
    seed: int,
    record_file: Path | None,
    replay_file: Path | None,
    faults: int | None,
    gpu_faults: bool,
    lanes: int | None,
    seconds: float | None,
    shapes: float | None,
    table: bool,
    force: bool,
    device: str | None,
    cache_dir: str | None,
    as_json: bool,
    **layer: Any,
) -> None:
    """Check the tuner itself: regret, winner flips, injected faults.

    On the GPU a space of a few hundred configs is measured whole; then the tuner runs three times,
    and all winners are timed in turns. The stored results are left alone. The exit code is 1 where
    a number is above its limit, such as a regret of more than 3 %.

    \b
    Example:
      ptxtune selfcheck
      ptxtune selfcheck --n 4096 --k 4096 --m 1,16 --record recorded.jsonl.gz
      ptxtune selfcheck --replay recorded.jsonl.gz
      ptxtune selfcheck --soak 1000
      ptxtune selfcheck --soak 1000 --gpu-faults --seconds 200
      ptxtune selfcheck --shapes 600
      ptxtune selfcheck --accuracy
    """
    modes = (record_file, replay_file, faults, shapes, table or None)
    if sum(mode is not None for mode in modes) > 1:
        raise click.UsageError(
            "--record, --replay, --soak, --shapes and --accuracy exclude each other; choose one."
        )
    _check_soak(faults, gpu_faults, lanes, seconds)
    if shapes is not None and (layer["n"] is not None or layer["k"] is not None):
        raise click.UsageError("--shapes draws its problems itself; leave out --n and --k.")
    if device is not None and (faults is not None or replay_file is not None):
        raise click.UsageError(
            "--device chooses the GPU that is measured on; --replay and --soak take none (with "
            "--gpu-faults set CUDA_VISIBLE_DEVICES to its UUID)."
        )
    if faults is not None:
        report = _soak(faults, gpu_faults, seed, lanes or lanes_for(faults), seconds)
        code = _show_soak(report, as_json)
    elif shapes is not None:
        code = _check_shapes(shapes, seed, device=device, cache_dir=cache_dir, as_json=as_json)
    elif table:
        code = _code(_show_accuracy(layer, seed, device, as_json))
    elif replay_file is not None:
        recording = load_recording(replay_file)
        gates = offline_gates(recording, trials=REPLAY_TRIALS, seeds=repeats)
        code = _show(gates, as_json)
    else:
        _check_record(record_file, force)
        if layer["n"] is None and layer["k"] is None:
            layer["n"] = layer["k"] = 4096
        job = _job(
            layer, m, Protocol(protocol), configs, seed=seed, cache_dir=cache_dir, device=device
        )
        if record_file is not None:
            code = _record(job, record_file, force, as_json)
        else:
            code = _check(job, repeats, as_json)
    context.exit(code)


def _check_soak(
    faults: int | None, gpu_faults: bool, lanes: int | None, seconds: float | None
) -> None:
    """Raises a usage error where an option of --soak stands without it."""
    if faults is not None:
        return
    if gpu_faults:
        raise click.UsageError("--gpu-faults says which faults; add --soak N for how many.")
    if lanes is not None or seconds is not None:
        raise click.UsageError("--lanes and --seconds say how to soak; add --soak N.")


def _check_record(file: Path | None, force: bool) -> None:
    """Before hours of measuring: may the file be written?"""
    if force and file is None:
        raise click.UsageError("--force replaces the file of --record; name one.")
    check_outputs([file], replace=force)


def _job(
    layer: dict[str, Any],
    m: Sequence[int],
    protocol: Protocol,
    configs: int,
    *,
    seed: int,
    cache_dir: str | None,
    device: str | None,
) -> TuneJob:
    """A job over a small space, for the GPU that is here."""
    target = resolve_target(None, device=device)
    if target.detected is None:
        raise ArchError(
            f"this check measures on a GPU, and none is here ({target.reason}). Use --replay FILE "
            f"or --soak N, which need none."
        )
    job = make_job(
        select_problems(**layer).problems,
        m,
        target=target,
        protocols=[protocol],
        seed=seed,
        cache_dir=cache_dir,
    )
    return replace(job, families=small_families(job, target.arch, configs, seed), baseline=False)


def _check(job: TuneJob, repeats: int, as_json: bool) -> int:
    with tempfile.TemporaryDirectory(prefix="ptxtune-selfcheck-") as folder, ProgressView() as view:
        found = selfcheck(job, Path(folder), repeats=repeats, on_event=view.on_event)
    return _show(found.gates, as_json)


def _record(job: TuneJob, file: Path, force: bool, as_json: bool) -> int:
    text = "every config of the offered space was measured; screened and final times"
    with (
        tempfile.TemporaryDirectory(prefix="ptxtune-record-") as folder,
        ProgressView() as view,
        open_database(Path(folder) / "record.db") as database,
    ):
        content = record(job, Store(database), text, view.on_event)
    write_trials(file, content, replace=force)
    if as_json:
        say_json({"file": str(file), "trials": len(content.trials)})
    else:
        say(f"{len(content.trials)} trials written to {file}")
    return 0


def _soak(faults: int, kernels: bool, seed: int, lanes: int, seconds: float | None) -> SoakReport:
    """Plans the lanes in a folder that is kept, and runs them."""
    begin = time.monotonic()
    device = _measured_gpu() if kernels else None
    folder = Path(tempfile.mkdtemp(prefix="ptxtune-soak-"))
    note(f"soak in {folder}, which is kept; {lanes} lanes")
    planned = plan_soak(folder, faults, lanes=lanes, device=device, seed=seed)
    return soak(planned, faults, note, seconds, begin)


def _measured_gpu() -> DeviceRecord:
    """The GPU with its ceilings, by a worker of its own: this process never touches CUDA.

    Raises:
        ArchError: no GPU is here.
    """
    target = resolve_target(None)
    if target.detected is None:
        raise ArchError(
            f"--gpu-faults runs faulty kernels on a GPU, and none is here ({target.reason}). Leave "
            f"it out: --soak N alone injects faults that need none."
        )
    with GpuWorker(EVALUATOR) as worker:
        return worker.device()


def _check_shapes(
    seconds: float, seed: int, *, device: str | None, cache_dir: str | None, as_json: bool
) -> int:
    """Random shapes on the GPU that is here; without --cache-dir no compiled kernel is kept."""
    target = resolve_target(None, device=device)
    if target.detected is None:
        raise ArchError(
            f"--shapes runs kernels on a GPU, and none is here ({target.reason}). ptxtune check "
            f"--cpu checks kernels without one."
        )
    with tempfile.TemporaryDirectory(prefix="ptxtune-shapes-") as folder:
        cache = env.cache_folder(cache_dir) if cache_dir else Path(folder)
        report = soak_shapes(ShapeJob(cache, seconds, seed, gpu_uuid=target.only_uuid), note)
    if as_json:
        say_json(shapes_document(report))
    else:
        say(shapes_text(report))
    return _code(report.passed, report.stopped)


def _code(passed: bool, stopped: str = "") -> int:
    """The exit code of a check; `stopped` is the reason why it did not come to its end."""
    if stopped.endswith(signal.SIGINT.name):
        return INTERRUPTED
    return 0 if passed else 1


def _show_accuracy(layer: dict[str, Any], seed: int, device: str | None, as_json: bool) -> bool:
    """The accuracy table of one problem's N, K and group, for all dtypes and zero points."""
    target = resolve_target(None, device=device)
    if target.detected is None:
        raise ArchError(
            f"--accuracy runs kernels on a GPU, and none is here ({target.reason}). The tests in "
            f"tests/compile hold kernels to the same bound without one."
        )
    if layer["n"] is None and layer["k"] is None:
        layer["n"], layer["k"] = 2048, 4096
    (problem,) = select_problems(**layer).problems
    rows = accuracy(problem, seed, target.only_uuid)
    toolchain = current_toolchain(target.driver)
    provenance = {
        "device": target.detected.name,
        "driver": toolchain.driver,
        "nvrtc": toolchain.nvrtc,
        "torch": toolchain.torch,
        "commit": toolchain.commit,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }
    if as_json:
        say_json(accuracy_document(problem, rows, provenance))
    else:
        say(accuracy_text(problem, rows, provenance))
    return all(row.passed for row in rows)


def _show_soak(report: SoakReport, as_json: bool) -> int:
    if as_json:
        say_json(soak_document(report))
    else:
        say(soak_text(report))
    return _code(report.passed, report.stopped)


def _show(gates: Sequence[Gate], as_json: bool) -> int:
    if as_json:
        say_json(gates_document(gates))
    else:
        say(gates_text(gates))
    return _code(bool(gates) and all(gate.passed for gate in gates))
