"""ptxtune bench: our kernels beside cuBLAS and other packages, checked and timed alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from db.export_rows import to_json_lines
from db.records import Protocol
from ptxgen.output_file import check_outputs, write_file
from ptxtune.bench import BenchJob, check_timed, make_bench, run_bench
from ptxtune.bench_selection import LayerOptions, parse_layers, select_layers
from ptxtune.interrupts import INTERRUPTED
from ptxtune.models import Layer
from ptxtune.neighbours import check_neighbours
from ptxtune.options import (
    UserPath,
    cache_option,
    db_option,
    device_option,
    force_option,
    json_option,
    m_option,
    problem_options,
    protocol_option,
    protocols_of,
)
from ptxtune.output import note, say, say_json
from ptxtune.target import resolve_target
from reports.bench_page import render_bench_page
from reports.bench_row import BenchRow
from reports.bench_text import bench_markdown, bench_text
from search.bench.registry import CONTENDERS, CUBLAS, OURS
from search.bench.runner import ROUNDS

OTHERS = [name for name in CONTENDERS if name not in (OURS, CUBLAS)]


@click.command("bench")
@problem_options(several=True)
@click.option(
    "--layers",
    metavar="NxK[,NxK...]",
    callback=parse_layers,
    help="Several layers, such as 4096x4096,6144x4096.",
)
@click.option(
    "--checkpoint",
    type=UserPath(),
    help="Layers, group size and zero points of a GPTQ, AWQ or compressed-tensors folder.",
)
@m_option("1,8,16", least=1)
@protocol_option(several=True, default="plain")
@click.option(
    "--contenders",
    metavar="NAME[,NAME...]",
    help=f"Of {', '.join(OTHERS)} (default: all); {OURS} and {CUBLAS} always take part.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=2),
    default=ROUNDS,
    show_default=True,
    help="Turns of every contender.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of weights and activations.")
@click.option("--json-file", type=UserPath(), help="JSON lines file.")
@click.option("--markdown", "markdown_file", type=UserPath(), help="Markdown file.")
@click.option("--html", "html_file", type=UserPath(), help="Page with charts.")
@force_option
@click.option("--strict", is_flag=True, help="Refuse to measure beside other processes on the GPU.")
@device_option
@db_option
@cache_option
@json_option
@click.pass_context
def command(
    context: click.Context,
    /,
    *,
    layers: tuple[Layer, ...],
    checkpoint: Path | None,
    m: tuple[int, ...],
    protocol: str,
    contenders: str | None,
    rounds: int,
    seed: int,
    json_file: Path | None,
    markdown_file: Path | None,
    html_file: Path | None,
    force: bool,
    strict: bool,
    device: str | None,
    db: str | None,
    cache_dir: str | None,
    as_json: bool,
    **layer: Any,
) -> None:
    """Compare our kernels with cuBLAS and other packages.

    Ours are the stored winners, or the built-in default where nothing was tuned; the table says
    which. Everybody packs the same integers, is checked against FP32 before it is timed, and takes
    turns with the others in one window. Whoever is not installed, or does not serve a layer, is
    listed with the reason. Ctrl-C keeps what was measured.

    \b
    Example:
      ptxtune bench --layers 4096x4096,6144x4096 --m 1,8,16
      ptxtune bench --model llama-3.1-8b --m 1,16,256 --protocol both --html bench.html
      ptxtune bench --checkpoint ./model-awq --contenders marlin,humming --json-file bench.jsonl
    """
    options = LayerOptions(layers=layers, checkpoint=checkpoint, **layer)
    check_outputs((json_file, markdown_file, html_file), replace=force)  # before it is measured
    target = resolve_target(None, device=device)
    warning = check_neighbours(target, strict)
    job = make_bench(
        select_layers(options),
        m,
        target=target,
        protocols=[Protocol(word) for word in protocols_of(protocol)],
        others=contenders.split(",") if contenders else (),
        rounds=rounds,
        seed=seed,
        strict=strict,
        db=db,
        cache_dir=cache_dir,
    )
    note(job.selection.note)
    note(warning)
    rows, interrupted = _measured(job, json_file, force)
    if as_json:  # first: no file that cannot be written may cost the numbers
        say_json({"rows": [row.to_dict() for row in rows]})
    else:
        say(bench_text(rows))
    _write(rows, json_file, markdown_file, html_file, force)
    if interrupted:
        context.exit(INTERRUPTED)
    check_timed(rows)


def _measured(job: BenchJob, json_file: Path | None, force: bool) -> tuple[list[BenchRow], bool]:
    """All rows, and whether Ctrl-C ended the run; the file is written anew after every case."""
    rows: list[BenchRow] = []
    cases = job.cases()
    try:
        for number, found in enumerate(run_bench(job, on_wait=_Waiting()), 1):
            rows += found
            if json_file is not None:
                lines = to_json_lines(row.to_dict() for row in rows)
                write_file(json_file, lines, replace=force or number > 1)
            timed = sum(row.time_us is not None for row in found)
            case = f"{found[0].problem.key()} M={found[0].m}"
            note(f"[{number}/{len(cases)}] {case}: {timed} of {len(found)} timed")
    except KeyboardInterrupt:
        note("interrupted; what was measured is kept")
        return rows, True
    return rows, False


class _Waiting:
    """Says once that another run has the GPU."""

    def __init__(self) -> None:
        self._told = False

    def __call__(self) -> None:
        if not self._told:
            note("another run measures on this GPU; waiting for it")
        self._told = True


def _write(
    rows: list[BenchRow],
    json_file: Path | None,
    markdown_file: Path | None,
    html_file: Path | None,
    force: bool,
) -> None:
    if not rows:
        return
    if json_file is not None:  # written after the last case already
        note(f"wrote {json_file}")
    if markdown_file is not None:
        note(f"wrote {write_file(markdown_file, bench_markdown(rows), replace=force)}")
    if html_file is not None:
        note(f"wrote {write_file(html_file, render_bench_page(rows), replace=force)}")
