"""ptxtune inspect: what a bundle or a checkpoint holds, and whether a bundle is whole."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from ptxgen.arguments import path as as_path
from ptxgen.bundle.contents import BundleContents, BundledKernel, inspect
from ptxgen.errors import BundleError, NotABundleError
from ptxtune.folders import FolderKind, folder_kind
from ptxtune.options import UserPath, json_option
from ptxtune.output import say, say_json
from reports.table import Column, Table

DAMAGED = 1
"""Exit code; what is no bundle at all is 2, as any other bad input."""

COLUMNS = (
    Column("up to M"),
    Column("time", "us"),
    Column("at M"),
    Column("source", numeric=False),
    Column("registers"),
    Column("shared memory", "bytes"),
    Column("config", numeric=False),
)


@click.command("inspect")
@click.argument("path", type=UserPath())
@click.option("--tp", type=int, default=1, show_default=True, help="Ranks that share a checkpoint.")
@json_option
@click.pass_context
def command(context: click.Context, /, *, path: Path, tp: int, as_json: bool) -> None:
    """Show what a bundle or a checkpoint holds, without a GPU.

    Of a bundle the manifest is checked in itself, and every file against its sha256. The exit code
    is 1 where anything is missing or was changed, and every such file is named. Files that are not
    of the bundle are listed; they do no harm, but no export replaces a bundle that has some.

    Of a checkpoint (a folder with a config.json, or a GGUF file) the layers are listed as its
    tensors say, the problems that they map to, memory before and after, and what is not supported
    and why.

    \b
    Example:
      ptxtune inspect bundle
      ptxtune inspect ./model-awq --tp 2
    """
    folder = as_path(path, "the bundle or checkpoint", error=BundleError)
    if folder_kind(folder) is FolderKind.CHECKPOINT:
        _show_checkpoint(folder, tp, as_json)
        return
    if tp != 1:
        raise click.UsageError(f"--tp is for checkpoints; {folder} is none.")
    try:
        contents = inspect(folder)
    except NotABundleError:
        raise
    except BundleError as error:
        _show_damage(folder, str(error), as_json)
        context.exit(DAMAGED)
    if as_json:
        say_json(_document(contents))
    else:
        say(_text(contents))
    context.exit(DAMAGED if contents.faults else 0)


def _show_checkpoint(folder: Path, tp: int, as_json: bool) -> None:
    # Deferred: bundles need none of it.
    from ptxtune.inspect_checkpoint import (  # noqa: PLC0415
        inspect_checkpoint,
        inspection_document,
        inspection_text,
    )

    found = inspect_checkpoint(folder, tp=tp)
    if as_json:
        say_json(inspection_document(found))
    else:
        say(inspection_text(found))


def _show_damage(folder: Path, fault: str, as_json: bool) -> None:
    """Of a bundle whose manifest cannot be believed: nothing else is known of it."""
    if as_json:
        say_json({"bundle": str(folder), "whole": False, "faults": [fault]})
    else:
        say(f"damaged: {fault}")


def _document(contents: BundleContents) -> dict[str, Any]:
    return {
        "bundle": str(contents.path),
        "whole": not contents.faults,
        "faults": list(contents.faults),
        "problem": contents.problem.to_dict(),
        "arch": contents.arch,
        "device": contents.device,
        "ptxtune": contents.ptxtune,
        "nvrtc": contents.nvrtc,
        "created_at": contents.created_at,
        "kernels": [asdict(kernel) for kernel in contents.kernels],
        "files": list(contents.files),
        "foreign": list(contents.foreign),
    }


def _text(contents: BundleContents) -> str:
    rows = [_row(kernel) for kernel in contents.kernels]
    head = (
        f"{contents.problem.key()} for {contents.device} ({contents.arch}), made by ptxtune "
        f"{contents.ptxtune} with NVRTC {contents.nvrtc} on {contents.created_at}\n"
    )
    lines = [head, Table(COLUMNS, tuple(rows)).to_text() + "\n"]
    if contents.foreign:
        lines.append(f"not of the bundle: {', '.join(map(repr, contents.foreign))}")
    lines += [f"damaged: {fault}" for fault in contents.faults]
    if not contents.faults:
        lines.append(f"whole: {len(contents.files)} files match their sha256")
    return "\n".join(lines)


def _row(kernel: BundledKernel) -> tuple[str, ...]:
    timed = kernel.time_us is not None
    source = ("predicted" if kernel.predicted else "measured") if timed else "not timed"
    return (
        str(kernel.m_max),
        f"{kernel.time_us:.3f}" if kernel.time_us is not None else "-",
        str(kernel.timed_m) if kernel.timed_m is not None else "-",
        source + (", slower than dequantize + matmul" if kernel.dequantize_first else ""),
        str(kernel.registers),
        str(kernel.smem_bytes),
        kernel.config_key,
    )
