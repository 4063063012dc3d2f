"""ptxtune space: how many configs are legal, and what each rule rejects."""

from __future__ import annotations

from typing import Any

import click

from db.records import Protocol
from ptxgen.families import FAMILIES, default_config
from ptxgen.families.invariant import invariant_families
from ptxtune.options import (
    batch_invariant_option,
    gpu_option,
    json_option,
    m_option,
    problem_options,
    protocol_option,
)
from ptxtune.output import say, say_json
from ptxtune.selection import select_problems
from ptxtune.target import resolve_target
from reports.table import Column, Table
from search.space import Rejections, Space

COLUMNS = (Column("points"), Column("share"), Column("rule that rejects them", numeric=False))


@click.command("space")
@problem_options(several=False)
@m_option(least=1)
@protocol_option(several=False, default="plain")
@batch_invariant_option
@gpu_option
@json_option
def command(
    *,
    m: tuple[int, ...],
    protocol: str,
    batch_invariant: bool,
    gpu: str | None,
    as_json: bool,
    **layer: Any,
) -> None:
    """Count the legal configs of a problem, and what each rule rejects.

    Legal configs are those that ptxtune tune searches: for plain launches without what only differs
    in chained ones. The product is every combination of all knobs; where it is large, rules are
    counted on a random sample of it. A config may break several rules.

    \b
    Example:
      ptxtune space --n 4096 --k 4096 --m 1
    """
    (problem,) = select_problems(**layer).problems
    target = resolve_target(gpu)
    arch, chained = target.arch, protocol == Protocol.CHAINED
    families = invariant_families() if batch_invariant else FAMILIES
    sizes = {}
    for batch in m:
        space = Space(problem, arch, batch, families, chained=chained)
        space.add(
            default_config(problem, arch, batch, target.device.num_sms, families, chained=chained)
        )
        sizes[batch] = len(space)
    rejections = Space(problem, arch, m[0]).rejections()
    knobs = {name: dict(family.knobs()) for name, family in FAMILIES.items()}
    if as_json:
        say_json(
            {
                "problem": problem.to_dict(),
                "arch": arch.name,
                "protocol": protocol,
                "batch_invariant": batch_invariant,
                "candidates": {str(batch): size for batch, size in sizes.items()},
                "product": rejections.product,
                "examined": rejections.examined,
                "legal": rejections.legal,
                "rejected_by": rejections.by_rule,
                "knobs": knobs,
            }
        )
        return
    kind = ", batch-invariant" if batch_invariant else ""
    say(f"{problem.key()} on {arch.name}, {protocol} launches{kind}")
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
