"""ptxtune export: a tuned kernel as a bundle that runs without ptxtune."""

from __future__ import annotations

from typing import Any

import click

from db.records import Protocol
from ptxtune.answers import answer_document, answer_table
from ptxtune.exporting import export_bundle
from ptxtune.options import (
    batch_invariant_option,
    cache_option,
    db_option,
    gpu_option,
    json_option,
    m_option,
    problem_options,
    protocol_option,
)
from ptxtune.output import note, say, say_json
from ptxtune.selection import select_problems
from ptxtune.target import resolve_target


@click.command("export")
@problem_options(several=False)
@m_option(least=1)
@protocol_option(several=False, default="plain")
@click.option("--out", type=click.Path(), required=True, help="Folder of the bundle, new.")
@click.option("--measured", is_flag=True, help="Only measured winners; fail where there is none.")
@click.option("--force", is_flag=True, help="Replace an older bundle that holds nothing else.")
@batch_invariant_option
@gpu_option
@db_option
@cache_option
@json_option
def command(
    *,
    m: tuple[int, ...],
    protocol: str,
    out: str,
    measured: bool,
    batch_invariant: bool,
    force: bool,
    gpu: str | None,
    db: str | None,
    cache_dir: str | None,
    as_json: bool,
    **layer: Any,
) -> None:
    """Write a tuned kernel as a bundle that runs without ptxtune.

    The bundle holds readable source, PTX, cubin, a manifest, a C header and a self-test. Each M is
    a bucket: it serves batches up to that M, the last one also everything above. Where the compile
    cache cannot be written, it is done without.

    \b
    Example:
      ptxtune export --n 4096 --k 4096 --m 1,8,16 --out bundle
    """
    (problem,) = select_problems(**layer).problems
    target = resolve_target(gpu)
    folder, answers = export_bundle(
        out,
        problem,
        m,
        target=target,
        protocol=Protocol(protocol),
        db=db,
        cache_dir=cache_dir,
        allow_predicted=not measured,
        batch_invariant=batch_invariant,
        force=force,
        tell=note,
    )
    files = sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())
    if as_json:
        documents = [answer_document(answer) for answer in answers]
        say_json({"bundle": str(folder), "files": files, "buckets": documents})
        return
    say(answer_table(answers).to_text() + "\n")
    for answer in answers:
        if answer.winner is None:
            note(f"M = {answer.m}: exported without a measurement; {answer.message}")
        elif answer.differs:
            note(f"M = {answer.m}: {answer.message}")
        elif answer.predicted:
            note(f"M = {answer.m}: predicted for {target.device.name}, never run there.")
    say(f"{folder}\n  " + "\n  ".join(files))
