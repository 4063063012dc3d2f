"""Doctor: looks at everything a tuning run needs, and names the cure of what is missing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from db import query
from db.imported import IMPORTED
from db.records import WinnerRecord
from db.session import open_for_reading
from ptxgen import env
from ptxgen.compile import check_arch, nvrtc_path, nvrtc_version, supported_archs
from ptxgen.counted import counted
from ptxgen.errors import PtxtuneError
from ptxgen.publish import check_writable
from ptxtune.detect import Detection
from ptxtune.pin import checked_pin
from ptxtune.target import resolve_target
from ptxtune.toolchain import installed_version, source_commit
from ptxtune.version import VERSION

LEAST_FREE_BYTES = 1 << 30
"""A full tuning run of a model leaves some hundred megabytes of cubins and samples."""

LEAST_DRIVER = 580
"""First driver branch of CUDA 13, whose cubins NVRTC 13 writes."""

LEAST_GPU_FREE_BYTES = 4 << 30
"""Rotating copies of the largest layers, twice the L2 cache, and cuBLAS' FP16 weights."""


class Health(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARNING = "warning"  # works, less well or without a GPU
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Check:
    """One finding.

    Attributes:
        name: what was looked at.
        health: how it is.
        detail: what was found.
        cure: what to do; empty where health is OK.
    """

    name: str
    health: Health
    detail: str
    cure: str = ""


def examine(
    detection: Detection, *, db: str | None = None, cache_dir: str | None = None
) -> tuple[Check, ...]:
    """Every check, in order. Never raises for a fault of the machine.

    Args:
        detection: what NVML says.
        db: database; the user's where None.
        cache_dir: compile cache; the user's where None.
    """
    checks = (
        ("ptxtune", _version),
        ("driver", lambda: _driver(detection)),
        ("gpu", lambda: _gpu(detection)),
        ("nvrtc", _nvrtc),
        ("arch", lambda: _arch(detection)),
        ("torch", _torch),
        ("cache", lambda: _cache(env.cache_folder(cache_dir))),
        ("disk", lambda: _disk(env.cache_folder(cache_dir))),
        ("database", lambda: _database(db)),
        ("environment", _environment),
        ("pin", _pin),
        ("tune uses", lambda: _use(detection)),
    )
    return tuple(_run(name, check) for name, check in checks)


def _run(name: str, check: Callable[[], Check]) -> Check:
    try:
        return check()
    except PtxtuneError as error:
        return Check(
            name,
            Health.FAILED,
            str(error),
            "Do what the message says, then run ptxtune doctor again.",
        )


def _version() -> Check:
    commit = source_commit()
    return Check("ptxtune", Health.OK, VERSION + (f", commit {commit}" if commit else ""))


def _driver(detection: Detection) -> Check:
    gpu = detection.first
    if gpu is None:
        cure = (
            "None needed to predict, query and export. To measure, install the NVIDIA driver "
            f"(branch {LEAST_DRIVER} or newer), and in a container pass the GPU through."
        )
        return Check("driver", Health.WARNING, detection.reason, cure)
    branch = gpu.driver.split(".")[0]
    if branch.isdecimal() and int(branch) < LEAST_DRIVER:
        cure = (
            f"Install driver branch {LEAST_DRIVER} or newer: older ones cannot load CUDA 13 cubins."
        )
        return Check("driver", Health.FAILED, gpu.driver, cure)
    return Check("driver", Health.OK, gpu.driver)


def _gpu(detection: Detection) -> Check:
    gpu = detection.first
    if gpu is None:
        return Check("gpu", Health.WARNING, "none", "Name one to predict for with --gpu.")
    capability = ".".join(map(str, gpu.capability))
    detail = (
        f"{gpu.name}, compute capability {capability}, {gpu.memory_bytes >> 30} GiB "
        f"({gpu.free_bytes >> 30} free), {gpu.power_limit_w} W, {gpu.uuid}"
    )
    if gpu.compute_pids:
        pids = ", ".join(map(str, gpu.compute_pids))
        cure = "End them before tuning: they make every measured time worse and noisier."
        return Check("gpu", Health.WARNING, f"{detail}; in use by processes {pids}", cure)
    if gpu.free_bytes < LEAST_GPU_FREE_BYTES:
        cure = f"Free {LEAST_GPU_FREE_BYTES >> 30} GiB of it before tuning."
        return Check("gpu", Health.WARNING, detail, cure)
    return Check("gpu", Health.OK, detail)


def _nvrtc() -> Check:
    archs = ", ".join(supported_archs())
    return Check("nvrtc", Health.OK, f"{nvrtc_version()} at {nvrtc_path()}; targets {archs}")


def _arch(detection: Detection) -> Check:
    target = resolve_target(None, detection)
    check_arch(target.arch.name)
    return Check("arch", Health.OK, target.arch.name)


def _torch() -> Check:
    version = installed_version("torch")
    if not version:
        return Check("torch", Health.FAILED, "not installed", "pip install torch")
    return Check("torch", Health.OK, version)


def _cache(folder: Path) -> Check:
    """Looks, and makes nothing: the folder comes with the first kernel."""
    cure = (
        f"Exports and layers work without it. To tune or compare, make it writable, or name "
        f"another with --cache-dir or {env.CACHE_DIR.name}."
    )
    try:
        check_writable(folder)
    except OSError as error:
        return Check("cache", Health.WARNING, f"{folder} cannot be written: {error.strerror}", cure)
    return Check("cache", Health.OK, str(folder))


def _nearest(path: Path) -> Path:
    """The path itself where it exists, else the nearest one above that does."""
    return next((item for item in (path, *path.parents) if os.path.lexists(item)), path)


def _disk(folder: Path) -> Check:
    existing = folder
    try:
        existing = next(path for path in (folder, *folder.parents) if path.is_dir())
        free = shutil.disk_usage(existing).free
    except OSError as error:
        return Check(
            "disk", Health.WARNING, f"{existing}: {error.strerror}", "Check the file system."
        )
    detail = f"{free / (1 << 30):.1f} GiB free at {existing}"
    if free < LEAST_FREE_BYTES:
        cure = f"Free {LEAST_FREE_BYTES >> 30} GiB, or name another folder with --cache-dir."
        return Check("disk", Health.WARNING, detail, cure)
    return Check("disk", Health.OK, detail)


def _database(target: str | None) -> Check:
    """What is stored, of every kind; whether a tuning run could write there."""
    with open_for_reading(target) as database:
        winners = query.winners(database, batch_invariant=None)
        counts = {
            "run": len(query.runs(database)),
            "measured winner": _count(winners, predicted=False, invariant=False),
            "predicted winner": _count(winners, predicted=True, invariant=False),
            "batch-invariant winner": sum(winner.batch_invariant for winner in winners),
            "imported seed": len(query.trials(database, contender=IMPORTED)),
        }
        detail = f"{database.label}: {', '.join(counted(n, name) for name, n in counts.items())}"
        path = database.path
        if database.missing:
            detail = f"{database.label} does not exist yet: nothing is stored"
    if path is not None and not os.access(_nearest(path), os.W_OK):
        return Check(
            "database",
            Health.FAILED if database.missing else Health.WARNING,
            f"{detail}; it cannot be written",
            "Queries, reports and exports work with what is stored. To tune, make it writable, or "
            f"name another database with --db or {env.DB.name}.",
        )
    return Check("database", Health.OK, detail)


def _count(winners: list[WinnerRecord], *, predicted: bool, invariant: bool) -> int:
    return sum(
        item.predicted is predicted and item.batch_invariant is invariant for item in winners
    )


def _environment() -> Check:
    known = {variable.name for variable in env.ENV_VARS}
    mine = {name for name in os.environ if name.startswith("PTXTUNE_")}
    detail = (
        ", ".join(f"{name} = {os.environ[name]}" for name in sorted(mine & known)) or "none set"
    )
    unknown = sorted(mine - known)
    if unknown:
        cure = f"Known ones are {', '.join(sorted(known))}."
        detail = f"{', '.join(unknown)} is not a variable of ptxtune; {detail}"
        return Check("environment", Health.WARNING, detail, cure)
    return Check("environment", Health.OK, detail)


def _pin() -> Check:
    config = checked_pin()
    return Check("pin", Health.OK, "none" if config is None else config.key())


def _use(detection: Detection) -> Check:
    target = resolve_target(None, detection)
    verb = "measures on" if target.detected else "predicts for"
    return Check("tune uses", Health.OK, f"{verb} {target.device.name} ({target.reason})")
