"""ptxtune space: how many configs are legal, and what each rule rejects."""

from __future__ import annotations

from typing import Any

import click

from ptxgen.families import FAMILIES
from ptxtune.options import gpu_option, json_option, m_option, problem_options
from ptxtune.output import say, say_json
from ptxtune.selection import select_problems
from ptxtune.target import resolve_target
from reports.table import Column, Table
from search.space import Rejections, Space

COLUMNS = (Column("points"), Column("share"), Column("rule that rejects them", numeric=False))


@click.command("space")
@problem_options(several=False)
@m_option(least=1)
@gpu_option
@json_option
def command(*, m: tuple[int, ...], gpu: str | None, as_json: bool, **layer: Any) -> None:
    """Count the legal configs of a problem, and what each rule rejects.

    The product is every combination of all knobs; where it is large, rules are counted on a
    random sample of it. A config may break several rules.

    \b
    Example:
      ptxtune space --n 4096 --k 4096 --m 1
    """
    (problem,) = select_problems(**layer).problems
    arch = resolve_target(gpu).arch
    sizes = {batch: len(Space(problem, arch, batch)) for batch in m}
    rejections = Space(problem, arch, m[0]).rejections()
    knobs = {name: dict(family.knobs()) for name, family in FAMILIES.items()}
    if as_json:
        say_json(
            {
                "problem": problem.to_dict(),
                "arch": arch.name,
                "candidates": {str(batch): size for batch, size in sizes.items()},
                "product": rejections.product,
                "examined": rejections.examined,
                "legal": rejections.legal,
                "rejected_by": rejections.by_rule,
                "knobs": knobs,
            }
        )
        return
    say(f"{problem.key()} on {arch.name}")
    for batch, size in sizes.items():
        say(f"M = {batch}: {size} legal configs worth trying")
    say(
        f"\nOf {rejections.product} combinations of all knobs, {rejections.examined} were looked "
        f"at and {rejections.legal} are legal.\n"
    )
    say(_rules(rejections).to_text())
    for name, choices in knobs.items():
        say(f"\nknobs of family {name}:")
        for knob, values in choices.items():
            say(f"  {knob}: {', '.join(map(str, values))}")


def _rules(rejections: Rejections) -> Table:
    rows = (
        (str(count), f"{count / rejections.examined:.0%}", rule)
        for rule, count in rejections.by_rule.items()
    )
    return Table(COLUMNS, tuple(rows))
